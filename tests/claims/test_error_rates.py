"""P-values of verdicts, and the number of seeds or examples that decide a claim."""

import dataclasses
import math

import numpy as np
import pytest
from measurements import SETTINGS, as_seeds, judged, judged_seeds, made_up, measured, needed, scored
from scipy import stats

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import SMALLEST_P_VALUE, Estimate, Spread
from bertsecrets.claims.judge import judge, power
from bertsecrets.claims.quantity import ANY_VALUE, REGISTERED_QUANTITIES


@pytest.fixture
def of_estimands(monkeypatch):
    """Return a function that judges a case with the given estimands, one per seed."""

    def verdict(case, estimands, confidence=0.95):
        left = iter(estimands)
        changed = dataclasses.replace(
            REGISTERED_QUANTITIES["score"], function=lambda scores: next(left), within=lambda task: ANY_VALUE
        )
        monkeypatch.setitem(REGISTERED_QUANTITIES, "score", changed)
        by_seed = [needed("score", scored([1], [1])) for _ in estimands]
        settings = SETTINGS.model_copy(update={"confidence": confidence})
        return judge(case, by_seed, settings, checkpoint=len(estimands) == 1)

    return verdict


@pytest.mark.parametrize("confidence", [0.95, 0.984])
def test_p_values_and_outcomes_say_the_same(of_estimands, confidence):
    """For figures, and orders with and without a published value; with and without extremes; on one or three seeds."""
    rng, seen = np.random.default_rng(5), set()
    for world in range(60):
        kind = ("above", "below", "around")[world % 3]
        published = (None, 1.0, -1.0)[rng.integers(3)] if kind != "around" else 1.0
        runs = {"seed_std": float(rng.choice([1e-4, 0.1])), "seed_source": "five seeds"}
        case = made_up(kind=kind, unit="attention", figure={"published": published, "rounding": 0.05} | runs)
        extreme = (None, "least", "most")[rng.integers(3)]
        centre = rng.choice([0, 0, 0.3, -0.3, 1.0]) + 0.1 * rng.normal(size=3 if extreme else 1)
        blocks = [
            rng.normal(centre + 0.05 * rng.normal(), rng.choice([0.01, 1.0]), (60, len(centre))) for _ in range(3)
        ]
        estimands = [
            Estimand((block,), lambda mean, one=extreme is None: mean[..., 0] if one else mean, extreme=extreme)
            for block in blocks[: rng.choice([1, 3])]
        ]
        verdict = of_estimands(case, estimands, confidence)
        seen.add((kind, verdict.outcome))
        assert (verdict.p_against <= 1 - confidence) == (verdict.outcome == "deviates"), verdict
        if kind == "around":
            assert verdict.p_for is None
        else:
            assert (verdict.p_for <= 1 - confidence) == (verdict.outcome == "reproduced"), verdict
    assert len(seen) >= 6


def test_a_p_value_is_that_of_a_t_test_where_there_is_one(of_estimands):
    rows = np.random.default_rng(3).normal(-0.2, 1.0, (400, 1))
    case = made_up(kind="above", figure={}, unit="attention")
    verdict = of_estimands(case, [Estimand((rows,), lambda mean: mean[..., 0])])
    exact = stats.ttest_1samp(rows[:, 0], 0).pvalue / 2  # one-sided; too small for 500 draws to resolve
    assert exact / 5 < verdict.p_against < 5 * exact < 0.006
    assert verdict.p_for > 0.95


def test_a_figures_p_value_is_that_of_its_prediction_interval():
    figure = {"published": 70.0, "seed_std": 3.0, "seed_source": "five seeds"}
    verdict = judged(made_up(sampling="score", figure=figure), scored([1] * 167 + [0] * 110, [1] * 277))
    gap = (70.0 - verdict.observed) / (3.0 * np.sqrt(2))
    assert verdict.p_against == pytest.approx(2 * stats.t.sf(gap, 4), rel=0.06)


def test_a_tail_without_draws_falls_as_the_normal_distribution_does():
    draws = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    observed = Estimate(0.0, np.zeros(1), draws[:, None], None, 1, 100)
    for rate in (0.05, 0.005, 0.001, 1e-5):
        low, high = observed.interval(1 - rate)
        assert (low, high) == pytest.approx((stats.norm.ppf(rate / 2), stats.norm.isf(rate / 2)), rel=0.03)


def test_p_values_of_seeds_alone_are_those_of_a_t_test():
    values = np.array([0.4, 1.0, 1.3, 0.9])
    error = float(values.std(ddof=1) / 2)
    mean, draws = np.array([values.mean()]), np.full((500, 1), values.mean())
    observed = Estimate(values.mean(), mean, draws, None, 4, 100, Spread(2 * error, 3), seed_errors=np.array([error]))
    assert observed.p_above(0.0, 0.9) == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue)
    assert observed.p_below(0.0, 0.9) == pytest.approx(stats.ttest_1samp(values, 0, alternative="less").pvalue)


def test_unjudged_claims_have_no_p_value():
    few = judged(made_up(), scored([1, 0], [1, 1]))
    alone = judge(made_up(kind="above", figure={}), [needed("score", scored([0, 1] * 45, [0, 1] * 45))], SETTINGS)
    assert (few.p_against, few.p_for, alone.p_against, alone.p_for) == (None,) * 4
    assert few.as_json()["p_against"] is None


def test_claims_refuted_by_every_resample_have_the_smallest_p_value():
    samples = {"predicted": [1] * 100, "target": [1] * 60 + [0] * 40}
    scores = measured("scores", {"accuracy": 0.6, "constant": True}, samples, initialisation="random")
    verdict = judged(made_up("score-over-majority", kind="above", figure={}), scores)
    assert (verdict.outcome, verdict.p_against, verdict.p_for) == ("deviates", SMALLEST_P_VALUE, 1.0)
    assert "so the interval is not used" in verdict.reason
    assert "constant answer" in verdict.reason


# ---------------------------------------------------------------------- seeds or examples that decide a claim

ABOVE = (0.0, math.inf)


def of(value, error, spread, degrees=4, seeds=1, **more):
    """Return an estimate with this sampling error on 100 examples and this standard deviation over seeds."""
    known = None if spread is None else Spread(spread, degrees, "five seeds")
    return Estimate(value, np.array([value]), np.array([[value]]), None, seeds, 100, known, error, **more)


def test_the_number_of_seeds_that_decides_by_hand():
    # distance 2, sampling error .5, standard deviation 3: the root sum of squares of (t + .842) * 3 / sqrt(n) and
    # 2.802 * .5 = 1.401 must be below 2, so (t + .842) * 3 / sqrt(n) must be below 1.427; it is 1.436 for 36 seeds
    # (t(35) = 2.030) and 1.415 for 37 (t(36) = 2.028)
    assert power(of(2.0, 0.5, 3.0), ABOVE, 0.95).startswith("37 seeds would decide this with 80% probability")
    assert power(of(2.0, 0.5, 3.0), ABOVE, 0.95).endswith("which is not practical: 2 is too close to the limit")
    assert power(of(-2.0, 0.5, 3.0), (-math.inf, 0), 0.95).startswith("37 seeds")
    assert power(of(5.0, 0.1, 0.1), ABOVE, 0.95) == (
        "3 seeds would decide this with 80% probability if 5 is the true value"
    )
    # (t(999) + .842) * 3 / sqrt(1000) = .26600: 1000 seeds are the most that are considered
    assert power(of(0.26605, 0.0, 3.0), ABOVE, 0.95).startswith("1000 seeds would decide this")
    assert power(of(0.2655, 0.0, 3.0), ABOVE, 0.95).startswith("more than 1000 seeds")


def test_examples_that_are_too_few_are_counted_instead():
    # 2.802 * .7 = 1.961 must decrease to 1: 100 * 1.961 ** 2 = 385
    needed = "about 385 examples instead of 100 would be needed to decide this"
    assert power(of(1.0, 0.7, 1e-9, seeds=3), ABOVE, 0.95) == needed
    assert power(of(1.0, 0.7, None, seedless=True), ABOVE, 0.95) == needed
    # three seeds contribute (t(2) + .842) * .2 / sqrt(3) = .594, so the examples may contribute the square root of
    # 1 - .594 ** 2 = .647
    assert power(of(1.0, 0.7, 0.2, seeds=3), ABOVE, 0.95).startswith("about 595 examples instead of 100 would")
    assert "385 examples instead of 100, and more seeds, would" in power(of(1.0, 0.7, 3.0, seeds=3), ABOVE, 0.95)


def test_a_verdict_states_its_power_only_if_undecided():
    figure = {"seed_std": 2.0, "seed_source": "five seeds"}
    above = made_up(kind="above", value=50.0, figure=figure)
    target = np.arange(1000) % 2

    def of(right):
        predicted = np.where(np.arange(1000) < right, target, 1 - target)
        return scored(predicted, target, initialisation="random")

    assert judged(above, of(600)).power == ""  # it is decided
    verdict = judged_seeds(above, [of(513), of(510), of(529)])
    assert verdict.outcome == "inconclusive"
    assert verdict.power == verdict.as_json()["power"]
    assert "examples instead of 1000, and more seeds, would be needed to decide this" in verdict.power


def test_no_number_of_seeds_is_given_if_seeds_cannot_decide():
    target = [1, 0] * 10
    few = [scored([1 - label for label in target[:n]] + target[n:], target) for n in (7, 8, 10)]
    verdict = judged_seeds(made_up(kind="above", figure={}), as_seeds(*few))
    assert (verdict.outcome, verdict.power) == ("inconclusive", "")
    assert verdict.reason.startswith("fewer than 30 examples")
