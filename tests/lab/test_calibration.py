"""The calibration of the judge: its worlds are what they say, and it notices a judge that is wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest
from calls import run, told

from bertsecrets.claims.estimate import Spread
from bertsecrets.lab.calibration import rates as counted
from bertsecrets.lab.calibration.kinds import kinds
from bertsecrets.lab.calibration.rates import Cell, cells, rates
from bertsecrets.lab.calibration.worlds import World
from bertsecrets.settings import JudgeParams

FEW = JudgeParams(confidence=0.95, resamples=300, seed=2019)
KINDS = sorted(kinds())


def cell(kind, effect="none", *, examples=100, seeds=1, ratio=0.5, known=True):
    return Cell(kind, effect, World(examples, seeds, ratio, float(kinds()[kind].effects[effect]), known))


@pytest.mark.parametrize("name", KINDS)
def test_measurements_of_a_world_approach_its_truth(name):
    """With many examples and seeds, what is measured comes to the truth; a figure's is that on its own rows."""
    kind, rng = kinds()[name], np.random.default_rng(3)
    for effect in kind.effects:
        world = cell(name, effect, examples=1500, seeds=1 if kind.case.claim.seedless else 12).world
        drawn = kind.draw(world, rng)
        if drawn.truth is None:
            continue
        estimands = [kind.read(needed) for needed in drawn.by_seed]
        parts = np.array([estimand.parts for estimand in estimands])
        value = parts.mean(0).max() if estimands[0].extreme == "most" else parts.mean(0).min()
        error = np.sqrt((parts.var(0, ddof=1) if len(parts) > 1 else parts.var(0)).max() / len(parts))
        slack = {"percent": 5, "points": 3}.get(kind.case.unit, 0.05)
        assert abs(value - drawn.truth) <= 4 * error + slack, (name, effect)


@pytest.mark.parametrize("name", KINDS)
def test_a_world_without_an_effect_lies_on_the_limit(name):
    kind = kinds()[name]
    expect = kind.case.claim.expect
    drawn = kind.draw(cell(name).world, np.random.default_rng(4))
    if kind.around:
        assert abs(kind.read(drawn.paper).value - drawn.truth) < 12  # one run, on the same rows
    elif drawn.truth is not None:
        assert drawn.truth == pytest.approx(expect.value, abs=0.02)


def test_the_judge_keeps_within_its_bounds():
    """In short; `bertsecrets lab calibrate` does it at length."""
    assert rates(cell("attention", "none", seeds=1), 40, FEW).wrong == []
    assert rates(cell("attention", "published", known=False), 10, FEW).outcomes == {"inconclusive": 1.0}
    assert {each.world.seeds for each in cells(kinds()["order of frame heads"], [100], [1, 3, 5])} == {1}
    assert rates(cell("score difference", "published", seeds=5), 30, FEW).wrong == []


def test_a_judge_that_ignores_seed_variance_is_out_of_bounds(monkeypatch):
    """The rule of old: the spread over seeds counts for nothing."""
    monkeypatch.setattr(counted, "spread_beforehand", lambda *_: Spread(1e-9, 8, "nobody"))
    found = rates(cell("attention"), 40, FEW)
    assert found.false_deviates > 0.2
    assert found.coverage < 0.7
    assert [text.split("% ")[1] for text in found.wrong] == ["deviates", "reproduced", "covered"]


@pytest.mark.parametrize(
    ("kind", "effect", "said", "wrong"),
    [
        ("attention", "none", "reproduced", "100.0% reproduced"),
        ("attention", "published", "deviates", "100.0% deviates"),
        ("score figure", "none", "deviates", "100.0% deviates"),
        ("score figure", "nothing", "reproduced", "100.0% reproduced"),
        ("score difference", "published", "inconclusive", "0% recognised"),
    ],
)
def test_a_judge_that_always_says_the_same_is_out_of_bounds(monkeypatch, kind, effect, said, wrong):
    judge = counted.judge
    monkeypatch.setattr(counted, "judge", lambda *given, **more: replace(judge(*given, **more), outcome=said))
    assert wrong in rates(cell(kind, effect, seeds=5), 12, FEW).wrong


def test_a_decision_without_enough_data_is_out_of_bounds(monkeypatch):
    judge = counted.judge
    monkeypatch.setattr(counted, "judge", lambda *given, **more: replace(judge(*given, **more), outcome="reproduced"))
    assert "100.0% reproduced" in rates(cell("attention", "published", known=False), 5, FEW).wrong
    assert "100.0% reproduced" in rates(cell("attention", "published", examples=20), 5, FEW).wrong


# ---------------------------------------------------------------------- the command

SHORT = ("--worlds", 6, "--examples", 100, "--spread", 0.5)


def test_the_command_prints_a_table_and_every_cell(capsys, tmp_path):
    call = ("lab", "calibrate", "--kind", "attention", "--seeds", 1, 5, *SHORT)
    table = run(capsys, *call, "--markdown", tmp_path / "t.md")
    rows = [line for line in table.splitlines() if line.startswith("attention")]
    assert [row.split()[:3] for row in rows] == [["attention", "C3-rte", "1"], ["attention", "C3-rte", "5"]]
    written = (tmp_path / "t.md").read_text()
    assert written.splitlines()[1].startswith("| --- |")
    assert "In percent of worlds" in written
    data = json.loads(run(capsys, "lab", "calibrate", "--kind", "attention", "--seeds", 1, *SHORT, "--json"))
    assert [(one["kind"], one["effect"], one["world"]["examples"]) for one in data] == [
        ("attention", "none", 100),
        ("attention", "published", 100),
    ]
    assert data[0]["coverage"] is not None


def test_the_command_fails_if_a_rate_is_out_of_bounds(capsys, monkeypatch):
    monkeypatch.setattr(counted, "spread_beforehand", lambda *_: Spread(1e-9, 8, "nobody"))
    out = run(capsys, "lab", "calibrate", "--kind", "attention", "--seeds", 1, "--worlds", 20, *SHORT[2:], code=1)
    assert "attention (100 examples, 1 seeds, spread 0.5, effect none): " in out


@pytest.mark.slow
def test_several_processes_count_the_same(capsys):
    call = ("lab", "calibrate", "--kind", "attention", "--seeds", 1, *SHORT, "--json")
    assert run(capsys, *call, "--jobs", 2) == run(capsys, *call)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--kind", "attenton"], "unknown kind of claim 'attenton': did you mean attention"),
        (["--worlds", 0], "--worlds 0 is out of range: give at least 1"),
        (["--seeds", 0], "--seeds 0 is out of range: give at least 1"),
        (["--examples", 1], "--examples 1 is out of range: give at least 2"),
        (["--spread", 0.3], "--spread 0.3 is not a simulated spread: give 0, 0.5 or 1"),
    ],
)
def test_numbers_out_of_range_are_refused(capsys, options, line):
    assert line in told(capsys, "lab", "calibrate", *options)
