"""The bootstrap: means of rows drawn with replacement, and confidence intervals from these means.

The confidence intervals of verdicts, charts, classifiers and annotators all come from the bootstrap.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.texts.metrics import Number

AT_ONCE = 100  # resamples drawn at a time, to bound memory


def column_means(
    block: Float[np.ndarray, "rows k"], weights: Float[np.ndarray, "draws rows"] | None = None
) -> Float[np.ndarray, "draws k"]:
    """Return the weighted mean of each column, ignoring NaN. The mean of an all-NaN column is NaN.

    Args:
        weights: Weight of each row in each draw; by default, one draw with equal weights.

    >>> column_means(np.array([[1.0, np.nan], [3.0, 5.0]]))
    array([[2., 5.]])
    """
    weights = np.ones((1, len(block))) if weights is None else weights
    present = ~np.isnan(block)
    if present.all():
        return weights @ block / weights.sum(1, keepdims=True)
    total, count = weights @ np.where(present, block, 0), weights @ present.astype(float)
    return ratio(total, count)


def ratio(part: Number, whole: Number) -> np.ndarray:
    """Return `part / whole`, or NaN where `whole` is not positive."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def resample_counts(
    rng: np.random.Generator,
    rows: int,
    resamples: int,
    *,
    drawn: int | None = None,
    shares: Float[np.ndarray, " rows"] | None = None,
    clusters: Int[np.ndarray, " rows"] | None = None,
) -> Iterator[Float[np.ndarray, "draws rows"]]:
    """Yield how often each row is drawn in each resample, in batches of `AT_ONCE` resamples.

    Args:
        drawn: Number of rows to draw in each resample. Defaults to `rows`.
        shares: Probability of drawing each row; the probabilities sum to 1. Defaults to a uniform distribution.
        clusters: Cluster index of each row, from 0. If given, whole clusters are drawn instead of rows. The number of
            draws is the number of clusters. Cannot be combined with `drawn` or `shares`.

    >>> counts = next(resample_counts(np.random.default_rng(1), rows=4, resamples=2))
    >>> counts.sum(axis=1)
    array([4., 4.])
    """
    units = rows if clusters is None else int(clusters.max()) + 1
    chances = np.full(units, 1 / units) if shares is None else shares
    for start in range(0, resamples, AT_ONCE):
        size = min(AT_ONCE, resamples - start)
        counts = rng.multinomial(drawn or units, chances, size=size).astype(np.float64)
        yield counts if clusters is None else counts[:, clusters]


def resampled_means(
    block: Float[np.ndarray, "rows k"],
    rng: np.random.Generator,
    resamples: int,
    drawn: int | None = None,
    clusters: Int[np.ndarray, " rows"] | None = None,
) -> Float[np.ndarray, "resamples k"]:
    """Return the column means of each resample of a block's rows, ignoring NaN."""
    counts = resample_counts(rng, len(block), resamples, drawn=drawn, clusters=clusters)
    return np.concatenate([column_means(block, portion) for portion in counts])


def central_interval(
    replicates: Float[np.ndarray, " resamples *rest"], confidence: float
) -> tuple[Float[np.ndarray, " *rest"], Float[np.ndarray, " *rest"]]:
    """Return both ends of the central interval of each column at a confidence level.

    >>> [float(end) for end in central_interval(np.arange(101.0), 0.5)]
    [25.0, 75.0]
    """
    tail = (1 - confidence) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0)
    return np.asarray(low), np.asarray(high)
