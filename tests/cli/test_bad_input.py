"""Invalid calls give a one-line error and exit code 2, without data loss.

Damaged and invalid files are covered by `tests/attack/bad_inputs`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from calls import run, told

from bertsecrets.caches import CheckpointCache, MeasurementCache

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick")


def test_unknown_names_come_with_near_matches(capsys, shared):
    assert "did you mean rte" in told(capsys, "measure", "scores", "--task", "rtee", *shared)
    assert "did you mean scores" in told(capsys, "measure", "score", "--task", "rte", *shared)
    assert "did you mean C1" in told(capsys, "explain", "C11")
    assert "unknown claim 'Z9'" in told(capsys, "report", "--claim", "Z9", *shared)
    for command in (["explain"], ["report", "--claim"]):
        assert "unknown claim 'C1-rt': did you mean C1-rte" in told(capsys, *command, "C1-rt")
    assert "did you mean minilm" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--model", "minilmm")


def test_an_impossible_model_name_is_quoted(capsys, shared):
    for name in ("foo bar", "a--b", "minilm/", "x" * 300, f"./{'x' * 300}", "@abc"):
        line = told(capsys, "measure", "scores", "--task", "rte", *shared, "--model", name)
        assert name in line
        assert "use the model minilm" in line


@pytest.mark.parametrize(
    "words",
    [
        [], ["nothing"], ["measure"], ["measure", "scores", "--task", "rte", "--limit", "many"],
        ["finetune", "--task", "rte", "--init", "none"], ["claims", "--colour"],
    ],
)  # fmt: skip
def test_invalid_usage_points_to_the_help(capsys, words):
    assert "--help" in told(capsys, *words)


def test_an_empty_path_is_refused(capsys):
    for words in (
        ["measure", "scores", "--json", ""], ["measure", "scores", "--glue", ""], ["corpus", ""],
        ["store", "ls", "--store="], ["finetune", "--task", "rte", "--output", ""],
    ):  # fmt: skip
        assert "the path is empty: name a file or folder" in told(capsys, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("measure scores", "needs a task"),
        ("measure scores --task sst2", "SST-2/"),
        ("measure scores --task rte --limit 0", "limit 0 leaves"),
        ("measure scores --task rte --limit -4", "limit -4"),
        ("measure scores --task rte --train-limit 0", "train_limit 0"),
        ("measure scores --task rte --option padded-to=50", "measure scores has no option padded_to"),
        ("measure special-tokens --task rte --option padded_to=50", "measure special-tokens has no option padded_to"),
        ("measure special-tokens --task rte --option rows=last", "option rows of measure special-tokens: "),
        ("measure scores --task rte --heads 1.1", "measure scores has no option heads: it takes"),
        ("measure all --task rte --save kept --heads 1.1", "option heads is for a single measure"),
        ("measure scores --task rte --device cuda:77", "device 'cuda:77' is not available"),
        ("measure scores --task rte --device meta", "device 'meta' is not available"),
        ("measure scores --task rte --checkpoint none", "no checkpoint folder"),
        ("measure all --task rte", "--save DIR"),
        ("measure attention-change --task rte --init untrained", "choose another initialisation"),
        ("measure frame-heads --init random", "leave out task, init and seed"),
        ("measure example-sentence --seed 7", "leave out task, init and seed"),
        ("measure pattern-quality --task rte", "leave out task, init and seed"),
        ("measure pattern-quality --checkpoint none", "pattern-quality uses no model: leave out checkpoint"),
        ("report --task rte --seeds 0", "seeds 0 leaves"),
        ("report --glue none", "no GLUE folder at"),
        ("report --init random", "--init has no effect without --measurements"),
        ("report --seed 1", "--seed has no effect without --measurements"),
    ],
)
def test_incompatible_options_are_refused(capsys, shared, words, message):
    command, *rest = words.split()
    assert message in told(capsys, command, *shared, *rest)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused_by_every_command(capsys, shared, seed):
    for command in (
        ["finetune", "--task", "rte", *shared],
        ["measure", "scores", "--task", "rte", *shared],
    ):
        assert f"seed {seed} is out of range" in told(capsys, *command, "--seed", seed)


@pytest.mark.parametrize(
    ("measure", "words", "options"),
    [
        ("special-tokens", ["--option", "rows=first"], {"rows": "first"}),
        ("scores", ["--option", "cased=true"], {"cased": True}),
    ],
)
def test_options_of_a_measure_reach_it(capsys, shared, measure, words, options):
    call = ["measure", measure, "--task", "rte", "--init", "untrained", *shared, *words]
    assert json.loads(run(capsys, *call))["options"] == options


def test_sets_of_heads_are_scored_by_name(capsys, shared, tmp_path):
    call = ["measure", "head-ablation", "--task", "rte", "--init", "untrained", *shared]
    call += ["--json", tmp_path / "sets.json"]
    run(capsys, *call, "--heads", "1.1  pairs:2")
    of_sets = json.loads((tmp_path / "sets.json").read_text())
    assert of_sets["values"]["sets"][:2] == ["1.1", "2.1+2.2"]
    assert len(of_sets["values"]["score"]) == len(of_sets["values"]["sets"])
    run(capsys, *call)
    whole = json.loads((tmp_path / "sets.json").read_text())
    assert whole["values"]["score"][0][0] == of_sets["values"]["score"][0]
    assert whole["values"]["baseline"] == of_sets["values"]["baseline"]


def test_an_unwritable_store_is_one_line_and_nothing_is_lost(capsys, shared, tmp_path):
    (tmp_path / "file").write_text("mine")
    line = told(capsys, "measure", "scores", "--task", "rte", *shared, "--store", tmp_path / "file")
    assert "a file exists where a folder is needed" in line
    assert (tmp_path / "file").read_text() == "mine"


SCORES = ("measure", "scores", "--task", "rte", "--init", "untrained")
UNWRITABLE = {
    "--save in a loop of links": (*SCORES, "--save", "loop/kept"),
    "--json in a loop of links": (*SCORES, "--json", "loop"),
    "--output in a loop of links": ("finetune", "--task", "rte", "--output", "loop/model"),
    "--output that cannot be written": ("finetune", "--task", "rte", "--output", "/proc/model"),
    "--store below a loop of links": (*SCORES, "--store", "loop/store"),
    "--store that cannot be written": (*SCORES, "--store", "/proc/store"),
    "--store of a report": ("report", "--task", "rte", "--claim", "E1", "--store", "/proc/store"),
    "--save that cannot be written": (*SCORES, "--save", "/proc/saved"),
    "--html on a full device": ("report", "--task", "rte", "--claim", "E1", "--html", "/dev/full"),
    "--json on a full device": (*SCORES, "--json", "/dev/full"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_cannot_be_written_is_refused_before_anything_is_measured(capsys, shared, tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    monkeypatch.setattr(CheckpointCache, "get", lambda *_: pytest.fail("trained first"))
    monkeypatch.setattr(MeasurementCache, "_made", lambda *_: pytest.fail("measured first"))
    command, *words = UNWRITABLE[name]
    assert f"cannot write {words[-1]}" in told(capsys, command, *shared, *words)


def test_a_null_device_takes_any_output(capsys, shared):
    assert run(capsys, *SCORES, *shared, "--json", "/dev/null").startswith("/dev/null: scores of ")


def test_an_export_never_overwrites_files_of_the_user(capsys, shared, tmp_path, monkeypatch):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    monkeypatch.setattr(CheckpointCache, "get", lambda *_: pytest.fail("trained first"))
    assert "choose a new folder" in told(capsys, "finetune", "--task", "rte", *shared, "--output", tmp_path)
    assert "a file exists where" in told(capsys, "finetune", "--task", "rte", *shared, "--output", thesis)
    assert thesis.read_text() == "years of work"


def test_damaged_validation_rows_are_refused_before_training(capsys, shared, tiny_glue, tmp_path, monkeypatch):
    glue = shutil.copytree(tiny_glue, tmp_path / "glue")
    (glue / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tperhaps\n")
    monkeypatch.setattr(CheckpointCache, "get", lambda *_: pytest.fail("trained first"))
    call = ["measure", "scores", "--task", "rte", "--init", "frozen", *shared, "--glue", glue]
    call.remove(str(tiny_glue))
    call.remove("--glue")
    assert "dev.tsv, line 2, column 'label': unknown label 'perhaps'" in told(capsys, *call)


def test_sets_of_heads_are_checked_before_training(capsys, shared, monkeypatch):
    monkeypatch.setattr(CheckpointCache, "get", lambda *_: pytest.fail("trained first"))
    call = ["measure", "head-ablation", "--task", "rte", "--init", "frozen", *shared, "--heads"]
    assert "'9.1' does not exist: the model has layers 1 to 3" in told(capsys, *call, "1.1 9.1")


def test_a_different_corpus_is_neither_overwritten_nor_reused(capsys, tmp_path):
    call = ["corpus", tmp_path / "glue", "--train-rows", 5, "--dev-rows", 3]
    first = run(capsys, *call)
    before = (tmp_path / "glue" / "RTE" / "dev.tsv").read_bytes()
    line = told(capsys, "corpus", tmp_path / "glue", "--train-rows", 50, "--dev-rows", 30)
    assert "already contains 5 and 3 pairs, not 50 training and 30 validation pairs: choose a new folder" in line
    assert run(capsys, *call) == first
    assert (tmp_path / "glue" / "RTE" / "dev.tsv").read_bytes() == before
    (tmp_path / "glue" / "made-up-frames.jsonl").write_text("mine")
    assert "made-up-frames.jsonl contains other sentences: choose a new folder" in told(capsys, *call)
    assert (tmp_path / "glue" / "made-up-frames.jsonl").read_text() == "mine"
    assert "at most 1000000" in told(capsys, "corpus", tmp_path / "other", "--train-rows", 100_000_000)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_unwritable_output_is_one_line(unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bertsecrets", "explain", "C1"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    line = "bertsecrets: cannot write the output (No space left on device): redirect it to another place\n"
    assert (done.returncode, done.stderr) == (2, line)
