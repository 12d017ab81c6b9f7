"""Bands, intervals and outcomes against hand-computed and closed-form values; every quantity on made measurements."""

import dataclasses
import math
from functools import partial

import measurements
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import correlated, made_up, measured, read, scored
from scipy import stats

from bertsecrets.claims.band import band, format_interval, format_number, score_error
from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import Estimate
from bertsecrets.claims.judge import decide, shape_problem
from bertsecrets.claims.plan import measure_case
from bertsecrets.claims.published import published_figures
from bertsecrets.claims.quantity import REGISTERED
from bertsecrets.claims.schema import Case
from bertsecrets.errors import NotApplicableError
from bertsecrets.report.text import check
from bertsecrets.texts.tasks import task

SETTINGS = measurements.SETTINGS.model_copy(update={"resamples": 4000})
Z99 = 2.5758293035489004


judged = partial(measurements.judged, settings=SETTINGS)

# ---------------------------------------------------------------------- bands


def test_a_binomial_band_by_hand():
    # 60 % on RTE's 277 examples: sqrt(.6 * .4 / 277) = 2.9435 points; with 99 % confidence and rounding .05
    low, high = band(made_up(sampling="score", figure={"published": 60.0, "rounding": 0.05}), 0.99)
    assert high - 60 == pytest.approx(Z99 * 100 * math.sqrt(0.6 * 0.4 / 277) + 0.05)
    assert 60 - low == pytest.approx(high - 60)


def test_seed_spread_adds_in_squares():
    figure = {"published": 60.0, "seed_std": 3.0, "seed_source": "five seeds"}
    low, high = band(made_up(sampling="score", figure=figure), 0.99)
    assert high - low == pytest.approx(2 * Z99 * math.hypot(3.0, 100 * math.sqrt(0.24 / 277)))
    assert band(made_up(figure=figure), 0.99) == pytest.approx((60 - 3 * Z99, 60 + 3 * Z99))


def test_a_correlations_band_narrows_towards_one():
    assert score_error(task("stsb"), 0.8) == pytest.approx((1 - 0.64) / math.sqrt(1499))
    assert score_error(task("stsb"), 1.0) == 0
    assert score_error(task("rte"), 0.0) == 0
    # simulated: r = .8 on 1500 normal pairs
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1500))
    y = 0.8 * x + 0.6 * rng.normal(size=x.shape)
    spread = np.std([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y, strict=True)])
    assert score_error(task("stsb"), 0.8) == pytest.approx(spread, rel=0.15)


def test_an_order_has_a_half_open_band():
    assert band(made_up(kind="above", value=3), 0.99) == (3, math.inf)
    assert band(made_up(kind="below", value=3), 0.99) == (-math.inf, 3)


# ---------------------------------------------------------------------- outcomes


def around(values):
    return Estimate(float(np.mean(values)), np.asarray(values, dtype=float), 1, 10)


@pytest.mark.parametrize(
    ("holds", "outcome"),
    [
        (1000, "reproduced"),
        (950, "reproduced"),
        (949, "inconclusive"),
        (51, "inconclusive"),
        (50, "deviates"),
        (0, "deviates"),
    ],
)
def test_an_order_is_decided_by_the_share_of_resamples(holds, outcome):
    replicates = [1.0] * holds + [-1.0] * (1000 - holds)
    assert decide(around(replicates), (0, math.inf), 0.95)[0] == outcome
    assert decide(around([-x for x in replicates]), (-math.inf, 0), 0.95)[0] == outcome


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(1, 2, "reproduced"), (0, 3, "reproduced"), (-1, 1, "inconclusive"), (2, 4, "inconclusive"),
     (-1, 4, "inconclusive"), (4, 5, "deviates"), (-2, -1, "deviates")],
)  # fmt: skip
def test_a_figure_is_decided_by_where_its_interval_lies(low, high, outcome):
    found, reason = decide(around(np.linspace(low, high, 2001)), (-0.5, 3.5), 0.95)
    assert found == outcome
    assert "90% interval" in reason


def test_what_cannot_be_computed_decides_nothing():
    nothing = around([math.nan] * 100)
    assert decide(nothing, (0, math.inf), 0.95)[0] == "inconclusive"
    assert decide(nothing, (0, 1), 0.95)[0] == "inconclusive"


def test_too_wide_a_band_decides_nothing():
    figure = {"published": 50.0, "seed_std": 40.0, "seed_source": "constant answers"}
    verdict = judged(made_up(figure=figure), scored([1] * 100, [1] * 50 + [0] * 50))
    assert verdict.outcome == "inconclusive"
    assert "nearly any value would lie in it" in verdict.reason


def test_a_score_is_judged_from_end_to_end():
    target = np.ones(1000, dtype=int)
    right = [1] * 600 + [0] * 400
    verdicts = {
        published: judged(made_up(sampling="score", figure={"published": published}), scored(right, target))
        for published in (60.0, 30.0, 66.0)
    }
    assert {published: v.outcome for published, v in verdicts.items()} == {
        60.0: "reproduced",
        30.0: "deviates",
        66.0: "inconclusive",
    }
    check(verdicts[60.0])
    check(verdicts[66.0])
    with pytest.raises(AssertionError, match=r"D9-rte deviates: A claim\. \(test\)\n  published 30\.0 points\n  band"):
        check(verdicts[30.0])


def test_a_verdict_as_data():
    provenance = {"limit": 2, "official_data": False, "seconds": 1.25}
    found = dataclasses.replace(scored([1, 0], [1, 1]), provenance=provenance, reused=True)
    data = judged(made_up(kind="above", value=20.0), found).as_json()
    assert {name: data[name] for name in ("id", "claim", "task", "published", "band", "observed", "unit")} == {
        "id": "D9-rte", "claim": "D9", "task": "rte", "published": 60.0, "band": [20.0, None], "observed": 50.0,
        "unit": "points",
    }  # fmt: skip
    assert data["remarks"] == ["limit 2", "unofficial data", "stored"]
    assert data["verdict"] in ("reproduced", "inconclusive", "deviates")
    assert data["seconds"] == 1.25


def test_a_constant_predictor_is_remarked():
    found = measured(values={"accuracy": 0.5, "constant": True}, samples={"predicted": [1, 1], "target": [0, 1]})
    assert judged(made_up(), found).remarks == ["constant predictor (pretrained)"]


def test_a_claim_on_single_heads_fits_only_the_papers_shape():
    grid = made_up("heads-little-changed", needs_shape=(12, 12))
    fits, small = (measured("attention-change", {"cosine": np.ones(shape)}) for shape in ((12, 12), (6, 12)))
    assert shape_problem(grid, fits) is None
    assert shape_problem(grid, small) == "needs 12 layers x 12 heads; the model has 6 x 12"
    assert shape_problem(made_up(), small) is None
    verdict = judged(grid, small)
    assert (verdict.outcome, verdict.observed, verdict.band) == ("not applicable", None, None)


@pytest.mark.parametrize(
    ("number", "shown"), [(None, "-"), (12.345, "12.3"), (-0.25, "-0.25"), (0.0, "0"), (3.0, "3"), (0.0004, "0.0004")]
)
def test_figures_show_the_digits_that_matter(number, shown):
    assert format_number(number) == shown


def test_bands_are_shown_as_intervals_or_orders():
    assert format_interval(None) == "-"
    assert format_interval((0, math.inf)) == "> 0"
    assert format_interval((-math.inf, 50)) == "< 50.0"
    assert format_interval((-1.5, 20)) == "[-1.5, 20.0]"


# ---------------------------------------------------------------------- quantities

pairs = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=50).map(np.array)


@given(pairs)
def test_scores_from_moments_equal_direct_ones(rows):
    predicted, target = rows.T
    found = scored(predicted, target)
    assert read("score", found) == pytest.approx(100 * np.mean(predicted == target))
    both, named = np.sum(predicted & target), predicted.sum() + target.sum()
    assert read("f1", found) == pytest.approx(100 * 2 * both / named if named else 0)
    majority = max(target.mean(), 1 - target.mean())
    assert read("score-over-majority", found) == pytest.approx(100 * (np.mean(predicted == target) - majority))


@given(st.lists(st.tuples(st.integers(-30, 80), st.integers(0, 50)), min_size=3, max_size=50))
def test_pearson_from_moments_equals_scipys(rows):
    predicted, target = (np.array(rows, dtype=float) / 10).T
    found = correlated(predicted, target)
    direct = 0.0 if np.ptp(predicted) == 0 or np.ptp(target) == 0 else stats.pearsonr(predicted, target).statistic
    assert read("score", found) == pytest.approx(100 * direct, abs=1e-4)
    assert read("score-over-majority", found) == pytest.approx(100 * direct, abs=1e-4)


def maps(measure, **layers):
    """A measurement whose samples are the given layer means, alike in all of two heads and three examples."""
    samples = {
        k: np.broadcast_to(np.asarray(v, dtype=np.float32)[None, :, None], (3, len(v), 2)) for k, v in layers.items()
    }
    return measured(measure, {k: v.mean(0) for k, v in samples.items()}, samples)


def test_the_last_two_layers_against_the_least_of_the_others():
    assert read("last-two-layers", maps("attention-change", cosine=[0.9, 0.7, 0.8, 0.4, 0.5])) == pytest.approx(-0.2)
    assert read("last-two-layers", maps("attention-change", cosine=[0.9, 0.3, 0.4, 0.5])) == pytest.approx(0.5 - 0.3)


def test_the_share_of_heads_that_changed_little():
    assert read("heads-little-changed", maps("attention-change", cosine=[0.9, 0.71, 0.69, 0.1])) == pytest.approx(50)


def test_the_correlation_with_figure_5():
    grid = np.array(published_figures()["fig5_cosine"]["RTE"])
    same = measured("attention-change", {"cosine": grid}, {"cosine": np.stack([grid, grid])})
    turned = measured("attention-change", {"cosine": -grid}, {"cosine": np.stack([3 - 2 * grid] * 2)})
    assert read("figure-5-correlation", same) == pytest.approx(1)
    assert read("figure-5-correlation", turned) == pytest.approx(-1)


def test_the_growth_of_separator_attention():
    after, before = maps("special-tokens", sep=[0.1, 0.2, 0.5, 0.6]), maps("special-tokens", sep=[0.9, 0.9, 0.2, 0.1])
    assert read("sep-growth", after, before) == pytest.approx(0.4)


def test_the_depth_of_two_tokens():
    first_and_last = maps("special-tokens", cls=[1, 0, 0], sep=[0, 0, 1])
    assert read("depth-gap", first_and_last) == pytest.approx(1)
    assert read("depth-gap", maps("special-tokens", cls=[0.2, 0.2, 0.2], sep=[0.0, 0.3, 0.1])) == pytest.approx(0.125)


def test_quantities_that_a_model_cannot_have():
    with pytest.raises(NotApplicableError, match="2 layers"):
        read("last-two-layers", maps("attention-change", cosine=[0.9, 0.7]))
    with pytest.raises(NotApplicableError, match="one layer"):
        read("depth-gap", maps("special-tokens", cls=[0.1], sep=[0.1]))
    with pytest.raises(NotApplicableError, match=r"no \[CLS\]"):
        read("depth-gap", maps("special-tokens", cls=[math.nan] * 3, sep=[0.1] * 3))
    verdict = judged(made_up("last-two-layers"), maps("attention-change", cosine=[1.0, 1.0]))
    assert verdict.outcome == "not applicable"


def test_a_claim_asks_for_its_measurements_per_seed():
    class Bench:
        def missing(self, measure, task_name):
            return None

        def measurement(self, measure, subject, **options):
            return measured(measure, seed=subject.seed, initialisation=subject.initialisation, options=options)

    claim = made_up("sep-growth", against="untrained", options={})
    claim = Case(claim.claim.model_copy(update={"measure": "special-tokens", "options": {"x": 1}}), "rte")
    found = measure_case(Bench(), claim, "m", [1, 2])
    asked = [
        {name: (m.measure, m.subject.initialisation, m.subject.seed, m.options) for name, m in needed.items()}
        for needed in found
    ]
    assert asked == [
        {"after": ("special-tokens", "pretrained", s, {"x": 1}), "before": ("special-tokens", "untrained", s, {"x": 1})}
        for s in (1, 2)
    ]


def test_no_difference_at_all_decides_no_order():
    outcome, reason = decide(around([0.0] * 100), (0, math.inf), 0.95)
    assert outcome == "inconclusive"
    assert "every resample equals the limit exactly" in reason


def test_a_tie_speaks_for_neither_side():
    assert decide(around([0.0] * 12 + [1.0] * 88), (0, math.inf), 0.95)[0] == "inconclusive"  # 88 + 6 of 100
    assert decide(around([0.0] * 8 + [1.0] * 92), (0, math.inf), 0.95)[0] == "reproduced"  # 92 + 4 of 100


def test_a_constant_answer_is_not_above_the_majority_class():
    found = scored([1] * 100, [1] * 60 + [0] * 40)
    found = dataclasses.replace(found, values={**found.values, "constant": True})
    order = made_up(quantity="score-over-majority", kind="above", figure={})
    verdict = judged(order, found)
    assert verdict.outcome == "deviates"
    assert "constant answer" in verdict.reason


def test_what_is_refuted_deviates_whatever_the_resamples_say(monkeypatch):
    """The judge knows no quantity by name: it looks at what the estimand says of itself."""
    block = np.array([[0.0]] * 9 + [[-1.0]])  # a third of the resamples have none of the last row: a tie
    for refuted, outcome in (("", "inconclusive"), ("it is not so", "deviates")):
        mean = Estimand((block,), lambda mean: mean[..., 0], refuted=refuted)
        monkeypatch.setitem(
            REGISTERED, "score", dataclasses.replace(REGISTERED["score"], function=lambda scores, m=mean: m)
        )
        order = judged(made_up(kind="above", figure={}), scored([1], [1]))
        assert order.outcome == outcome
        assert refuted in order.reason
    above = dataclasses.replace(mean, blocks=(block + 1,))
    monkeypatch.setitem(REGISTERED, "score", dataclasses.replace(REGISTERED["score"], function=lambda scores: above))
    assert judged(made_up(kind="above", figure={}), scored([1], [1])).outcome == "reproduced"  # it lies in the band
