"""Other expectations of claims: equalities, orders without a comparable size, and figures that are too uncertain."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from measurements import (
    SETTINGS,
    as_seeds,
    correlated,
    estimand,
    judged,
    judged_seeds,
    made_up,
    measured,
    scored,
)

from bertsecrets.claims.band import smallest
from bertsecrets.claims.estimate import estimate
from bertsecrets.claims.expectations import Order
from bertsecrets.claims.loading import cases, find_case, load_claims
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.explanation import claim_lines
from bertsecrets.report.text import band_text
from bertsecrets.texts.tasks import TASKS

HALF = (-0.5, 0.5)


def test_an_equality_has_the_smallest_effect_of_interest_around_it():
    case = made_up("score-difference", kind="equal", against="untrained", figure={})
    assert case.band(0.95) == (-smallest("points")[0], smallest("points")[0]) == HALF
    assert "an equality" in band_text(case, 0.95)


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((0.0, 0.0), "reproduced"),  # no prediction changes
        ((-0.4, 0.4), "reproduced"),
        ((0.1, 0.4), "reproduced"),  # significantly different from 0, but negligible
        ((-0.4, 0.6), "inconclusive"),
        ((-3.0, 3.0), "inconclusive"),
        ((0.6, 0.9), "deviates"),
        ((-0.9, -0.51), "deviates"),
    ],
)
def test_an_equality_holds_where_the_whole_interval_is_of_no_interest(interval, outcome):
    case = made_up("score-difference", kind="equal", figure={})
    decision, cause = case.claim.expect.decide(SimpleNamespace(case=case, interval=interval, level=0.9))
    assert decision == outcome
    assert "half a point" in str(cause)


@pytest.mark.parametrize("name", ["score-difference", "cased-loss", "score"])
@pytest.mark.parametrize("rows", [60, 800])
def test_equal_answers_leave_open_what_unlike_rows_could_change(name, rows):
    """With 0 of n changed answers, the exact 95 % limit for one end is 1 - .025 ** (1 / n): 6.0 points for 60 rows."""
    scores = scored([1] * rows, [1] * rows, lower_cases=True)
    given = [scores] if name == "score" else [scores, scores]
    observed = estimate([estimand(name, *given)], SETTINGS, seedless=True, of_row=100)
    (low, high), most = observed.interval(0.95), 100 * (1 - 0.025 ** (1 / rows))
    assert (low, high) == pytest.approx((observed.value - most, observed.value + most))
    assert observed.p_above(observed.value - 0.99 * most, 0.95) > 0.025
    assert observed.p_above(observed.value - 1.01 * most, 0.95) < 0.025
    assert observed.sampling_error == pytest.approx(most / 1.96, rel=1e-3)


@pytest.mark.parametrize(("rows", "outcome"), [(60, "inconclusive"), (800, "reproduced")])
def test_every_equality_in_points_needs_enough_rows(rows, outcome):
    """Whatever the quantity: here equal models, and pruning that changes no answer."""
    answers = np.tile([0, 1], rows // 2)
    equal = made_up("score-difference", kind="equal", against="untrained", figure={})
    assert judged(equal, scored(answers, answers), scored(answers, answers)).outcome == outcome
    samples = {"baseline_predicted": answers, "predicted": np.tile(answers, (7, 1)), "target": answers}
    pruned = measured("weight-pruning", {"share": [place / 10 for place in range(1, 8)]}, samples)
    case = made_up("pruning-loss", kind="equal", arguments={"share": 0.2}, figure={})
    assert judged(case, pruned).outcome == outcome


def gains(rows: int) -> list:
    """Return the scores of two models on 8 000 examples; the first has `rows` more correct answers."""
    return [scored([1] * right + [0] * (8000 - right), [1] * 8000) for right in (5600 + rows, 5600)]


def test_a_claim_can_name_its_own_smallest_effect():
    """A gain of 0.2 +- 0.1 points is below half a point, the default for points, and above a tenth."""
    settings = {"against": "untrained", "figure": {}}
    by_unit = made_up("score-difference", kind="above", **settings)
    smaller = {"size": 0.1, "reason": "half of the published gain"}
    own = made_up("score-difference", kind="above", smallest_effect=smaller, **settings)
    assert judged(by_unit, *gains(16)).outcome == "deviates"
    assert judged(own, *gains(16)).outcome == "reproduced"
    assert "smallest effect of interest 0.1 points (half of the published gain)" in "".join(claim_lines([own], 0.95))
    equal = made_up("score-difference", kind="equal", smallest_effect=smaller, **settings)
    assert equal.band(0.95) == (-0.1, 0.1)
    assert judged(equal, *gains(16)).outcome == "deviates"


def test_an_effect_that_is_said_to_exist_is_not_refuted_by_one_choice():
    settings = {"kind": "above", "against": "untrained", "figure": {}}
    better = gains(240)
    worse = better[::-1]
    assert judged(made_up("score-difference", **settings), *worse).outcome == "deviates"
    verdict = judged(made_up("score-difference", existence=True, **settings), *worse)
    assert (verdict.outcome, verdict.p_against) == ("inconclusive", None)
    assert "another head or layer" in verdict.reason
    assert judged(made_up("score-difference", existence=True, **settings), *better).outcome == "reproduced"


def test_a_published_figure_of_another_kind_gives_no_size():
    predicted, target = [1] * 160 + [0] * 40, [1] * 100 + [0] * 100  # 20 points above the majority class
    for comparable, outcome in ((True, "deviates"), (False, "reproduced")):
        case = made_up("score-over-majority", kind="above", figure={"published": 80.0})
        expect = case.claim.expect.model_copy(update={"comparable": comparable})
        claim = case.claim.model_copy(update={"expect": expect})
        assert judged(Case(claim, "rte"), scored(predicted, target)).outcome == outcome


def test_incomparable_published_figures_are_marked():
    """G selects heads and layers on the test examples, F2 excludes punctuation, and H1 has other training settings."""
    orders = [case.claim for case in cases() if isinstance(case.claim.expect, Order)]
    without = {claim.name for claim in orders if not claim.expect.comparable}
    assert without == {"G1", "G1-over-tasks", "G3", "G5b", "F2", "H1-frozen", "H1-scratch"}


# ---------------------------------------------------------------------- table 1, P20 and the blog


def cased(loss: float, task: str = "mnli") -> list:
    """Return scores on a full validation set, and scores with cased tokenization that are `loss` points lower."""
    rows = TASKS[task].dev_rows
    target = np.ones(rows, dtype=int)
    lower, upper = (np.arange(rows) < round(share * rows) for share in (0.8, 0.8 - loss / 100))
    return [scored(lower.astype(int), target, task), scored(upper.astype(int), target, task, lower_cases=True)]


@pytest.mark.parametrize(
    ("loss", "outcome"), [(5.9, "compatible"), (0.0, "deviates"), (3.0, "deviates"), (9.0, "deviates")]
)
def test_the_cased_loss_must_equal_the_gap_between_p20_and_table_1(loss, outcome):
    case = find_case("D6", "mnli")
    assert (case.figure.published, case.figure.doubt) == pytest.approx((84.485 - 78.6, 0.19 * math.sqrt(1 + 1 / 5)))
    assert judged(case, *cased(loss)).outcome == outcome


def test_no_loss_at_all_explains_no_gap():
    """MRPC's gap is smaller than the uncertainty of two runs, so even a loss of 0 lies inside the band."""
    verdict = judged(find_case("D6", "mrpc"), *cased(0.0, "mrpc"))
    assert verdict.band[0] < 0 < verdict.band[1]
    assert verdict.outcome == "inconclusive"
    assert verdict.reason.endswith("no loss at all")


def test_the_column_without_fine_tuning_is_measured_in_two_ways():
    """According to the blog, a classifier was trained on a frozen encoder; K19's code trains no classifier."""
    for name in ("D1-untrained", "D1-untrained-f1", "D2", "D4"):
        (plain,) = (claim for claim in load_claims() if claim.name == name)
        twin = name.replace("untrained", "frozen") if "untrained" in name else f"{name}-frozen"
        (frozen,) = (claim for claim in load_claims() if claim.name == twin)
        assert {t: f.published for t, f in frozen.tasks.items()} == {t: f.published for t, f in plain.tasks.items()}
        assert "frozen" in (frozen.initialisation, frozen.against)
        assert "untrained" not in (frozen.initialisation, frozen.against)


def by_answers(*answers: int) -> Verdict:
    """Return the verdict on table 1's constant answer for frozen encoders that give RTE's rows these answers."""
    target = [1] * 146 + [0] * 131
    seeds = [scored([answer] * 277, target, initialisation="frozen", constant=True) for answer in answers]
    return judged_seeds(find_case("D1-frozen", "rte"), as_seeds(*seeds))


def test_a_constant_answer_is_compatible_if_a_seed_gives_it():
    """The published constant answer scores 52.7 points, and the other one 47.3."""
    for answers in ((1, 1, 1), (1, 0, 1), (0, 0, 0, 0, 1)):
        assert by_answers(*answers).outcome == "compatible"
    assert by_answers(1, 0, 1).reason.startswith("2 of 3 seeds give the published constant answer")
    other = by_answers(0, 0, 0)
    assert (other.outcome, other.open, other.p_against) == ("inconclusive", True, 1.0)
    assert by_answers(1, 1).outcome == "inconclusive"  # two seeds are not enough


def test_table_1_truncates_the_constant_answer_of_random_weights_on_mrpc():
    """279 of 408 rows are paraphrases, which is 68.38 %, but table 1 reports 68.3 %."""
    answers = scored([1] * 408, [1] * 279 + [0] * 129, "mrpc", initialisation="random", constant=True)
    verdict = judged_seeds(find_case("D1-random", "mrpc"), as_seeds(*[answers] * 5))
    assert (verdict.outcome, round(verdict.observed, 2)) == ("compatible", 68.38)


def test_stsb_is_the_task_on_which_random_weights_do_not_do_well():
    case = find_case("D5-not", "stsb")
    rng = np.random.default_rng(1)
    target = rng.normal(size=1500)
    for noise, outcome in ((rng.normal(size=1500), "reproduced"), (target + rng.normal(size=1500), "deviates")):
        scores = correlated(noise, target)
        scores = replace(scores, subject=replace(scores.subject, initialisation="random"))
        assert judged(case, scores).outcome == outcome
    assert "stsb" not in {entry.task for entry in cases() if entry.claim.name == "D5"}


def test_all_printed_weights_of_the_example_sentence_are_judged():
    """K19's notebook prints three weights for each of two heads."""
    weights = [case for case in cases() if case.claim.quantity == "example-weight"]
    printed = {
        tuple({"word": "agitated", **case.claim.arguments}[name] for name in ("layer", "head", "word")): (
            case.figure.published
        )
        for case in weights
    }
    assert printed == {
        (7, 6, "agitated"): 0.87, (7, 6, "becoming"): 0.06, (7, 6, "sep"): 0.06,
        (1, 2, "agitated"): 0.46, (1, 2, "becoming"): 0.32, (1, 2, "sep"): 0.12,
    }  # fmt: skip
