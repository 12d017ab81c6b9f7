"""End-to-end tests of the DVC pipeline: tiny models in all stages, and outputs pushed to and pulled from a remote."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from pages import DOCS, blocks
from pipeline import PROJECT, commit, copied_checkout, in_git, run

from bertsecrets.settings import Params
from bertsecrets.texts.corpus import write_corpus
from instruments.annotation.map_set import own_maps

pytest.importorskip("dvc")
from dvc.repo import Repo  # only if it is installed

pytestmark = pytest.mark.slow

TRAINED, MEASURED = "finetune@rte-pretrained-1", "measure@rte-pretrained-1"
# For each change: the file, the text to replace (None: append), the new text, and the stages that become out of date.
CHANGES = {
    "code of a measure": ("bertsecrets/measures/scores.py", None, "# changed", {MEASURED, "verify"}),
    "code that reads rows": ("bertsecrets/texts/glue.py", None, "# changed", {"glue@rte", TRAINED, MEASURED}),
    "code that locates models": (
        *("bertsecrets/models/locations.py", None, "# changed"),
        {"encoder", TRAINED, MEASURED},
    ),
    "code of the judge": ("bertsecrets/claims/judge.py", None, "# changed", {"verify"}),
    "code of the report": ("bertsecrets/report/html.py", None, "# changed", {"verify"}),
    "code of commands": ("bertsecrets/cli/main.py", None, "# changed", set()),
    "a claim": ("expected/C-change.yaml", None, "# changed", {"verify"}),
    "the libraries": ("requirements/base.txt", None, "# changed", {TRAINED, MEASURED, "verify"}),
    "weights": ("my-bert/model.safetensors", None, "changed", {"encoder"}),
    "a text": ("my-glue/RTE/dev.tsv", "the", "teh", {"glue@rte"}),
    "a label": ("my-glue/RTE/train.tsv", "\tnot_entailment", "\tentailment", {"glue@rte"}),
    "finetune": ("params.yaml", "epochs: 3", "epochs: 4", {TRAINED}),
    "attention": ("params.yaml", "examples: 1000", "examples: 999", {MEASURED}),
    "judge": ("params.yaml", "confidence: 0.95", "confidence: 0.9", {"verify"}),
    "the corpus, which no stage writes": ("params.yaml", "train_rows: 1600", "train_rows: 1601", set()),
    "another seed": (
        *("params.yaml", "    seed:\n    - 1\n", "    seed:\n    - 1\n    - 2\n"),
        {"finetune@rte-pretrained-2", "measure@rte-pretrained-2", "verify"},
    ),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory, tiny_bert):
    """A clone in which a lab's own model and GLUE folder went through the unchanged pipeline.

    Every test restores its original state.
    """
    folder = copied_checkout(tmp_path_factory.mktemp("lab") / "checkout")
    shutil.copytree(tiny_bert, folder / "my-bert")
    write_corpus(folder / "my-glue", 32, 16)
    in_git(folder)
    values = [
        *("model=./my-bert", "model_files=./my-bert", "glue=./my-glue", "glue_files=./my-glue"),
        *("grid.task=[rte]", "grid.init=[pretrained]", "grid.seed=[1]"),
    ]
    overrides = [word for value in values for word in ("-S", f"pipeline.{value}")]
    run(folder, "exp", "run", *overrides, "-S", "+pipeline.options.data.allow-unofficial-data=true")
    commit(folder)
    return folder


def out_of_date(folder: Path) -> set[str]:
    with Repo(str(folder)) as repo:
        return {name.rpartition(":")[2] for name in repo.status()}  # without the path of dvc.yaml


@contextmanager
def changed(folder: Path, change: str) -> Iterator[set[str]]:
    """Apply a change within the block, and yield the stages that are then out of date."""
    name, old, new, stages = CHANGES[change]
    path = folder / name
    before = path.read_bytes()
    if old is None:
        path.write_bytes(before + new.encode())
    else:
        assert old.encode() in before, change
        path.write_bytes(before.replace(old.encode(), new.encode(), 1))
    try:
        yield stages
    finally:
        path.write_bytes(before)


def test_status_names_the_stages_that_a_change_concerns_and_no_others(lab):
    assert "up to date" in run(lab, "status")
    for change in CHANGES:
        with changed(lab, change) as stages:
            assert out_of_date(lab) == stages, change
    assert out_of_date(lab) == set()


def test_changed_weights_and_labels_reach_training_and_measures(lab):
    for change, stage in (("weights", "encoder"), ("a label", "glue")):
        with changed(lab, change):
            run(lab, "repro", stage)
            assert out_of_date(lab) == {TRAINED, MEASURED}, change
        run(lab, "repro", stage)
        assert out_of_date(lab) == set()


def test_metrics_and_plots_show_the_effect_of_a_change(lab, tmp_path):
    with changed(lab, "attention"):
        params = lab / "params.yaml"
        params.write_text(params.read_text().replace("examples: 999", "examples: 4"))
        run(lab, "repro")
        difference = json.loads(run(lab, "metrics", "diff", "--json"))["runs/dvc/metrics.json"]
        assert difference["claims.E1-rte.observed"]["diff"] != 0
        assert not [name for name in difference if name.startswith("claims.D1")]  # scores use all examples
        run(lab, "plots", "diff", "--out", str(tmp_path / "plots"))
        assert "workspace" in (tmp_path / "plots" / "index.html").read_text()
    run(lab, "repro")
    assert out_of_date(lab) == set()


def test_sets_of_parameters_can_take_the_place_of_the_papers_and_of_each_other(tmp_path):
    from dvc.utils.hydra import apply_overrides

    params = tmp_path / "params.yaml"
    shutil.copy(PROJECT / "params.yaml", params)
    for name in ("demo", "quick", "demo"):
        apply_overrides(str(params), [f"pipeline=${{sets.{name}}}"])
        data = yaml.safe_load(params.read_text())
        assert data["pipeline"] == data["sets"][name]


def _documented(*words: str) -> list[list[str]]:
    """Return the commands of docs/dvc.md that start with these words."""
    commands = [command for block in blocks(DOCS / "dvc.md") if block.language == "sh" for command in block.commands]
    matching = [command for command in commands if command[: len(words)] == list(words)]
    assert matching
    return matching


def test_documented_values_can_be_set_in_the_parameter_file(tmp_path):
    from dvc.utils.cli_parse import to_path_overrides
    from dvc.utils.hydra import apply_overrides

    quick = {}
    for command in _documented("dvc", "exp", "run"):
        shutil.copy(PROJECT / "params.yaml", tmp_path / "params.yaml")
        values = [word for option, word in pairwise(command) if option == "-S"]
        for name, overrides in to_path_overrides(values).items():
            apply_overrides(str(tmp_path / name), overrides)
        params = Params.model_validate(yaml.safe_load((tmp_path / "params.yaml").read_text()))
        if any(value.startswith("sets.quick.") for value in values):
            quick = params.pipeline
    assert (quick.model, quick.glue, quick.glue_files) == ("minilm", "./glue_data", "./glue_data")
    assert quick.options.measure == {"limit": 48}


def test_frames_and_spacy_pipelines_are_parameters_and_dependencies(tmp_path):
    """Each entry adds stages that read its path and depend on it. Without entries, the pipeline lacks these stages."""
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(PROJECT / name, tmp_path / name)
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    params["pipeline"]["grid"] = {"task": ["rte"], "init": ["frozen"], "seed": [3]}

    def stages(frames: dict[str, str], spacy: list[str]) -> dict[str, tuple[str, str]]:
        params["pipeline"] |= {"frames": frames, "spacy": spacy}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
        with Repo.init(tmp_path, no_scm=True, force=True) as repo:
            added = [stage for stage in repo.index.stages if stage.name.startswith(("frames", "words"))]
        return {stage.name: (stage.deps[0].def_path, stage.cmd) for stage in added}

    assert stages({}, []) == {}
    added = stages({"paper": "frames.jsonl"}, ["./my-parser"])
    assert {name: dependency for name, (dependency, _) in added.items()} == {
        "frames@paper": "frames.jsonl",
        "words@features-rte-frozen-3-./my-parser": "./my-parser",
        "words@relations-rte-frozen-3-./my-parser": "./my-parser",
    }
    assert '--frames "frames.jsonl"' in added["frames@paper"][1]
    assert '--spacy "./my-parser"' in added["words@features-rte-frozen-3-./my-parser"][1]


def test_edited_training_code_gives_new_results_and_never_stored_ones(lab):
    """DVC reruns a stage after an edit, and the store must not return results of the old code."""

    def results() -> list[bytes]:
        run(lab, "repro", TRAINED, MEASURED)
        changes = sorted((lab / "runs/dvc/measurements").glob("*/attention-change-*/measurement.json"))
        values = [json.loads(change.read_text())["values"] for change in changes]
        assert values
        return [
            (lab / "runs/dvc/checkpoints/rte-pretrained-1/model.safetensors").read_bytes(),
            json.dumps(values).encode(),
        ]

    first = results()
    module = lab / "bertsecrets" / "models" / "training" / "finetune.py"
    code = module.read_text(encoding="utf-8")
    saving = re.search(r"^( +)(classifier\.)?model\.save_pretrained\(folder\)$", code, re.M)
    other = f"{saving[1]}for weights in classifier.model.parameters():\n{saving[1]}    weights.data.mul_(1.01)\n"
    try:
        module.write_text(code[: saving.start()] + other + code[saving.start() :], encoding="utf-8")
        edited = results()
        assert all(one != other for one, other in zip(edited, first, strict=True))
    finally:
        module.write_text(code, encoding="utf-8")
    assert results() == first
    run(lab, "repro")  # `verify` is out of date if the measurement was repeated, since its seconds differ
    assert out_of_date(lab) == set()


def test_a_colleagues_clone_gets_everything_back(lab, tmp_path):
    """The documented commands, with a folder outside both clones as the remote."""
    share, receive = documented("Share")
    storage, colleague = tmp_path / "lab-storage", tmp_path / "colleague"
    own = {"/srv/lab-storage": str(storage), "./glue_data": "./my-glue"}
    for words in share:
        if words[0] == "dvc":
            run(lab, *(own.get(word, word) for word in words[1:]))
    commit(lab)
    subprocess.run(["git", "clone", "--quiet", str(lab), str(colleague)], check=True)
    assert "deleted" in run(colleague, "status")  # no network or remote is needed to be told what is missing
    storage.rename(tmp_path / "unplugged")
    assert "deleted" in run(colleague, "status")
    (tmp_path / "unplugged").rename(storage)
    assert [words[:2] for words in receive] == [["dvc", "pull"], ["dvc", "status"]]
    run(colleague, "pull")
    assert out_of_date(colleague) == set()
    outputs = [path.relative_to(lab) for path in (lab / "runs" / "dvc").rglob("*") if path.is_file()]
    assert any(path.name == "model.safetensors" for path in outputs)
    for path in outputs:
        assert (colleague / path).read_bytes() == (lab / path).read_bytes(), path
    for name in ("my-bert", "my-glue"):
        run(lab, "remove", f"{name}.dvc")
    run(lab, "remote", "remove", "lab")
    commit(lab)


def documented(section: str) -> list[list[list[str]]]:
    """Return the commands of each block of shell code in a section of the page on DVC, as words."""
    text = (DOCS / "dvc.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    shell = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [[shlex.split(line, comments=True) for line in block.splitlines()] for block in shell]


def test_the_annotated_maps_come_out_of_the_repository_itself(tmp_path):
    """As in a fresh clone, git provides the DVC store, but the maps are not checked out of it."""
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
    """The repository's store is a remote for the maps only, not the default remote of `dvc push`."""
    settings = configparser.ConfigParser()
    settings.read_string("\n".join(line.strip() for line in (PROJECT / ".dvc/config").read_text().splitlines()))
    assert not settings.has_option("core", "remote")
    for out in yaml.safe_load((PROJECT / "data/patterns.dvc").read_text())["outs"]:
        assert out["remote"] == "maps"
