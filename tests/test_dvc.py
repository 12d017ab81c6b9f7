"""The DVC pipeline, for real: a tiny model through all stages, its outputs pushed to and pulled from a remote."""

import configparser
import json
import re
import shutil
import subprocess

import pytest
import yaml
from pipeline import PROJECT, run, tiny_checkout

from bertsecrets.patterns.annotation.map_set import own_maps

pytest.importorskip("dvc")


# Code whose change must make DVC run a stage again.
CODE = {
    "texts/glue.py": "finetune@",
    "models/loading.py": "finetune@",
    "models/encoding.py": "measure@",
    "models/attention.py": "measure@",
    "measures/attention_change.py": "measure@",
    "patterns/classifier.py": "measure@",
    "session.py": "measure@",
    "bootstrap.py": "verify",
    "claims/judge.py": "verify",
    "report/html.py": "verify",
}


@pytest.fixture
def checkout(tmp_path, tiny_bert):
    """A copy of the pipeline whose demo corner is one tiny subject."""
    return tiny_checkout(tmp_path / "checkout", tiny_bert)


def test_pipeline_runs_once_and_its_outputs_travel_through_a_remote(checkout, tmp_path):
    run(checkout, "init", "--no-scm", "--quiet")
    run(checkout, "repro")
    assert "up to date" in run(checkout, "repro")

    for module, stage in CODE.items():
        path = checkout / "bertsecrets" / module
        unchanged = path.read_bytes()
        path.write_bytes(unchanged + b"# changed\n")
        assert stage in run(checkout, "status"), module
        path.write_bytes(unchanged)
    assert "up to date" in run(checkout, "status")

    metrics = json.loads((checkout / "runs/dvc/metrics.json").read_text())
    assert "C1-rte" in metrics["claims"]
    assert "C1-rte" in run(checkout, "metrics", "show")
    run(checkout, "plots", "show", "--out", str(tmp_path / "plots"))
    assert (tmp_path / "plots" / "index.html").is_file()

    weights = checkout / "runs/dvc/checkpoints/rte-pretrained-1/model.safetensors"
    before = weights.read_bytes()
    run(checkout, "remote", "add", "--default", "here", str(tmp_path / "remote"))
    run(checkout, "push")
    shutil.rmtree(checkout / ".dvc" / "cache")
    shutil.rmtree(checkout / "runs")
    run(checkout, "pull")
    assert weights.read_bytes() == before


def test_edited_training_code_gives_new_results_and_never_stored_ones(checkout):
    """DVC runs a stage again after an edit; the store below it must not answer with what the old code made."""
    run(checkout, "init", "--no-scm", "--quiet")
    stages = ("repro", "finetune@rte-pretrained-1", "measure@rte-pretrained-1")

    def results() -> list[bytes]:
        run(checkout, *stages)
        changes = sorted((checkout / "runs/dvc/measurements").glob("*/attention-change-*/measurement.json"))
        values = [json.loads(change.read_text())["values"] for change in changes]
        assert values
        return [
            (checkout / "runs/dvc/checkpoints/rte-pretrained-1/model.safetensors").read_bytes(),
            json.dumps(values).encode(),
        ]

    first = results()
    module = checkout / "bertsecrets" / "models" / "finetune.py"
    code = module.read_text(encoding="utf-8")
    saving = re.search(r"^( +)(classifier\.)?model\.save_pretrained\(folder\)$", code, re.M)
    other = f"{saving[1]}for weights in classifier.model.parameters():\n{saving[1]}    weights.data.mul_(1.01)\n"
    module.write_text(code[: saving.start()] + other + code[saving.start() :], encoding="utf-8")
    edited = results()
    assert all(one != other for one, other in zip(edited, first, strict=True))
    module.write_text(code + "# a comment\n", encoding="utf-8")
    assert results() == first


def test_the_annotated_maps_come_out_of_the_repository_itself(tmp_path):
    """As in a fresh clone: git has brought the store, and not the maps that it holds."""
    folder = tmp_path / "clone"
    shutil.copytree(PROJECT / "data" / "store", folder / "data" / "store")
    shutil.copy(PROJECT / "data" / "patterns.dvc", folder / "data" / "patterns.dvc")
    (folder / ".dvc").mkdir()
    shutil.copy(PROJECT / ".dvc" / "config", folder / ".dvc" / "config")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    run(folder, "pull", "data/patterns.dvc")
    files = sorted(path.relative_to(folder / "data/patterns") for path in (folder / "data/patterns").rglob("*.npz"))
    assert [str(path) for path in files] == [*(f"maps-{i:04d}.npz" for i in range(1, 7)), "unseen/maps-0001.npz"]
    for path in files:
        assert (folder / "data/patterns" / path).read_bytes() == (own_maps() / path).read_bytes()


def test_the_pipelines_outputs_never_go_into_the_repositorys_store():
    """The store is a remote of the maps only, not the default one that `dvc push` would fill."""
    settings = configparser.ConfigParser()
    settings.read_string("\n".join(line.strip() for line in (PROJECT / ".dvc/config").read_text().splitlines()))
    assert not settings.has_option("core", "remote")
    for out in yaml.safe_load((PROJECT / "data/patterns.dvc").read_text())["outs"]:
        assert out["remote"] == "maps"
