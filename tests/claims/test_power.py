"""The number of seeds or examples that decide a claim, compared with manual computation and simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from measurements import SETTINGS, judged, made_up, needed, scored

from bertsecrets.claims.error_rates import power
from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import Estimate, Spread, estimate
from bertsecrets.claims.judge import judge

ABOVE = (0.0, math.inf)
FEW = SETTINGS.model_copy(update={"resamples": 300})


def of(value, error, spread, degrees=4, seeds=1, **more):
    """Return an estimate with this sampling error on 100 examples and this standard deviation over seeds."""
    known = None if spread is None else Spread(spread, degrees, "five seeds")
    return Estimate(value, np.array([value]), np.array([[value]]), None, seeds, 100, known, error, **more)


def test_the_number_of_seeds_that_decides_by_hand():
    # distance 2, sampling error .5, standard deviation 3: the root sum of squares of (t + .842) * 3 / sqrt(n) and
    # 2.802 * .5 = 1.401 must be below 2, so (t + .842) * 3 / sqrt(n) must be below 1.427; it is 1.436 for 36 seeds
    # (t(35) = 2.030) and 1.415 for 37 (t(36) = 2.028)
    assert power(of(2.0, 0.5, 3.0), ABOVE, 0.95).startswith("37 seeds would decide this with 80% probability")
    assert power(of(-2.0, 0.5, 3.0), (-math.inf, 0), 0.95).startswith("37 seeds")
    assert power(of(5.0, 0.1, 0.1), ABOVE, 0.95).startswith("3 seeds would decide this")
    # (t(999) + .842) * 3 / sqrt(1000) = .26600: 1000 seeds are the most that are considered
    assert power(of(0.26605, 0.0, 3.0), ABOVE, 0.95).startswith("1000 seeds would decide this")
    assert power(of(0.2655, 0.0, 3.0), ABOVE, 0.95).startswith("more than 1000 seeds")


def test_examples_that_are_too_few_are_counted_instead():
    # 2.802 * .7 = 1.961 must decrease to 1: 100 * 1.961 ** 2 = 385
    assert power(of(1.0, 0.7, 1e-9, seeds=3), ABOVE, 0.95).startswith("about 385 examples would be needed")
    assert power(of(1.0, 0.7, None, seedless=True), ABOVE, 0.95).startswith("about 385 examples would be needed")
    # three seeds contribute (t(2) + .842) * .2 / sqrt(3) = .594, so the examples may contribute the square root of
    # 1 - .594 ** 2 = .647
    assert power(of(1.0, 0.7, 0.2, seeds=3), ABOVE, 0.95).startswith("about 595 examples would")
    assert "385 examples, and more seeds, would" in power(of(1.0, 0.7, 3.0, seeds=3), ABOVE, 0.95)


def test_many_seeds_are_no_advice():
    assert power(of(2.0, 0.5, 3.0), ABOVE, 0.95).endswith("which is not practical: 2 is too close to the limit")
    assert power(of(5.0, 0.1, 0.1), ABOVE, 0.95).endswith("probability if 5 is the true value")


def decided(seeds, *, level, spread, own=0.0, rows=60, worlds=150):
    """Return the fraction of simulated worlds in which this number of seeds shows that the level is above 0."""
    rng, count = np.random.default_rng(5), 0
    for _ in range(worlds):
        examples = rng.normal(size=(rows, 1))
        estimands = [
            Estimand.from_block(
                level + spread * rng.normal() + examples + own * rng.normal(size=(rows, 1)), lambda m: m[..., 0]
            )
            for _ in range(seeds)
        ]
        count += estimate(estimands, FEW).interval(0.95)[0] > 0
    return count / worlds


@pytest.mark.parametrize("spread", [0.4, pytest.param(1.0, marks=pytest.mark.slow)])
def test_so_many_seeds_decide_four_times_of_five(spread):
    """The stated number of seeds is compared with simulated seeds and examples of the same variances."""
    said = power(of(0.7, 1 / math.sqrt(60), spread, degrees=8), ABOVE, 0.95)
    assert "seeds would decide this with 80% probability" in said
    seeds = int(said.split()[0])
    assert decided(seeds, level=0.7, spread=spread) == pytest.approx(0.8, abs=0.09)
    assert decided(max(3, seeds // 3), level=0.7, spread=spread) < 0.65


def test_so_many_examples_decide_four_times_of_five():
    said = power(of(0.2, 1 / math.sqrt(60), 0.02, degrees=8, seeds=3), ABOVE, 0.95)
    examples = int(said.split()[1]) * 60 // 100  # `of` assumes 100
    assert decided(3, level=0.2, spread=0.02, rows=examples) == pytest.approx(0.8, abs=0.09)


def test_a_verdict_states_its_power_only_if_undecided():
    figure = {"seed_std": 2.0, "seed_source": "five seeds"}
    above = made_up(kind="above", value=50.0, figure=figure)
    assert judged(above, scored([1] * 600 + [0] * 400, [1] * 1000)).power == ""  # it is decided
    near = [needed("score", scored([1] * n + [0] * (1000 - n), [1] * 1000)) for n in (513, 510, 529)]
    verdict = judge(above, near, SETTINGS)
    assert verdict.outcome == "inconclusive"
    assert verdict.power == verdict.as_json()["power"]
    assert "would be needed to decide this, instead of 1000" in verdict.power


def test_no_number_of_seeds_is_given_if_seeds_cannot_decide():
    target = [1, 0] * 10
    few = [scored([1 - label for label in target[:n]] + target[n:], target) for n in (7, 8, 10)]
    seeds = [replace(scores, subject=replace(scores.subject, seed=n)) for n, scores in enumerate(few, start=1)]
    verdict = judge(made_up(kind="above", figure={}), [needed("score", scores) for scores in seeds], SETTINGS)
    assert (verdict.outcome, verdict.power) == ("inconclusive", "")
    assert verdict.reason.startswith("fewer than 30 examples")
