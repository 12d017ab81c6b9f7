"""The number of seeds or examples that decide a claim, compared with manual computation and simulation."""

import math

import numpy as np
from measurements import as_seeds, judged, judged_seeds, made_up, scored

from bertsecrets.claims.error_rates import power
from bertsecrets.claims.estimate import Estimate, Spread

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
    assert power(of(1.0, 0.7, 1e-9, seeds=3), ABOVE, 0.95).startswith("about 385 examples would be needed")
    assert power(of(1.0, 0.7, None, seedless=True), ABOVE, 0.95).startswith("about 385 examples would be needed")
    # three seeds contribute (t(2) + .842) * .2 / sqrt(3) = .594, so the examples may contribute the square root of
    # 1 - .594 ** 2 = .647
    assert power(of(1.0, 0.7, 0.2, seeds=3), ABOVE, 0.95).startswith("about 595 examples would")
    assert "385 examples, and more seeds, would" in power(of(1.0, 0.7, 3.0, seeds=3), ABOVE, 0.95)


def test_a_verdict_states_its_power_only_if_undecided():
    figure = {"seed_std": 2.0, "seed_source": "five seeds"}
    above = made_up(kind="above", value=50.0, figure=figure)
    assert judged(above, scored([1] * 600 + [0] * 400, [1] * 1000)).power == ""  # it is decided
    verdict = judged_seeds(above, [scored([1] * n + [0] * (1000 - n), [1] * 1000) for n in (513, 510, 529)])
    assert verdict.outcome == "inconclusive"
    assert verdict.power == verdict.as_json()["power"]
    assert "would be needed to decide this, instead of 1000" in verdict.power


def test_no_number_of_seeds_is_given_if_seeds_cannot_decide():
    target = [1, 0] * 10
    few = [scored([1 - label for label in target[:n]] + target[n:], target) for n in (7, 8, 10)]
    verdict = judged_seeds(made_up(kind="above", figure={}), as_seeds(*few))
    assert (verdict.outcome, verdict.power) == ("inconclusive", "")
    assert verdict.reason.startswith("fewer than 30 examples")
