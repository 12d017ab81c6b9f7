"""The bootstrap: means of rows drawn with replacement, and confidence intervals from them.

Used for all intervals: those of verdicts, figures, classifiers and annotators.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

MOST_BIAS = 0.5  # standard errors; BCa cannot correct a larger bias with a few thousand resamples
AT_ONCE = 100  # resamples drawn at a time, to bound memory


def column_means(
    block: Float[np.ndarray, "rows k"], weights: Float[np.ndarray, "draws rows"] | None = None
) -> Float[np.ndarray, "draws k"]:
    """Return the weighted mean of each column, ignoring NaN; NaN for all-NaN columns.

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
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


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
        shares: Probability of each row; they sum to 1. Defaults to a uniform distribution.
        clusters: Cluster index of each row, from 0. Clusters are then drawn instead of rows, as many as there are.
            Cannot be combined with `drawn` or `shares`.

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


def means_without(
    block: Float[np.ndarray, "rows k"], clusters: Int[np.ndarray, " rows"] | None = None
) -> Float[np.ndarray, "units k"]:
    """Return the leave-one-out (jackknife) column means, over rows or clusters of rows.

    >>> means_without(np.array([[1.0], [3.0], [8.0]]))
    array([[5.5],
           [4.5],
           [2. ]])
    """
    present = ~np.isnan(block)
    values, counts = np.where(present, block, 0), present.astype(np.float64)
    total, count = values.sum(0), counts.sum(0)
    if clusters is not None:
        units = int(clusters.max()) + 1
        summed, counted = np.zeros((units, block.shape[1])), np.zeros((units, block.shape[1]))
        np.add.at(summed, clusters, values)
        np.add.at(counted, clusters, counts)
        values, counts = summed, counted
    rest = count - counts
    return np.divide(total - values, rest, out=np.full(values.shape, np.nan), where=rest > 0)


def bias_corrected(
    replicates: Float[np.ndarray, " resamples"], value: float, influence: Float[np.ndarray, " units"]
) -> Float[np.ndarray, " resamples"]:
    """Return replicates corrected for bias and skewness; their central intervals are BCa intervals (Efron 1987).

    BCa estimates the bias from the number of replicates below the observed value. If almost all are below, as for a
    correlation near 1, this estimate is unstable. The replicates are then shifted by twice the distance between their
    median and the value.

    Args:
        value: Statistic on all rows.
        influence: Influence of each row on the statistic, up to a common factor: the jackknife differences.
    """
    from scipy.special import ndtr, ndtri  # scipy.stats would take five times as long to import

    if not np.isfinite(value) or not np.isfinite(replicates).all() or np.ptp(replicates) == 0:
        return replicates
    count, order = len(replicates), np.argsort(replicates, kind="stable")
    below = ((replicates < value).mean() + (replicates <= value).mean()) / 2
    bias = float(ndtri(np.clip(below, 1 / count, 1 - 1 / count)))
    if abs(bias) > MOST_BIAS:
        replicates, bias = replicates + 2 * (value - np.median(replicates)), 0.0
    values = influence[np.isfinite(influence)]
    spread = float((values**2).sum())
    skew = float((values**3).sum() / (6 * spread**1.5)) if spread > 0 else 0.0
    ranks = np.empty(count)
    ranks[order] = (np.arange(count) + 0.5) / count
    moved = bias + ndtri(ranks)
    shares = ndtr(bias + moved / np.clip(1 - skew * moved, 0.05, None))
    return np.interp(
        shares * (count - 1), np.arange(count), replicates[order]
    )  # np.quantile would take 50 times as long


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
