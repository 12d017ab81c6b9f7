"""The bootstrap: means of rows drawn with replacement, and intervals from them.

Pure numpy. All intervals of the suite come from here: those of verdicts, figures, classifiers and annotators.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

AT_ONCE = 100  # resamples drawn at a time, to bound memory


def column_means(
    block: Float[np.ndarray, "rows k"], weights: Float[np.ndarray, "draws rows"] | None = None
) -> Float[np.ndarray, "draws k"]:
    """Return the weighted mean of each column, leaving out NaN; NaN for a column that has nothing else.

    Args:
        weights: of each row in each draw; by default, one draw with equal weights.

    >>> column_means(np.array([[1.0, np.nan], [3.0, 5.0]]))
    array([[2., 5.]])
    """
    weights = np.ones((1, len(block))) if weights is None else weights
    present = ~np.isnan(block)
    if present.all():
        return weights @ block / weights.sum(1, keepdims=True)
    total, count = weights @ np.where(present, block, 0), weights @ present.astype(float)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def resample_counts(
    rng: np.random.Generator,
    rows: int,
    resamples: int,
    drawn: int | None = None,
    shares: Float[np.ndarray, " rows"] | None = None,
) -> Iterator[Float[np.ndarray, "draws rows"]]:
    """Yield how often each row is drawn in each resample, in portions of `AT_ONCE` resamples.

    Args:
        drawn: number of rows that a resample draws; by default, as many as there are.
        shares: probability of each row (their sum is 1); by default, equal.

    >>> counts = next(resample_counts(np.random.default_rng(1), rows=4, resamples=2))
    >>> counts.sum(axis=1)
    array([4., 4.])
    """
    chances = np.full(rows, 1 / rows) if shares is None else shares
    for start in range(0, resamples, AT_ONCE):
        size = min(AT_ONCE, resamples - start)
        yield rng.multinomial(drawn or rows, chances, size=size).astype(np.float64)


def resampled_means(
    block: Float[np.ndarray, "rows k"], rng: np.random.Generator, resamples: int, drawn: int | None = None
) -> Float[np.ndarray, "resamples k"]:
    """Return the column means of each resample of a block's rows; rows that are NaN in a column are left out there."""
    counts = resample_counts(rng, len(block), resamples, drawn)
    return np.concatenate([column_means(block, portion) for portion in counts])


def central_interval(
    replicates: Float[np.ndarray, " resamples *rest"], confidence: float
) -> tuple[Float[np.ndarray, " *rest"], Float[np.ndarray, " *rest"]]:
    """Return both ends of the central interval that holds this share of the replicates, column by column.

    >>> [float(end) for end in central_interval(np.arange(101.0), 0.5)]
    [25.0, 75.0]
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0)
    return np.asarray(low), np.asarray(high)
