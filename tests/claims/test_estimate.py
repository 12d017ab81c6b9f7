"""Intervals: the bootstrap over examples, Student's t over seeds, both at once, and pairs."""

import math

import measurements
import numpy as np
import pytest
from measurements import estimand, read, scored

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import estimate

SETTINGS = measurements.SETTINGS.model_copy(update={"resamples": 4000})


def test_the_interval_of_an_accuracy_is_near_the_binomial_one():
    rng = np.random.default_rng(1)
    target, predicted = np.ones(400, dtype=int), (rng.random(400) < 0.7).astype(int)
    share = predicted.mean()
    observed = estimate([estimand("score", scored(predicted, target))], SETTINGS)
    assert observed.value == pytest.approx(100 * share)
    half = 1.96 * 100 * math.sqrt(share * (1 - share) / 400)
    assert observed.interval(0.95) == pytest.approx((100 * share - half, 100 * share + half), abs=0.4)
    assert (observed.seeds, observed.examples) == (1, 400)


def test_one_seed_takes_the_cited_spread_on_top():
    score = estimand("score", scored([1] * 300, [1] * 300))
    assert np.ptp(estimate([score], SETTINGS).replicates) == pytest.approx(0, abs=1e-9)
    assert estimate([score], SETTINGS, 2.0).replicates.std() == pytest.approx(2.0, rel=0.06)


def test_several_seeds_have_students_interval_around_their_mean():
    estimands = [Estimand.of(np.full((50, 1), level), lambda mean: mean[..., 0]) for level in (60.0, 70.0, 80.0)]
    observed = estimate(estimands, SETTINGS, 50.0)  # the cited spread plays no part any more
    assert (observed.value, observed.seed_std, observed.sampling_error) == (70, 10, 0)
    low, high = observed.interval(0.95)
    reach = 4.3027 * 10 / np.sqrt(3)  # t of 2 degrees of freedom at .975
    assert low == pytest.approx(70 - reach, abs=3)
    assert high == pytest.approx(70 + reach, abs=3)


def test_the_doubt_of_seeds_and_that_of_examples_add_up():
    alike = [scored([1] * 70 + [0] * 30, [1] * 100)] * 3
    apart = [scored([1] * n + [0] * (100 - n), [1] * 100) for n in (60, 70, 80)]
    one, other = (estimate([estimand("score", m) for m in found], SETTINGS) for found in (alike, apart))
    assert one.replicates.std() == pytest.approx(100 * np.sqrt(0.7 * 0.3 / 100), rel=0.06)
    assert np.diff(other.interval(0.95)) > 2 * np.diff(one.interval(0.95))


def test_a_difference_is_paired():
    rng = np.random.default_rng(2)
    target = rng.integers(0, 2, 300)
    other = np.where(rng.random(300) < 0.6, target, 1 - target)
    own = other.copy()
    own[:15] = target[:15]  # right wherever the other is, and on some more
    gain = 100 * ((own == target).mean() - (other == target).mean())
    pair = [scored(own, target), scored(other, target)]
    assert read("score-difference", *pair) == pytest.approx(gain)
    observed = estimate([estimand("score-difference", *pair)], SETTINGS)
    assert observed.replicates.min() >= -1e-9  # it can never lose, however the examples fall
    assert observed.replicates.std() < 1.5  # unpaired, it would be about 4


def test_the_same_seed_of_resampling_gives_the_same_interval():
    score = estimand("score", scored([1, 0] * 50, [1] * 100))
    assert np.array_equal(estimate([score], SETTINGS, 1.0).replicates, estimate([score], SETTINGS, 1.0).replicates)
