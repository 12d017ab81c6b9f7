"""Scores in the hub's format: only full, official scores of fine-tuned models; others are left out with a reason."""

from dataclasses import replace

import pytest
import yaml
from calls import run
from huggingface_hub import parse_eval_result_entries
from measurements import of_id, scored
from verdicts import filed

from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.eval_results import eval_results
from bertsecrets.store.measurements import keep
from bertsecrets.texts.glue import GLUE_HUB, GLUE_REVISION
from bertsecrets.types import Measurement, Provenance, Subject


def score(name="D1-rte-pretrained", observed=66.4321, examples=277, outcome="reproduced", **provenance) -> Verdict:
    """Return a verdict on a score of table 1, from two seeds."""
    case = of_id(name)
    measured = tuple(
        Measurement(
            "scores", Subject("m", case.task, "pretrained", seed), examples, {}, provenance=Provenance(**provenance)
        )
        for seed in (1, 2)
    )
    return Verdict(case, outcome, "why", observed=observed, measurements=measured)


def written(*verdicts: Verdict):
    return eval_results(verdicts, filed(list(verdicts)).model_copy(update={"made": "2026-01-02T03:04:05Z"}))


@pytest.fixture(autouse=True)
def _no_makers(monkeypatch):
    """Disable remarks, since these measurements do not record what made them."""
    monkeypatch.setattr(Verdict, "remarks", property(lambda self: []))


def test_a_score_is_written_in_the_hubs_format():
    files, left_out = written(score(), score("D1-mnli-pretrained", 84.0, 9815, data=f"{GLUE_HUB}@abc mnli"))
    assert left_out == []
    assert set(files) == {"glue-rte.yaml", "glue-mnli.yaml"}
    (entry,) = parse_eval_result_entries(yaml.safe_load(files["glue-rte.yaml"]))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("nyu-mll/glue", "rte", 66.43)
    assert (entry.date, entry.dataset_revision, entry.source_url) == ("2026-01-02T03:04:05Z", None, None)
    assert entry.notes.startswith("accuracy in percent on validation; fine-tuned on RTE, seeds 1, 2; bertsecrets ")
    assert yaml.safe_load(files["glue-mnli.yaml"])[0]["dataset"]["revision"] == GLUE_REVISION


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (score(limit=48, train_limit=96), "it used only part of the rows (limit 48, train_limit 96)"),
        (score(official_data=False), "the data are not GLUE's own"),
        (score(examples=276), "it was not measured on the whole validation set"),
        (score(outcome="degenerate"), "degenerate: why"),
        (score(observed=None, outcome=None), "error: why"),
    ],
)
def test_a_score_that_is_not_comparable_is_left_out(verdict, why):
    assert written(verdict) == ({}, [f"no evaluation result of D1-rte-pretrained: {why}"])


@pytest.mark.parametrize(
    "name", ["D1-rte-random", "D1-rte-untrained", "D1-rte-frozen", "D2-rte", "D1-mrpc-pretrained-f1"]
)
def test_only_accuracies_of_fine_tuned_models_are_written(name):
    files, (line,) = written(score(name))
    assert (files, "judge claim D1-pretrained" in line) == ({}, True)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("rows", "said"), [(277, "evaluation result: "), (90, "it was not measured on the whole validation set")]
)
def test_a_report_writes_scores_or_the_reason(capsys, tmp_path, rows, said):
    right = [i % 3 > 0 for i in range(rows)]
    measurement = replace(scored(right, [1] * rows), subject=Subject("m", "rte"))
    keep(replace(measurement, values={"accuracy": sum(right) / rows, "constant": False}), tmp_path / "kept")
    call = ("report", "--model", "m", "--claim", "D1-rte-pretrained", "--measurements", tmp_path / "kept")
    assert said in run(capsys, *call, "--eval-results", tmp_path / "to")
    assert (tmp_path / "to" / "glue-rte.yaml").exists() == (rows == 277)
