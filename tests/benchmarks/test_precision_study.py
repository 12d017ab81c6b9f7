"""The study of precision: two trainings a seed, everything through the store, written when it is complete."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("quick")


def study(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "precision_study.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_study_compares_both_precisions_seed_by_seed_and_reads_what_is_there(tiny_bert, tiny_glue, tmp_path):
    call = ["--model", tiny_bert, "--glue", tiny_glue, "--store", tmp_path / "runs", "--allow-unofficial-data"]
    call += ["--offline", "--task", "rte", "--seeds", 2, "--json", tmp_path / "study.json"]
    first = study(*call)
    assert first.returncode == 0, first.stderr
    [found] = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))["tasks"]
    assert found["seeds"] == [1, 2]
    assert {name: len(scores) for name, scores in found["scores"].items()} == {"float32": 2, "bfloat16": 2}
    low, high = found["interval"]
    assert low <= found["difference"] <= high
    assert found["maps"]["attention-change: cosine"]["mean"] > 0
    assert found["verdicts"]
    assert "half the seeds' spread" in first.stdout
    trained = [path.name for path in (tmp_path / "runs" / "checkpoints").iterdir() if "pretrained" in path.name]
    assert len([name for name in trained if not name.startswith(".")]) == 4
    again = study(*call)
    assert again.stdout == first.stdout
    assert "fine-tuning" not in again.stderr


def test_a_study_that_cannot_be_finished_writes_nothing(tiny_bert, tmp_path):
    done = study("--model", tiny_bert, "--glue", tmp_path / "none", "--json", tmp_path / "study.json")
    assert done.returncode == 2
    assert done.stderr.startswith("precision_study: no GLUE folder at")
    assert not (tmp_path / "study.json").exists()
