"""The precision study trains twice per seed, stores all results, and writes its file after every task."""

import json

import numpy as np
import pytest
from pages import program
from scipy import stats

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick")]


@pytest.fixture
def study(capsys):
    module = program("benchmarks/precision_study.py")
    return lambda *words: (module.main([*map(str, words)]), *capsys.readouterr())


@pytest.mark.filterwarnings("ignore::bertsecrets.devices.SlowPrecisionWarning")
def test_a_study_compares_both_precisions_by_seed_and_reuses_the_store(study, tiny_bert, tiny_glue, tmp_path):
    call = ["--model", tiny_bert, "--glue", tiny_glue, "--store", tmp_path / "runs", "--allow-unofficial-data"]
    call += ["--offline", "--task", "rte", "--seeds", 2, "--json", tmp_path / "study.json"]
    code, first, errors = study(*call)
    assert code == 0, errors
    assert first.endswith(": not complete without mrpc, stsb, sst2\n")
    result = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    [rte] = result["tasks"]
    assert rte["seeds"] == [1, 2]
    differences = np.subtract(rte["scores"]["bfloat16"], rte["scores"]["float32"])
    assert result["difference"] == pytest.approx(differences.mean())
    half = stats.t.ppf(0.95, 1) * stats.sem(differences)
    assert result["interval"] == pytest.approx([differences.mean() - half, differences.mean() + half])
    assert all(len(outcomes) == 3 for outcomes in rte["verdicts"].values())
    assert result["verdicts"] == len(rte["verdicts"]) > 0
    trained = [path.name for path in (tmp_path / "runs" / "checkpoints").iterdir() if "pretrained" in path.name]
    assert len([name for name in trained if not name.startswith(".")]) == 4
    (tmp_path / "study.json").rename(tmp_path / "earlier.json")
    code, again, errors = study(*call)
    assert (code, again) == (0, first)
    assert "fine-tuning" not in errors
    call[call.index(tmp_path / "runs")] = tmp_path / "another store"
    call[-1] = tmp_path / "earlier.json"
    code, continued, errors = study(*call)
    assert code == 0, errors
    assert continued in first
    assert not (tmp_path / "another store" / "checkpoints").exists()
    call[call.index("--seeds") + 1] = 3
    code, _, errors = study(*call)
    assert (code, errors.count("\n")) == (2, 1)
    assert "differs in seeds" in errors


@pytest.mark.parametrize("content", ["[1]", "not JSON", '{"model": "mpnet", "tasks": []}'])
def test_another_file_is_not_overwritten(study, tiny_glue, tmp_path, content):
    file = tmp_path / "notes.json"
    file.write_text(content)
    code, _, errors = study("--glue", tiny_glue, "--allow-unofficial-data", "--offline", "--json", file)
    assert (code, errors.count("\n")) == (2, 1)
    assert str(file) in errors
    assert file.read_text() == content


def test_a_study_that_cannot_be_finished_writes_nothing(study, tiny_bert, tmp_path):
    code, _, errors = study("--model", tiny_bert, "--glue", tmp_path / "none", "--json", tmp_path / "study.json")
    assert code == 2
    assert errors.startswith("precision_study: no GLUE folder at")
    assert not (tmp_path / "study.json").exists()
