"""The summary of a run, its model card, and its metrics. `test_expected.py` has the content of the summary."""

import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from calls import run
from pages import titled
from verdicts import filed, of_every_outcome, save_scores

from bertsecrets.formats import FAILURES, PASSES
from bertsecrets.report.json import metrics
from bertsecrets.report.markdown import SUMMARY_BYTES, model_card, summary
from bertsecrets.report.outcomes import outcome_counts
from bertsecrets.report.text import task_title
from bertsecrets.store.entries import write_json


def test_a_huge_summary_stays_below_githubs_limit():
    each = [replace(verdict, reason="é" * 5000) for verdict in of_every_outcome()]
    verdicts = each * 100 + [each[-1]] * 700
    text = summary(verdicts, filed(verdicts))
    assert len(text.encode()) <= SUMMARY_BYTES < 2**20
    assert text.count("more\n") == 2
    assert text.endswith("</details>\n")


def test_a_model_card_has_the_decided_claims_and_names_the_others():
    text = model_card(of_every_outcome(), filed())
    assert outcome_counts([verdict.status for verdict in of_every_outcome()]) in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    decided = [verdict for verdict in of_every_outcome() if verdict.outcome in (*PASSES, *FAILURES)]
    assert [row.split(" | ")[1] for row in rows] == [task_title(verdict.case.task) for verdict in decided]
    assert "Not decided, or not applicable: D2-mnli, G7-rte, C1-rte." in text
    assert "seed 1, **unofficial data**" in text


def test_a_checkpoint_has_no_seed():
    for text in (
        model_card(of_every_outcome(), filed(), checkpoint=True),
        summary(of_every_outcome(), filed(), checkpoint=True),
    ):
        assert "one checkpoint, **unofficial data**" in text


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_metrics_reach_an_experiment_tracker_as_documented(tracker, tmp_path, monkeypatch):
    logged = MagicMock()
    monkeypatch.setitem(sys.modules, tracker, logged)
    monkeypatch.chdir(tmp_path)
    write_json(Path("metrics.json"), metrics(of_every_outcome(), 0.95))
    names: dict[str, object] = {}
    for title in ("log.py", f"log_{tracker}.py"):
        exec(titled("formats.md", title), names)
    log = logged.log_metrics if tracker == "mlflow" else logged.init.return_value.__enter__.return_value.log
    ((values,), _) = log.call_args
    assert values["D2-rte"] == pytest.approx(30.0)
    assert values["outcomes/degenerate"] == 1
    assert "C1-rte" not in values  # an error has no value


@pytest.mark.usefixtures("quick")
def test_a_report_replaces_the_summary(capsys, tmp_path):
    save_scores(tmp_path / "kept", 0.9)
    (tmp_path / "s.md").write_text("an earlier one")
    run(
        capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path / "kept",
        "--markdown", tmp_path / "s.md", "--model-card", tmp_path / "card.md",
    )  # fmt: skip
    assert (tmp_path / "s.md").read_text().startswith("## K19 claims: 1 reproduced, 0 deviate\n")
    assert "1 reproduced, 0 deviate." in (tmp_path / "card.md").read_text()
