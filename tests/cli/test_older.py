"""Stored results of other versions are not reused; saved ones are noted in verdicts, and the store explains them."""

import json

import pytest
from calls import run, told
from sessions import local_session

from bertsecrets import provenance
from bertsecrets.claims.judge import judge
from bertsecrets.claims.loading import find_case
from bertsecrets.settings import load_settings
from bertsecrets.store.measurements import Shelf

pytestmark = pytest.mark.usefixtures("quick")
SAID = ("made with torch 1.0.0, not ", "checkpoint made with torch 1.0.0, not ")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("store") / "runs"


@pytest.fixture
def older(monkeypatch):
    """Return a function that switches to a fake older torch version, and back on the next call."""
    real, switched = provenance.library_version, []

    def switch():
        if switched:
            switched.clear()
        else:
            switched.append(True)

    monkeypatch.setattr(
        provenance, "library_version", lambda name: "1.0.0" if switched and name == "torch" else real(name)
    )
    return switch


def said(lines):
    return tuple(any(line.startswith(start) for line in lines) for start in SAID)


def test_results_of_older_versions_are_noted_and_not_reused_from_the_store(
    capsys, shared, runs, tmp_path, tiny_bert, tiny_glue, older
):
    older()
    run(capsys, "measure", "scores", "--task", "rte", *shared, "--save", tmp_path / "kept")
    run(capsys, "finetune", "--task", "rte", *shared, "--output", tmp_path / "exported")
    older()
    before = sorted(runs.rglob("checkpoints/*/manifest.json"))

    case = find_case("D1-pretrained", "rte")
    (saved,) = Shelf.read(tmp_path / "kept").measurements
    assert said(judge(case, [{"scores": saved}], load_settings().judge).remarks) == (True, True)

    session = local_session(model=tiny_bert, glue=tiny_glue, store=runs)
    of_export = session.measure("scores", "rte", checkpoint=tmp_path / "exported")
    assert said(judge(case, [{"scores": of_export}], load_settings().judge).remarks)[1]
    fresh = session.measure("scores", "rte")
    assert said(judge(case, [{"scores": fresh}], load_settings().judge).remarks) == (False, False)
    assert len(before) == 1
    assert len(sorted(runs.rglob("checkpoints/*/manifest.json"))) == 2


def test_an_entry_explains_itself(capsys, shared, runs, older, monkeypatch, tmp_path, quick):
    run(capsys, "measure", "scores", "--task", "rte", *shared, "--save", tmp_path / "kept")
    options = shared
    (checkpoint,) = [path for path in (runs / "checkpoints").glob("rte-pretrained-1-*") if fits(path)]
    out = run(capsys, "store", "explain", checkpoint.name, *options)
    assert f"{checkpoint}: made 20" in out
    assert "undamaged" in out
    assert "  task: rte\n" in out
    assert "batch_size 32" in out
    assert f"  torch {provenance.library_version('torch')}\n" in out
    assert out.endswith("now:\n  the key matches\n")
    (scores,) = [path for path in (runs / "measurements").glob("scores-rte-pretrained-1-*") if fits(path)]
    at = shared.index("--store")
    for given in (options, [*options[:at], *options[at + 2 :]]):  # the store is known from the path of the entry
        assert run(capsys, "store", "explain", scores, *given).endswith("now:\n  the key matches\n")

    older()
    text = quick.read_text().replace("epochs: 1", "epochs: 2")
    (tmp_path / "params.yaml").write_text(text)
    monkeypatch.setenv("BERTSECRETS_PARAMS", str(tmp_path / "params.yaml"))
    out = run(capsys, "store", "explain", checkpoint.name, *options, "--train-limit", 8)
    today = out.partition("now:\n")[2]
    assert f"made with torch {out.partition('  torch ')[2].split()[0]}, not 1.0.0" in today
    assert "epochs: 2, not 1" in today
    assert "train: " in today


def fits(entry):
    return json.loads((entry / "manifest.json").read_text())["key"]["made_by"]["software"]["torch"] != "1.0.0"


def test_an_unknown_or_ambiguous_entry_is_reported_in_one_line(capsys, shared):
    line = told(capsys, "store", "explain", "zzz", *shared)
    assert "has 'zzz' in its name: see bertsecrets store ls" in line
    assert "give a longer part" in told(capsys, "store", "explain", "-", *shared)
