"""Reasons are data: their texts can be reworded without any other effect, and each has its own code."""

import json
from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, as_seeds, judged, made_up, measured, needed, of_id, scored, shares
from verdicts import run_of

from bertsecrets.claims.judge import judge
from bertsecrets.claims.reasons import Grounds
from bertsecrets.report.terminal import Screen, task_grid, verdict_table
from bertsecrets.report.text import count_line, outcome_phrase
from bertsecrets.types import Provenance

ROWS = 1000
CITED = {"seed_std": 1.0, "seed_source": "five seeds"}


def seeds(*right, rows=ROWS, task="rte", classes=(0.5, 0.5), initialisation="random"):
    """Return the scores of seeds that answer `right` of the rows correctly; None is a constant answer."""
    target = np.repeat([1, 0], (round(rows * classes[0]), rows - round(rows * classes[0])))
    scores = []
    for seed, count in enumerate(right, start=1):
        wrong = np.random.default_rng(seed).permutation(rows)[: 0 if count is None else rows - count]
        predicted = np.ones_like(target) if count is None else target.copy()
        predicted[wrong] = 1 - predicted[wrong]
        about = {"initialisation": initialisation, "seed": seed, "constant": count is None}
        scores.append(needed("score", scored(predicted, target, task, **about)))
    return scores


def three_seeds(**heterogeneous):
    """Return three seeds of a model with these percentages of heterogeneous maps by reading."""
    return [{"patterns": shares(seed, **heterogeneous)} for seed in (1, 2, 3)]


def verdicts():
    """Yield verdicts for nearly all reasons."""
    above = made_up(kind="above", value=50.0, figure={})
    zero = {"kind": "above", "against": "untrained", "figure": {}}
    labels, places = np.arange(ROWS) % 2, np.arange(ROWS)
    answers = [np.where(places < right, labels, 1 - labels) for right in (500, 504, 600, 700)]
    half = [scored(each, labels, initialisation="random") for each in answers]
    same, own = made_up(sampling="score"), made_up()
    constant = made_up(sampling="score", figure={"published": 52.7, "rounding": 0.05, "constant_answer": True, **CITED})
    stated = {"size": 1.0, "reason": "for a reason"}
    tolerant = made_up(sampling="score", figure={"published": 62.0}, tolerance=stated)
    rte = {"rows": 277, "classes": (146 / 277, 131 / 277)}
    opposite = {"rows": 277, "classes": (131 / 277, 146 / 277)}
    three = seeds(600, 610, 590)
    collapsed = seeds(None, None, None, initialisation="pretrained")
    for case, by_seed in [
        (above, three),
        (above, seeds(500, 510, 490)),
        (above, seeds(400, 410, 390)),
        (above, seeds(600)),
        (above, seeds(600, 610)),
        (above, seeds(20, 21, 22, rows=25)),
        (above, collapsed),
        (above, collapsed[:1]),
        (above, [needed("score", scores) for scores in as_seeds(*[half[2]] * 3)]),
        (same, seeds(164, 167, 170, **rte)),
        (same, seeds(154, 167, 180, **rte)),
        (same, seeds(900, 905, 895)),
        (made_up(sampling="score", figure={"published": 54.0}), seeds(134, 135, 136, **rte)),
        (own, seeds(100, 500, 900)),
        (made_up(figure={"published": 50.0, "doubt": 20.0, "doubt_source": "two readers"}), seeds(600)),
        (tolerant, seeds(164, 167, 170, **rte)),
        (constant, seeds(None, None, None, **rte)),
        (constant, seeds(150, 146, 140, **rte)),
        (constant, seeds(160, 162, 161, **rte)),
        (constant, seeds(None, *range(220, 229), **rte)),
        (constant, seeds(None, None, None, rows=100)),
        (constant, seeds(None, None, None, **opposite)),
        (constant, seeds(None, None, **rte) + seeds(None, None, None, **opposite)[2:]),
        (of_id("A4-rte-half"), three_seeds(stripes=50)),
        (made_up("score-difference", **zero), [dict.fromkeys(("own", "other"), each["scores"]) for each in three]),
    ]:
        yield judge(case, by_seed, SETTINGS)
    yield judge(same, seeds(2490, 2500, 2510, rows=4000), SETTINGS)
    cosine = {"cosine": np.full((40, 3, 2), 0.99)}
    yield judged(of_id("C2-rte"), measured("attention-change", cosine, cosine))
    yield judge(own, seeds(600), SETTINGS, checkpoint=True)
    for settings, other, one in [(zero, 1, 0), (zero, 0, 0), ({**zero, "figure": {"published": 90.0}}, 3, 2)]:
        yield judged(made_up("score-difference", **settings), half[other], half[one])
    yield judged(made_up("score-difference", existence=True, **zero), half[0], half[2])
    limited = replace(half[1], provenance=Provenance(limit=ROWS))
    for size, other in ((5.0, half[1]), (5.0, limited), (9.5, half[2])):
        effect = {"size": size, "reason": "for a reason"}
        yield judged(
            made_up("score-difference", smallest_effect=effect, **zero),
            other,
            replace(half[0], provenance=other.provenance),
        )
    for other in half[:3]:
        yield judged(made_up("score-difference", **{**zero, "kind": "equal"}), half[0], other)


@pytest.fixture(scope="module")
def shown():
    return list(verdicts())


def seen(shown):
    """Return all that depends on verdicts except the texts of their reasons."""
    notes = [verdict_table([verdict]) for verdict in shown if verdict.outcome == "inconclusive"]
    data = [verdict.as_json() for verdict in shown]
    for each in data:
        del each["reason"]
    return json.dumps([data, notes, count_line(shown), task_grid(shown), run_of(*shown).exit_code()])


def test_rewording_every_reason_changes_nothing_else(shown, monkeypatch):
    for grounds in Grounds:
        monkeypatch.setattr(grounds, "text", f"it is as it is ({grounds.code})")
    reworded = list(verdicts())
    assert seen(reworded) == seen(shown)
    assert all(new.reason != old.reason for new, old in zip(reworded, shown, strict=True))


def test_codes_are_unique_and_nearly_all_are_reworded_above(shown):
    rest = {"refuted", "not-computable", "other-architecture", "other-weights", "other-shape"}
    rest |= {"not-applicable", "not-given"}
    assert {verdict.reason_code for verdict in shown} == {grounds.code for grounds in Grounds} - rest
    assert len({grounds.code for grounds in Grounds}) == len(list(Grounds))


def test_only_deviations_say_how_the_claim_deviates(shown):
    assert {verdict.deviation for verdict in shown} == {None, "opposite", "too small", "differs"}
    for verdict in shown:
        assert (verdict.deviation is not None) == (verdict.outcome == "deviates"), verdict.reason
        assert verdict.data.deviation == verdict.deviation


def test_p_values_are_at_most_the_error_rate_if_and_only_if_the_claim_is_decided(shown):
    rate = 1 - SETTINGS.confidence
    for outcome, p_values in (("deviates", "p_against"), ("reproduced", "p_for")):
        tested = [verdict for verdict in shown if getattr(verdict, p_values) is not None]
        assert {verdict.reason_code for verdict in tested} >= {"at-limit", "includes-limit", "beyond-limit"}
        for verdict in tested:
            assert (getattr(verdict, p_values) <= rate) == (verdict.outcome == outcome), verdict.reason
    for verdict in (verdict for verdict in shown if verdict.reason_code == "at-limit"):
        assert (verdict.p_against, verdict.p_for, verdict.power) == (1.0, 1.0, "")


def test_more_seeds_are_not_suggested_if_they_would_decide_nothing(shown):
    for verdict in shown:
        assert not (verdict.open and verdict.reason_code in ("at-limit", "limited-rows")), verdict.reason


def test_tables_give_a_short_reason_unless_the_claim_is_reproduced(shown):
    for verdict in shown:
        assert bool(verdict.brief) == (verdict.outcome != "reproduced"), verdict.reason
        assert len(verdict.brief.split()) <= 5, verdict.brief
        assert outcome_phrase(verdict) in verdict_table([verdict], Screen(200))


def test_few_seeds_on_the_papers_examples_have_no_interval():
    """A score on the whole validation set has no sampling error, since the published score is from the same rows."""
    whole, limited = (judge(made_up(sampling="score"), seeds(164, rows=rows), SETTINGS) for rows in (277, 200))
    assert whole.interval[0] == whole.interval[1]
    assert (
        whole.remarks[0]
        == "1 seed on the paper's own examples: the interval is a point, since seed variance is unknown"
    )
    assert limited.interval[0] < limited.interval[1]
    assert limited.remarks[0] == "1 seed: the interval accounts only for the sampling of examples"


def test_a_compatible_figure_says_how_large_a_difference_would_not_have_been_noticed():
    """24.2 of 35.0 percent: 10.8 below, with a prediction interval of 17.2 to either side."""
    facts = {"published": 35.0, "difference": -10.8, "low": -28.0, "high": 6.4, "half": 17.2}
    assert str(Grounds.INSIDE(**facts)) == (
        "differs by -10.8 [-28.0, +6.4] from the published 35.0: compatible; "
        "a difference of 17 would not have been noticed"
    )
    verdict = judge(made_up(sampling="score"), seeds(164, 167, 170, rows=277), SETTINGS)  # 60.29 of 60 points
    half = verdict.band[1] - 60.0
    assert verdict.outcome == "compatible"
    assert verdict.cause.facts["half"] == pytest.approx(half)
    assert verdict.cause.facts["low"] == pytest.approx(verdict.observed - 60.0 - half)


def test_an_insignificant_difference_outside_a_stated_tolerance_is_inconclusive():
    scores = seeds(164, 167, 170, rows=277)  # 60.29 points
    stated = {"size": 1.0, "reason": "for a reason"}
    near, far, plain = (
        judge(made_up(sampling="score", figure={"published": published}, tolerance=tolerance), scores, SETTINGS)
        for published, tolerance in ((60.0, stated), (62.0, stated), (62.0, None))
    )
    assert (near.outcome, far.outcome, plain.outcome) == ("compatible", "inconclusive", "compatible")
    assert "the difference does not significantly exceed the tolerance of 1" in far.reason
