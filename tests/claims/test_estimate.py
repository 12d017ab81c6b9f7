"""Intervals: the bootstrap over examples, Student's t over seeds, both combined, and paired differences."""

import dataclasses
import math

import measurements
import numpy as np
import pytest
from measurements import estimand, read, scored

from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import estimate

SETTINGS = measurements.SETTINGS.model_copy(update={"resamples": 4000})
FEW = measurements.SETTINGS.model_copy(update={"resamples": 600})


def test_the_interval_of_an_accuracy_is_near_the_binomial_one():
    rng = np.random.default_rng(1)
    target, predicted = np.ones(400, dtype=int), (rng.random(400) < 0.7).astype(int)
    share = predicted.mean()
    observed = estimate([estimand("score", scored(predicted, target))], SETTINGS)
    assert observed.value == pytest.approx(100 * share)
    half = 1.96 * 100 * math.sqrt(share * (1 - share) / 400)
    assert observed.interval(0.95) == pytest.approx((100 * share - half, 100 * share + half), abs=0.4)
    assert (observed.seeds, observed.examples) == (1, 400)


def levels(*values):
    """Return one estimand per value; all of its examples have this value."""
    return [Estimand.from_block(np.full((50, 1), value), lambda mean: mean[..., 0]) for value in values]


def test_several_seeds_have_students_interval_around_their_mean():
    observed = estimate(levels(60.0, 70.0, 80.0), SETTINGS)
    assert (observed.value, observed.spread.std, observed.sampling_error) == (70, 10, 0)
    reach = 4.3027 * 10 / np.sqrt(3)  # the .975 quantile of t with 2 degrees of freedom
    assert observed.interval(0.95) == pytest.approx((70 - reach, 70 + reach), abs=0.5)


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_seeds_have_an_interval_of_the_examples_alone(count):
    observed = estimate(levels(*[60.0, 80.0][:count]), SETTINGS)
    assert observed.spread is None
    assert observed.interval(0.95) == pytest.approx((observed.value, observed.value))


def test_the_doubt_of_seeds_and_that_of_examples_add_up():
    equal = [scored([1] * 70 + [0] * 30, [1] * 100)] * 3
    separate = [scored([1] * n + [0] * (100 - n), [1] * 100) for n in (60, 70, 80)]
    one, other = (estimate([estimand("score", m) for m in seeds], SETTINGS) for seeds in (equal, separate))
    assert one.replicates.std() == pytest.approx(100 * np.sqrt(0.7 * 0.3 / 100), rel=0.06)
    assert np.diff(other.interval(0.95)) > 2 * np.diff(one.interval(0.95))


def test_the_effect_of_a_seed_on_single_examples_is_counted_once():
    """Seeds differ at random on each example; the spread over seeds already includes this variation."""
    rng = np.random.default_rng(8)
    worlds = [
        [Estimand.from_block(rng.normal(size=(100, 1)), lambda mean: mean[..., 0]) for _ in range(4)] for _ in range(60)
    ]
    observed = [estimate(world, SETTINGS) for world in worlds]
    of_examples = [
        estimated.replicates.var() - 3 * estimated.spread.std**2 / 4 for estimated in observed
    ]  # t(3) has variance 3
    assert np.mean(of_examples) < 0.25 * 0.05**2  # counting it twice would add .05 squared


def test_an_interval_stays_within_the_range_of_its_quantity():
    seeds = [estimand("score", scored([1] * n + [0] * (300 - n), [1] * 300)) for n in (290, 294, 297)]
    low, high = estimate(seeds, SETTINGS, within=(0, 100)).interval(0.95)
    assert (low > 85, high) == (True, 100)
    assert estimate(seeds, SETTINGS).interval(0.95)[1] > 100


def test_an_interval_contains_the_observed_value():
    """The value depends on which of two nearly equal columns has the larger mean, so it is not stable in resamples."""
    rng = np.random.default_rng(4)
    good = rng.normal(size=(60, 1)).repeat(2, axis=1)
    good[0, 0] += 1e-9
    block = np.hstack([good, np.zeros((60, 1)), np.full((60, 1), 5.0)])

    def companion(mean):
        return np.where(mean[..., 0] > mean[..., 1], mean[..., 2], mean[..., 3])

    estimated = estimate([Estimand.from_block(block, companion)], FEW)
    low, high = estimated.interval(0.95)
    assert estimated.value == 0
    assert low <= 0 <= high


def test_the_least_of_several_parts_holds_the_truth():
    """All parts have the same true value, so the smallest is biased; the interval must cover the true value anyway."""
    rng, held, worlds = np.random.default_rng(9), 0, 200
    for _ in range(worlds):
        parts = Estimand.from_block(rng.normal(size=(100, 6)), lambda mean: mean)
        low, high = estimate([dataclasses.replace(parts, extreme="least")], FEW).interval(0.95)
        held += low <= 0 <= high
        turned = Estimand.from_block(-parts.blocks[0], lambda mean: mean)
        other = estimate([dataclasses.replace(turned, extreme="most")], FEW).interval(0.95)
        assert other == pytest.approx((-high, -low), abs=0.02)
    assert 0.93 <= held / worlds <= 1.0


def test_parts_that_are_far_off_do_not_widen_the_interval_of_the_least():
    rng = np.random.default_rng(14)
    noise = rng.normal(size=(200, 8))
    alone = Estimand.from_block(noise[:, :1], lambda mean: mean[..., 0])
    separate = dataclasses.replace(Estimand.from_block(noise + np.r_[0, [5.0] * 7], lambda mean: mean), extreme="least")
    low, high = estimate([alone], SETTINGS).interval(0.95)
    assert estimate([separate], SETTINGS).interval(0.95) == pytest.approx((low, high), abs=0.02)


def test_rows_of_a_cluster_are_resampled_together():
    rng = np.random.default_rng(10)
    block = np.repeat(rng.normal(size=(100, 1)), 3, axis=0)
    separate = Estimand.from_block(block, lambda mean: mean[..., 0])
    clustered = dataclasses.replace(separate, clusters=(np.repeat(np.arange(100), 3),))
    narrow, wide = (estimate([quantity], SETTINGS).replicates.std() for quantity in (separate, clustered))
    assert wide / narrow == pytest.approx(np.sqrt(3), rel=0.06)


def test_skewed_examples_are_missed_on_neither_side():
    """Percentile intervals for the mean of 100 exponential numbers are too low three times as often as too high."""
    rng, low_misses, high_misses, worlds = np.random.default_rng(11), 0, 0, 400
    for _ in range(worlds):
        quantity = Estimand.from_block(rng.exponential(size=(100, 1)), lambda mean: mean[..., 0])
        low, high = estimate([quantity], FEW).interval(0.90)
        low_misses += low > 1
        high_misses += high < 1
    assert low_misses / worlds == pytest.approx(0.05, abs=0.035)
    assert high_misses / worlds == pytest.approx(0.05, abs=0.035)


def test_a_difference_is_paired():
    rng = np.random.default_rng(2)
    target = rng.integers(0, 2, 300)
    other = np.where(rng.random(300) < 0.6, target, 1 - target)
    own = other.copy()
    own[:15] = target[:15]  # correct wherever the other is, and on a few more
    gain = 100 * ((own == target).mean() - (other == target).mean())
    pair = [scored(own, target), scored(other, target)]
    assert read("score-difference", *pair) == pytest.approx(gain)
    observed = estimate([estimand("score-difference", *pair)], SETTINGS)
    assert observed.replicates.min() >= -1e-9  # the gain is not negative on any resample
    assert observed.replicates.std() < 1.5  # unpaired, it would be about 4
