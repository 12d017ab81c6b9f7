"""The wording of verdicts: what they contradict, and the statistics of a run. `test_expected.py` has a whole run."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from measurements import SETTINGS, made_up, of_id, scored

from bertsecrets.claims.judge import judge
from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.schema import Case, Known
from bertsecrets.claims.verdict import Verdict, against
from bertsecrets.cli.outputs import more_seeds_line
from bertsecrets.report.json import as_file, metrics
from bertsecrets.report.terminal import claim_table
from bertsecrets.report.text import (
    NEXT_STEP,
    SYNTHETIC_NOTE,
    band_text,
    run_lines,
    status,
    verdict_row,
)
from bertsecrets.settings import load_settings
from bertsecrets.types import Measurement, Provenance, Subject

TASKS = ("mrpc", "stsb", "sst2", "rte", "qnli", "mnli")

BLOG = "the text of the authors' blog"


def verdict(name, outcome, p_against=None, p_for=None, *, model="bert-base-uncased", **more):
    made_by = {"software": {}, "device": "cpu"}
    provenance = Provenance(data="here", seconds=1, made_by=made_by)
    case = of_id(name)
    measurement = Measurement(
        case.claim.measure, Subject(model, case.task), 100, {"cosine": np.full((2, 3), 0.5)}, {}, provenance=provenance
    )
    return Verdict(case, outcome, "why", measurements=(measurement,), p_against=p_against, p_for=p_for, **more)


@pytest.fixture
def run():
    """C1 deviates on two tasks, is inconclusive on one, and is reproduced on the others; C2 is degenerate on RTE.

    Only one of the deviations survives false discovery rate control.
    """
    kinds = {"mrpc": ("deviates", 0.001, 1.0), "stsb": ("deviates", 0.04, 1.0), "rte": ("inconclusive", 0.5, 0.3)}
    verdicts = [verdict(f"C1-{name}", *kinds.get(name, ("reproduced", 1.0, 0.001))) for name in TASKS]
    return [*verdicts, verdict("C2-rte", "degenerate")]


# ---------------------------------------------------------------------- statistics of a run


def proposal(verdicts, command, whole, *, in_sequence):
    judged = SimpleNamespace(session=SimpleNamespace(wanted_seeds="auto" if in_sequence else 3))
    return more_seeds_line(judged, verdicts, command, whole)


def test_a_run_ends_with_the_command_that_adds_the_seeds_that_claims_lack(run):
    command = ["bertsecrets", "report", "--model", "my bert"]
    assert proposal(run, command, [], in_sequence=False) == ""  # nothing is open
    known = [replace(each, power="6 seeds would decide this") for each in run if each.outcome == "inconclusive"]
    assert proposal(known, command, [], in_sequence=False) == "undecided: C1-rte (6 seeds would decide this)"
    assert proposal(known * 7, command, [], in_sequence=False) == ""
    lacking = [
        replace(each, open=True) for each in (verdict("E1-rte", "inconclusive"), verdict("E1-mrpc", "inconclusive"))
    ]
    assert proposal([*run, *lacking], command, [], in_sequence=False) == (
        "more seeds may decide 2 claims (undecided for other reasons: 1, see -v): "
        "bertsecrets report --model 'my bert' --claim E1-rte --claim E1-mrpc --seeds 5"
    )
    open_figure = replace(verdict("D1-rte-pretrained", "compatible"), open=True)
    said = proposal([lacking[0], open_figure], [], [], in_sequence=False)
    assert said == "more seeds may decide 2 claims"  # no negative number of others
    assert proposal(lacking[:1], command, [], in_sequence=True).endswith(" --claim E1-rte --budget 24h")
    assert proposal(lacking[:1], [], [], in_sequence=False) == "more seeds may decide 1 claim"
    many = proposal(lacking * 4, command, ["pytest", "-k", "rte"], in_sequence=False)
    assert many == "more seeds may decide 8 claims: pytest -k rte --seeds 5"
    (measurement,) = lacking[0].measurements
    five = tuple(replace(measurement, subject=replace(measurement.subject, seed=seed)) for seed in range(1, 6))
    assert proposal([replace(lacking[0], measurements=five)], command, [], in_sequence=False) == ""


def test_more_seeds_are_not_proposed_for_a_model_that_learned_nothing_from_few_rows(run):
    cause = Grounds.SEED_FAILED(failed=1, seeds=1, problems="seed 1 (has learned nothing)")
    (collapsed,) = (replace(each, open=True, cause=cause) for each in run if each.outcome == "degenerate")
    assert proposal([collapsed], [], [], in_sequence=True) == "more seeds may decide 1 claim"
    (measurement,) = collapsed.measurements
    few = replace(measurement, provenance=replace(measurement.provenance, train_limit=400))
    limited = replace(collapsed, measurements=(few,))
    assert proposal([limited], [], [], in_sequence=True) == ""
    line = "1 claim degenerate: the model learned nothing from 400 training rows, so raise --train-limit"
    assert line in run_lines([*run, limited], 0.95)
    copies = replace(limited, cause=Grounds.COPIES(first="seed 1", second="seed 2"))
    assert line not in run_lines([*run, copies], 0.95)
    assert not any("train-limit" in line for line in run_lines([*run, collapsed], 0.95))


def test_the_proposed_seeds_replace_those_of_the_command(run):
    lacking = [replace(verdict("E1-rte", "inconclusive"), open=True)] * 8
    words = ["pytest", "--seeds", "auto", "--budget=6min", "-k", "rte"]
    for in_sequence, more in ((True, "--budget 24h"), (False, "--seeds 5")):  # a fixed number may be raised
        said = proposal(lacking, ["run"], words, in_sequence=in_sequence)
        assert said.endswith(f" 8 claims: pytest -k rte {more}")


def test_a_run_without_deviations_reports_how_many_would_deviate_by_chance():
    """The error rates of two claims, 5 % each, sum to .1."""
    judged = [verdict(name, "reproduced", 1.0, 0.001) for name in ("C2-rte", "C3-rte")]
    (line,) = run_lines(judged, 0.95)
    assert line == "if every claim held exactly at its limit, up to 0.1 of 2 would deviate by chance"
    assert run_lines(judged[:1], 0.95) == []  # nothing to correct for


def test_synthetic_data_are_reported_last(run):
    (measurement,) = run[0].measurements
    made_up = replace(measurement, provenance=replace(measurement.provenance, made_up_data=True))
    verdicts = [replace(run[0], measurements=(made_up,)), *run[1:]]
    assert run_lines(verdicts, 0.95)[-2:] == [SYNTHETIC_NOTE, NEXT_STEP]
    assert SYNTHETIC_NOTE not in run_lines(run, 0.95)


def test_json_and_metrics_report_the_statistics(run):
    statistics = as_file(run, "m", load_settings(), note="", commits=[]).together
    assert (statistics.surviving, statistics.not_surviving) == (["C1-mrpc"], ["C1-stsb"])
    written = json.loads(json.dumps(metrics(run, 0.95)))
    assert written["together"]["surviving"] == ["C1-mrpc"]
    assert written["over_tasks"]["C1"]["verdict"] == "deviates"


# ---------------------------------------------------------------------- what a result contradicts


def of_figure(observed, **figure):
    """Return what a result contradicts if the band is 78.6 +- 1 points."""
    case = of_id("D1-qqp-pretrained")
    changed = case.figure.model_copy(
        update={"second": "P20, five seeds: 90.92 +- 0.20", "second_value": 90.92, "second_error": 0.09} | figure
    )
    claim = case.claim.model_copy(update={"tasks": {"qqp": changed}})
    return against(Case(claim, "qqp"), observed, (77.6, 79.6), ["bert-base-uncased"], (observed - 0.3, observed + 0.3))


def test_a_second_source_is_compared_too():
    assert of_figure(90.55) == "the paper's figure, but agrees with P20, five seeds: 90.92 +- 0.20"
    assert of_figure(90.5) == "the paper's figure, and P20, five seeds: 90.92 +- 0.20"
    assert of_figure(85.0, second_value=None) == "the paper's figure"


@pytest.mark.parametrize(
    ("name", "observed", "band", "said"),
    [
        ("D5-qnli", -1.0, (0, float("inf")), f"{BLOG}, which the published figure (-1) also contradicts"),
        ("D5-sst2", -1.0, (0, float("inf")), BLOG),
        ("D3-sst2", -1.0, (0, float("inf")), "the paper's text"),
        ("E1-rte", 0.01, (0, float("inf")), "the size of the published effect"),
        ("C3-rte", -0.1, (0, float("inf")), "R20"),
        ("C2-rte", 40, (50, float("inf")), BLOG),
        ("D6-rte", -1.0, (0, float("inf")), "a hypothesis of this suite"),
        ("J2-rte", 9.0, (-0.5, 0.5), "public reading notes on K19"),
        ("J6-rte", 9.0, (-0.5, 0.5), "R20"),
        ("I5-rte", 9.0, (0, 1), "Clark et al. 2019"),
    ],
)
def test_a_deviation_names_the_text_table_or_other_source(name, observed, band, said):
    assert against(of_id(name), observed, band, ["google-bert/bert-base-uncased"]) == said


def test_a_deviation_names_a_model_other_than_the_papers():
    said = against(of_id("E1-rte"), -0.1, (0, float("inf")), ["minilm"])
    assert said == "the paper's text (on minilm instead of the paper's bert-base-uncased)"


def test_the_width_of_a_band_is_explained():
    # 2.776 * 2.77 + .05 = 7.74
    assert band_text(of_id("D1-rte-pretrained"), 0.95) == (
        "about [56.9, 72.3], depending on the spread of the measured seeds: the 95% prediction interval around 64.6, "
        "from a standard deviation of 2.77 (P20, five seeds), plus 0.05 for rounding"
    )
    assert "the same constant answer" in band_text(of_id("D1-mrpc-untrained-f1"), 0.95)
    assert band_text(of_id("B5-all-l7h6"), 0.95) == "[0.865, 0.875]: 0.87 +- 0.005 rounding"
    assert band_text(of_id("G5-qnli"), 0.95).startswith("a prediction interval from the spread of the measured seeds")
    order = (
        "> 0 (the claim is an order, so the whole interval must lie in this range)"  # its level depends on the seeds
    )
    assert band_text(of_id("G1-rte"), 0.95) == order


def test_a_band_with_nearly_all_values_is_not_shown():
    target = [1] * 100 + [0] * 100
    seeds = [scored([1] * right + [0] * (200 - right), target) for right in (10, 100, 190)]  # 55, 100 and 55 points
    seeds = [
        replace(measurement, subject=replace(measurement.subject, initialisation="random", seed=n))
        for n, measurement in enumerate(seeds)
    ]
    verdict = judge(made_up(), [{"scores": measurement} for measurement in seeds], SETTINGS)
    assert (verdict.outcome, verdict.power) == ("inconclusive", "")
    assert verdict.reason.startswith("not decidable: ")
    assert verdict_row(verdict)[4] == "not decidable"


def test_a_claim_that_no_data_can_decide_says_so():
    """Student's t is 2.776 for 4 degrees of freedom, so a standard error of 10 points gives +- 27.8 points."""
    doubtful = made_up(figure={"published": 50.0, "doubt": 10.0, "doubt_source": "two readers"})
    assert band_text(doubtful, 0.95).startswith("not decidable: [22.2, 77.8] covers more than half of all")
    less = made_up(figure={"published": 50.0, "doubt": 8.0, "doubt_source": "two readers"})
    assert "not decidable" not in band_text(less, 0.95)


def test_the_status_of_a_claim_lists_its_known_outcomes():
    claim = of_id("D2-rte").claim
    seen = (
        Known(model="m", task="rte", evidence="seen in ten runs", status="reproduces"),
        Known(model="m", task="mrpc", evidence="seen in ten runs"),
    )
    known = claim.model_copy(update={"known": seen})
    assert status(claim) == ""
    assert status(known) == "reproduced: m on RTE; deviates: m on MRPC"
    assert Case(known, "mrpc").known_deviation("m") is not None
    assert Case(known, "rte").known_deviation("m") is None  # a known reproduction is not a known deviation
    assert "reproduced: m on RTE" in " ".join(claim_table([known]).split())
