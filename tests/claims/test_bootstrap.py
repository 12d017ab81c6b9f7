"""The bootstrap, compared with theory and manual computation. All intervals of the suite come from it."""

import numpy as np

from bertsecrets.claims.bootstrap import AT_ONCE, central_interval, resample_counts, resampled_means


def interval(block, resamples, seed, confidence=0.95):
    return central_interval(resampled_means(block, np.random.default_rng(seed), resamples), confidence)


def test_intervals_are_as_wide_as_theory_says():
    block = np.random.default_rng(0).normal(0.3, 0.1, (400, 6))
    low, high = interval(block, 4000, 1)
    error = block.std(0) / 20
    np.testing.assert_allclose(high - low, 2 * 1.96 * error, rtol=0.08)
    np.testing.assert_allclose((high + low) / 2, block.mean(0), atol=5e-4)
    np.testing.assert_array_equal((low, high), interval(block, 4000, 1))


def test_every_resample_draws_as_many_rows_as_asked_for():
    counts = np.concatenate(list(resample_counts(np.random.default_rng(0), rows=7, resamples=AT_ONCE + 3, drawn=4)))
    assert counts.shape == (AT_ONCE + 3, 7)
    assert set(counts.sum(1)) == {4.0}


def test_means_of_resamples_are_those_of_the_rows_drawn():
    block = np.arange(10.0).reshape(5, 2)
    counts = np.concatenate(list(resample_counts(np.random.default_rng(3), 5, 20)))
    by_hand = [np.repeat(block, row.astype(int), axis=0).mean(0) for row in counts]
    np.testing.assert_allclose(resampled_means(block, np.random.default_rng(3), 20), by_hand)
