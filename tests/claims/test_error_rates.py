"""P-values of verdicts: the smallest error rates at which a claim would still deviate, or still be reproduced."""

import dataclasses

import numpy as np
import pytest
from measurements import judged, made_up, measured, needed, scored
from scipy import stats

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import SMALLEST_P_VALUE, Estimate, Spread
from bertsecrets.claims.judge import judge
from bertsecrets.claims.quantity import ANY_VALUE, REGISTERED_QUANTITIES
from bertsecrets.settings import JudgeParams

SETTINGS = JudgeParams(confidence=0.95, resamples=500, seed=7)


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
