"""Options reach the measures, and outputs never replace the user's files.

Bad inputs are in `tests/attack/test_bad_inputs.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from calls import run, told

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick")


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
    run(capsys, *call, "--json", tmp_path / "sets.json", "--heads", "1.1  pairs:2")
    of_sets = json.loads((tmp_path / "sets.json").read_text())
    assert of_sets["values"]["sets"][:2] == ["1.1", "2.1+2.2"]
    assert len(of_sets["values"]["score"]) == len(of_sets["values"]["sets"])


SCORES = ("measure", "scores", "--task", "rte", "--init", "untrained")


def test_a_null_device_takes_any_output(capsys, shared):
    assert run(capsys, *SCORES, *shared, "--json", "/dev/null").startswith("wrote /dev/null: scores of ")


def test_a_different_corpus_is_neither_overwritten_nor_reused(capsys, tmp_path):
    call = ["corpus", tmp_path / "glue", "--train-rows", 5, "--dev-rows", 3]
    first = run(capsys, *call)
    before = (tmp_path / "glue" / "RTE" / "dev.tsv").read_bytes()
    line = told(capsys, "corpus", tmp_path / "glue", "--train-rows", 50, "--dev-rows", 30)
    assert "already has 5 training and 3 validation pairs, not 50 and 30: choose a new folder" in line
    assert run(capsys, *call) == first
    assert (tmp_path / "glue" / "RTE" / "dev.tsv").read_bytes() == before
    (tmp_path / "glue" / "made-up-frames.jsonl").write_text("mine")
    assert "made-up-frames.jsonl already contains other sentences: choose another folder" in told(capsys, *call)
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
    line = "bertsecrets: cannot write the output (No space left on device): redirect the output to another file\n"
    assert (done.returncode, done.stderr) == (2, line)
