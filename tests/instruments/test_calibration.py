"""The simulator of `lab calibrate`: its worlds have the specified properties, and it detects a faulty judge."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from calls import run, told

from bertsecrets.claims.judge import judge
from bertsecrets.claims.loading import cases, find_case
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.requirements import measure_case, reads_model
from bertsecrets.errors import NotApplicableError
from bertsecrets.settings import JudgeParams
from instruments.calibration import cells as counted
from instruments.calibration.cells import Cell, count, find_setting, least, stored_rates, true_value
from instruments.calibration.rates_table import wrong
from instruments.calibration.worlds import MODEL, Setting, SimulatedModel, find_world

FEW = JudgeParams(confidence=0.95, resamples=300, seed=2019)
SIMULATED = [
    find_case(str(case))
    for case in cases()
    if case.claim.family in "ABCDEFG" and not case.claim.on_request and reads_model(case)
]
PUBLISHED = Setting()
READ_OFF = (
    "A2", "A3", "A4-half", "A4-columns", "B1", "B2-l7h6", "B5-l1h2", "C1p", "C2p", "D1-untrained", "D1-random",
    "D1-random-f1", "D1-pretrained", "D1-pretrained-f1", "D2", "D2-mean", "D2-mean-f1", "D3", "D6", "E1", "E2", "G4",
    "G6",
)  # fmt: skip
TOLERANCE = {"points": 0.3, "percent": 0.6, "attention": 0.06, "depth": 0.001, "cosine": 0.001, "r": 0.01}


def cell(case, world="as-published", worlds=20):
    return Cell(case, world, worlds, 300)


@pytest.mark.parametrize("claim", READ_OFF)
def test_a_model_as_published_has_the_published_figures(claim):
    """Only claims whose figure is the claim's own quantity; G1's figure was selected and judged on the same rows."""
    of_claim = [case for case in SIMULATED if case.claim.name == claim and case.figure.published is not None]
    assert of_claim
    for case in of_claim:
        value = true_value(case, PUBLISHED)
        assert value == pytest.approx(case.figure.published, abs=TOLERANCE.get(case.unit, 0.1)), str(case)


@pytest.mark.parametrize(
    "name", ["C1-rte", "C3-rte", "D3-rte", "E1-mrpc", "A4-rte-half", "G4-rte", "B1-all", "F2-mrpc"]
)
def test_in_a_null_world_the_truth_lies_on_the_threshold(name):
    case = find_case(name)
    off = true_value(case, find_setting(case, "null")) - case.claim.expect.value
    off_least = true_value(case, find_setting(case, "least")) - least(case)
    effect = true_value(case, PUBLISHED) - case.claim.expect.value
    assert max(abs(off), abs(off_least)) <= 0.02 * abs(effect)


@pytest.mark.parametrize("name", ["C1-rte", "D3-rte", "E1-rte", "G4-rte", "A3-rte"])
def test_the_mean_of_many_seeds_is_the_truth(name):
    case = find_case(name)
    model = SimulatedModel(find_world("as-published"), PUBLISHED, 3, 0)
    by_seed = measure_case(model, case, MODEL, range(1, 13))
    verdict = judge(case, by_seed, FEW)
    low, high = verdict.interval
    slack = 0.5 * (high - low)
    assert low - slack <= true_value(case, PUBLISHED) <= high + slack


def test_all_models_of_a_world_answer_the_same_rows():
    model = SimulatedModel(find_world("as-published"), PUBLISHED, 1, 0)
    (one, two) = measure_case(model, find_case("D3-rte"), MODEL, [1, 2])
    assert np.array_equal(one["own"].sample("target"), two["own"].sample("target"))
    answers = [needed["own"].sample("predicted") for needed in (one, two)]
    assert 0.01 < (answers[0] != answers[1]).mean() < 0.2


@pytest.mark.parametrize(("world", "share"), [("collapsed-30", 0.3), ("nearly-collapsed", 1.0), ("as-published", 0.0)])
def test_collapsed_models_give_the_majority_answer(world, share):
    case, constant = find_case("D1-rte-pretrained"), []
    for place in range(150):
        model = SimulatedModel(find_world(world), PUBLISHED, 1, place)
        answers = measure_case(model, case, MODEL, [1])[0]["scores"].sample("predicted")
        constant.append((answers == 0).mean() >= 0.9)
    assert abs(np.mean(constant) - share) < 0.1


def test_worlds_are_the_same_for_the_same_seed():
    assert count(cell("C1-rte", "null", 3), 0.95) == count(cell("C1-rte", "null", 3), 0.95)
    assert count(cell("D3-rte", "null", 8), 0.95) != count(replace(cell("D3-rte", "null", 8), seed=2), 0.95)


@pytest.mark.parametrize("name", ["C1-rte", "D1-rte-pretrained", "G1-rte", "A4-rte-half"])
def test_skipping_details_changes_no_outcome(name):
    case = find_case(name)
    by_seed = measure_case(SimulatedModel(find_world("as-published"), PUBLISHED, 1, 0), case, MODEL, [1, 2, 3])
    whole = judge(case, by_seed, FEW)
    short = judge(case, by_seed, FEW, details=False)
    assert (short.outcome, short.interval, short.band) == (whole.outcome, whole.interval, whole.band)


# ---------------------------------------------------------------------- detecting a faulty judge


def test_a_clear_effect_is_reproduced_and_none_is_not():
    published, none = count(cell("C3-rte"), 0.95), count(cell("C3-rte", "null", 60), 0.95)
    assert published.share("reproduced", "5") == 1
    assert none.share("reproduced", "5") < 0.2
    assert published.holds
    assert [*wrong(published), *wrong(none)] == []


def test_figure_2_does_not_deviate_because_the_classifier_is_new_to_the_model():
    """One more encoder may err by so much that the band includes most shares."""
    claim = next(case.claim for case in SIMULATED if case.claim.name == "A2")
    rates = [count(cell(str(case), worlds=1), 0.95) for case in claim.cases]
    assert sum(of_task.share("deviates") for of_task in rates) == 0
    for case in claim.cases:  # readers' uncertainty about the figure is only part of the band
        (low, high), doubt = judged_band(case), 2.5706 * case.figure.doubt
        assert high - low > 2.2 * doubt


def judged_band(case):
    model = SimulatedModel(find_world("as-published"), PUBLISHED, 1, 0)
    return judge(case, measure_case(model, case, MODEL, range(1, 6)), FEW).band


def test_every_measure_of_the_claims_is_simulated():
    """For each claim, one case's quantity on a simulated model is finite."""
    for claim, case in {case.claim.name: case for case in SIMULATED if case.task in ("rte", "qnli", "all")}.items():
        with suppress(NotApplicableError):  # no data can decide the claim
            needed = measure_case(SimulatedModel(find_world("as-published"), PUBLISHED, 1, 0), case, MODEL, [1])[0]
            assert np.isfinite(QUANTITIES[case.claim.quantity].read(needed, **case.claim.arguments).value), claim


@pytest.mark.parametrize(
    ("case", "world", "said", "line"),
    [
        ("C3-rte", "null", "reproduced", "5: 100.0% reproduced"),
        ("C3-rte", "least", "deviates", "5: 100.0% deviates"),
        ("A4-rte-half", "null", "deviates", "5: 100.0% deviates"),
        ("C3-rte", "as-published", "deviates", "5: 100.0% deviates"),
        ("D1-rte-pretrained", "one-more-run", "deviates", "5: 100.0% deviates"),
        ("D1-rte-pretrained", "learned-nothing", "compatible", "5: 100.0% compatible"),
    ],
)
def test_a_judge_that_always_says_the_same_is_out_of_bounds(monkeypatch, case, world, said, line):
    monkeypatch.setattr(counted, "judge", lambda *given, **more: replace(judge(*given, **more), outcome=said))
    assert line in wrong(count(cell(case, world, 12), 0.95))


# ---------------------------------------------------------------------- the command


def test_the_command_prints_a_table_and_writes_data_that_explain_reads(capsys, tmp_path, monkeypatch):
    data = tmp_path / "as-published.json"
    call = ("instruments", "calibrate", "--as-published", "--claim", "C1-rte", "--worlds", 6, "--resamples", 200)
    out = run(capsys, *call, "--data", data, "--markdown", tmp_path / "t.md")
    row = next(line.split() for line in out.splitlines() if line.startswith("C1-rte"))
    assert row[:4] == ["C1-rte", "as-published", "-0.251", "R"]
    assert "Monte Carlo standard error" in (tmp_path / "t.md").read_text()
    of_cases = json.loads(data.read_text())["cases"]
    assert of_cases["C1-rte"]["outcomes"]["5"] == {"reproduced": 1.0}
    assert of_cases["C1-rte"]["examples"] == 277
    low, high = of_cases["C1-rte"]["examples_interval"]
    assert abs((low + high) / 2 + 0.251) < 0.03
    assert 0 < high - low < 0.1
    more = ("--as-published", "--claim", "B1", "--worlds", 1, "--resamples", 200, "--data", data)
    run(capsys, "instruments", "calibrate", *more)
    later = json.loads(data.read_text())["cases"]
    assert later.items() > of_cases.items()  # existing cases are kept
    assert later["B1-all"]["code"] != later["C1-rte"]["code"]  # each case has the code digest of its own simulation
    from bertsecrets.claims import prospects

    monkeypatch.setattr(prospects, "claims_folder", lambda: tmp_path)
    prospects.prospects.cache_clear()
    shown = run(capsys, "explain", "C1-rte")
    prospects.prospects.cache_clear()
    assert "if the model is as published, this is reproduced in 100 % of runs (auto, " in shown


@pytest.mark.parametrize(
    ("option", "name", "line"),
    [
        ("--data", "damaged.json", "assumptions: Field required: delete it"),
        ("--data", "damaged.json/new", "is a file: choose another location"),
        ("--markdown", "damaged.json/new", "is a file: choose another location"),
        ("--cells", "damaged.json/new", "is a file: choose another location"),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_anything_is_simulated(
    capsys, tmp_path, monkeypatch, option, name, line
):
    (tmp_path / "damaged.json").write_text("{}")
    monkeypatch.setattr(counted, "count", None)
    call = ("instruments", "calibrate", "--as-published", "--claim", "C3-rte")
    assert line in told(capsys, *call, option, tmp_path / name)


def test_a_killed_run_goes_on_from_its_finished_cells(capsys, tmp_path, monkeypatch):
    file = tmp_path / "new" / "cells.jsonl"
    call = ("instruments", "calibrate", "--world", "null", "--claim", "C3-rte", "--worlds", 3, "--cells", file)
    first = run(capsys, *call)
    assert [rates.cell.case for rates in stored_rates(file).values()] == ["C3-rte"]
    with file.open("a") as lines:
        lines.write('{"code": "unfinished')
    monkeypatch.setattr(counted, "count", None)  # fails if a cell is simulated again
    assert run(capsys, *call) == first


@pytest.mark.slow
def test_several_processes_count_the_same(capsys):
    call = ("instruments", "calibrate", "--world", "null", "--claim", "C3-rte", "--claim", "D3-rte", "--worlds", 4)
    assert run(capsys, *call, "--jobs", 2) == run(capsys, *call)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--world", "nul"], "unknown world 'nul': did you mean null"),
        (["--world", "null+spred-3"], "unknown world 'spred-3': did you mean spread-3"),
        ([], "no world to simulate: give --as-published"),
        (["--as-published", "--worlds", 0], "--worlds 0 is out of range: give at least 1"),
        (["--as-published", "--resamples", 5], "--resamples 5 is out of range: give at least 100"),
        (["--as-published", "--claim", "A1"], "no claim about a model matches"),
    ],
)
def test_impossible_requests_are_refused(capsys, options, line):
    assert line in told(capsys, "instruments", "calibrate", *options)
