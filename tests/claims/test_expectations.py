"""What a claim can expect besides an order and a figure: an equality, an order without a size, a figure too vague."""

import math

import pytest
from measurements import SURE, judged, made_up, scored

from bertsecrets.claims.band import band
from bertsecrets.claims.judge import decide_equal, decide_order
from bertsecrets.claims.schema import Case, cases
from bertsecrets.claims.units import smallest
from bertsecrets.report.text import width_in_words

HALF = (-0.5, 0.5)


def test_an_equality_has_the_smallest_effect_of_interest_around_it():
    case = made_up("score-difference", kind="equal", against="untrained", figure={})
    assert band(case, 0.95) == (-smallest("points")[0], smallest("points")[0]) == HALF
    assert "an equality" in width_in_words(case, 0.95)


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((0.0, 0.0), "reproduced"),  # no example's answer changes
        ((-0.4, 0.4), "reproduced"),
        ((0.1, 0.4), "reproduced"),  # surely not 0, and of no interest
        ((-0.4, 0.6), "inconclusive"),
        ((-3.0, 3.0), "inconclusive"),
        ((0.6, 0.9), "deviates"),
        ((-0.9, -0.5), "deviates"),
    ],
)
def test_an_equality_holds_where_the_whole_interval_is_of_no_interest(interval, outcome):
    found, reason = decide_equal(interval, HALF, "half a point")
    assert found == outcome
    assert "half a point" in reason


def test_an_equality_is_judged_from_end_to_end():
    case = made_up("score-difference", kind="equal", against="untrained", figure={})
    right = [1] * 300 + [0] * 100
    same, worse = scored(right, [1] * 400), scored([1] * 280 + [0] * 120, [1] * 400)
    assert judged(case, same, same, known=SURE).outcome == "reproduced"
    assert judged(case, same, worse, known=SURE).outcome == "deviates"


def test_only_an_order_against_0_is_judged_by_its_size():
    assert decide_order((1.0, 2.0), (0.0, math.inf), published=10.0)[0] == "deviates"
    # "in most heads": 60 % are most, though the paper has 90
    assert decide_order((59.0, 61.0), (50.0, math.inf), published=90.0)[0] == "reproduced"


def test_a_published_figure_of_another_kind_gives_no_size():
    predicted, target = [1] * 160 + [0] * 40, [1] * 100 + [0] * 100  # 20 points above the majority class
    for comparable, outcome in ((True, "deviates"), (False, "reproduced")):
        case = made_up("score-over-majority", kind="above", figure={"published": 80.0})
        expect = case.claim.expect.model_copy(update={"comparable": comparable})
        claim = case.claim.model_copy(update={"expect": expect})
        assert judged(Case(claim, "rte"), scored(predicted, target), known=SURE).outcome == outcome


def test_a_prediction_interval_that_holds_half_of_all_values_decides_nothing():
    figure = {"published": 60.0, "doubt": 20.0, "doubt_degrees": 7, "doubt_source": "two sources"}
    right = [1] * 800 + [0] * 200
    verdict = judged(made_up(figure=figure, sampling="score"), scored(right, [1] * 500 + [1] * 500), known=SURE)
    assert verdict.outcome == "inconclusive"
    assert "nearly anything" in verdict.reason


def test_what_the_papers_figures_cannot_be_compared_with_says_so():
    """G1's are the best of 144 gains on the examples that chose it; F2's are without punctuation."""
    without = {case.claim.name for case in cases() if not case.claim.expect.comparable}
    assert without == {"G1", "F2"}
