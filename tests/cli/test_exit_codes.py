"""Exit codes: 0 if nothing deviates, 1 if a claim deviates, 2 for bad input, 70 for a bug.

An error in one claim does not affect the others.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bad_input import outcome
from calls import run, told
from tiny import SIZES, WIDE, vocabulary
from transformers import AutoModelForSequenceClassification, BertConfig, SqueezeBertConfig
from verdicts import save_scores

from bertsecrets.cli.main import main
from bertsecrets.errors import NotApplicableError, NotGivenError, RunError, UserError
from bertsecrets.measures.attention_change import AttentionChange
from bertsecrets.measures.scores import Scores
from bertsecrets.report.outcomes import outcome_label

pytestmark = pytest.mark.usefixtures("quick")
WORDS = {"vocab_size": len(vocabulary()), "num_labels": 2, "pad_token_id": 0}
CLAIMS = ("--task", "rte", "--claim", "C2", "--claim", "D2-rte", "--claim", "E1-rte")


def raising(error):
    def run(self, run):
        raise error

    return run


@pytest.fixture
def report(capsys, shared, tmp_path):
    """Return a function that runs `report`, by default on three claims and with a page and metrics.

    It returns the exit code, the errors, and the verdicts by id.
    """

    def call(*claims: str):
        more = () if claims else ("--html", tmp_path / "r.html", "--metrics", tmp_path / "m.json")
        files = ("--json", tmp_path / "v.json", *more)
        code, _, errors = outcome([str(word) for word in ("report", *(claims or CLAIMS), *shared, *files)])
        file = tmp_path / "v.json"
        written = json.loads(file.read_text())["verdicts"] if file.exists() else []
        return code, errors, {verdict["id"]: verdict for verdict in written}

    return call


@pytest.fixture(autouse=True)
def _own_measurements(runs):
    """Delete measurements stored by earlier tests, which could hide failures. Checkpoints are kept."""
    shutil.rmtree(runs / "measurements", ignore_errors=True)


def test_a_claim_that_cannot_be_measured_does_not_affect_others(report, monkeypatch, tmp_path):
    monkeypatch.setattr(AttentionChange, "run", raising(UserError("the texts are corrupt")))
    code, errors, verdicts = report()
    assert code == 2
    assert errors.splitlines()[-1] == (
        "bertsecrets: 1 of 3 claims could not be measured (C2-rte): the texts are corrupt"
    )
    assert (verdicts["C2-rte"]["verdict"], verdicts["C2-rte"]["error"]) == (None, "the texts are corrupt")
    assert {verdicts[name]["verdict"] for name in ("D2-rte", "E1-rte")}.isdisjoint({None, "not applicable"})
    assert "the texts are corrupt" in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "m.json").read_text())["outcomes"]["error"] == 1


def raising_of_untrained(error):
    """Return a method `run` of `Scores` that raises an error for untrained models, which D2 needs but not C2."""
    measure = Scores.run

    def method(self, run):
        if run.subject.initialisation == "untrained":
            raise error
        return measure(self, run)

    return method


INTERRUPTED = "interrupted; finished results are saved in .*/runs: run the same command to continue"


@pytest.mark.parametrize(
    ("error", "code", "line", "why"),
    [
        (RunError("no space left"), 2, "no space left", "no space left"),
        (KeyboardInterrupt(), 130, INTERRUPTED, "it was interrupted"),
    ],
    ids=["error of every claim", "interrupt"],
)
def test_what_ends_a_run_keeps_the_verdicts_so_far(report, monkeypatch, tmp_path, error, code, line, why):
    monkeypatch.setattr(Scores, "run", raising_of_untrained(error))
    ended, errors, verdicts = report()
    assert ended == code
    assert re.fullmatch(f"bertsecrets: {line}", errors.splitlines()[-1])
    assert set(verdicts) == {"C2-rte"}
    note = f"1 of 3 claims were judged before the run ended ({why})"
    assert note in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "m.json").read_text())["incomplete"] == note


def test_stored_claims_are_judged_before_anything_is_measured(report, monkeypatch):
    report("--task", "rte", "--claim", "D2-rte")
    with monkeypatch.context() as patch:
        patch.setattr(AttentionChange, "run", raising(KeyboardInterrupt()))
        code, errors, verdicts = report("--task", "rte", "--claim", "C2", "--claim", "D2-rte")
    assert code == 130
    assert list(verdicts) == ["D2-rte"]
    assert f"bertsecrets: 1 of 2 claims: D2-rte: {outcome_label(verdicts['D2-rte']['verdict'])}" in errors
    assert list(report("--task", "rte", "--claim", "C2", "--claim", "D2-rte")[2]) == ["C2-rte", "D2-rte"]


def test_a_bug_in_one_measure_is_reported_last_with_exit_code_70(report, monkeypatch):
    monkeypatch.setattr(AttentionChange, "run", raising(TypeError("unexpected\nmore")))
    code, errors, verdicts = report()
    assert code == 70
    assert verdicts["C2-rte"]["verdict"] is None
    assert verdicts["C2-rte"]["error"].startswith("a bug in bertsecrets or a damaged file (TypeError: unexpected")
    assert set(verdicts) == {"C2-rte", "D2-rte", "E1-rte"}
    line = errors.splitlines()[-1]
    assert line.startswith("bertsecrets: this is a bug in bertsecrets or a damaged file (TypeError: unexpected")
    assert "please report it" in line
    assert "Traceback (most recent call last)" in errors


def test_running_out_of_memory_is_one_line(capsys, shared, monkeypatch):
    monkeypatch.setattr(Scores, "run", raising(MemoryError()))
    line = told(capsys, "measure", "scores", "--task", "rte", "--init", "untrained", *shared)
    assert line.startswith("bertsecrets: not enough memory (MemoryError): close other programs")


@pytest.mark.parametrize(
    ("right", "code", "said"), [(0.9, 0, "1 reproduced"), (0.35, 1, "1 deviates"), (0.1, 1, "1 degenerate")]
)
def test_a_claim_that_does_not_hold_gives_exit_code_1(capsys, tmp_path, right, code, said):
    save_scores(tmp_path, right)
    assert said in run(capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path, code=code)


def test_undecided_claims_fail_only_with_strict(capsys, tmp_path):
    save_scores(tmp_path, 0.9, rows=24)
    call = ("report", "--model", "m", "--claim", "D2", "--measurements", tmp_path)
    assert "1 inconclusive" in run(capsys, *call)
    assert "not decided: D2-rte" in run(capsys, *call, "--strict", code=1)
    assert "not decided: D2-rte" in run(capsys, *call, "--strict-verdicts", code=1)  # the option's name in pytest
    save_scores(tmp_path, 0.9)
    assert "not decided" not in run(capsys, *call, "--strict")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no scores today"), 2, "bertsecrets: 1 of 3 measurements failed (scores)"),
        (NotGivenError("needs a second model"), 2, "bertsecrets: 1 of 3 measurements failed (scores)"),
        (NotApplicableError("no answers"), 0, "scores is not applicable: no answers"),
    ],
)
def test_measure_all_continues_after_a_failure(shared, monkeypatch, tmp_path, error, code, said):
    monkeypatch.setattr(Scores, "run", raising(error))
    call = ["measure", "all", "--task", "rte", "--init", "untrained", *shared, "--save", tmp_path / "kept"]
    ended, out, errors = outcome([str(word) for word in call])
    assert (ended, said in out + errors) == (code, True)
    saved = {path.name.split("-own")[0] for path in (tmp_path / "kept").iterdir()}
    assert any(name.startswith("special-tokens") for name in saved)
    assert not any(name.startswith("scores") for name in saved)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_the_exit_code_is_right_even_if_standard_error_is_full():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "bertsecrets", "explain", "Z9"], stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("start", "line"),
    [
        (
            "mkdir gone && cd gone && rmdir ../gone && exec {}",
            "the working directory no longer exists: change to",
        ),
        ("exec {} -OO", "Python runs without docstrings, which transformers needs: leave out -OO"),
    ],
)
def test_a_process_in_which_the_libraries_fail_is_refused(tmp_path, start, line):
    command = f"{start.format(sys.executable)} -m bertsecrets doctor"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"bertsecrets: {line}")


@pytest.mark.parametrize(
    ("config", "claims", "reason"),
    [
        (BertConfig(**WORDS, **SIZES, max_position_embeddings=160), {"C1p"}, "cannot be padded to 200 tokens"),
        (SqueezeBertConfig(**WORDS, **SIZES, **WIDE, embedding_size=32), {"C1p", "E1", "G1"}, "SqueezeBert"),
    ],
    ids=["few positions", "no heads to see or disable"],
)
def test_claims_that_do_not_apply_to_a_model_do_not_affect_others(
    capsys, shared, tmp_path, tiny_bert, config, claims, reason
):
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert, folder, ignore=shutil.ignore_patterns("config.json", "*.safetensors"))
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    chosen = [word for name in ("C1p", "D2-rte", "E1-rte", "G1-rte", "D1-rte-pretrained") for word in ("--claim", name)]
    more = ("--model", folder, "--grid-limit", 4, "--json", tmp_path / "v.json")
    assert main([str(word) for word in ("report", "--task", "rte", *chosen, *shared[2:], *more)]) in (0, 1)
    verdicts = {verdict["claim"]: verdict for verdict in json.loads((tmp_path / "v.json").read_text())["verdicts"]}
    assert set(verdicts) == {"C1p", "D1", "D2", "E1", "G1"}
    assert {name for name, verdict in verdicts.items() if verdict["verdict"] == "not applicable"} == claims
    assert all(reason in verdicts[name]["reason"] for name in claims)
    assert not [verdict for verdict in verdicts.values() if verdict["verdict"] is None]
