"""Estimates for a training procedure, from one estimand per seed.

Seeds and examples are crossed: every seed is evaluated on the same examples, as in the multi-bootstrap (Sellam et al.
2022). Resampling only a few seeds would give intervals that are far too narrow, so the seed variance is added as
Student's t noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.bootstrap import (
    bias_corrected,
    central_interval,
    column_means,
    means_without,
    resample_counts,
    resampled_means,
)
from bertsecrets.claims.estimand import Clusters, Estimand, Extreme, decisive
from bertsecrets.settings import JudgeParams

FEWEST_SEEDS = 3  # fewer are not enough to estimate the seed variance
SELECTION_SHARE = 0.1  # of the error, to select the parts that may be smallest (Romano, Shaikh and Wolf 2014)
CACHED_DRAWS = 2_000_000  # maximum number of cached draws per block (16 MB), for estimates with as many examples


@dataclass(frozen=True)
class Spread:
    """A seed-to-seed standard deviation in the quantity's unit, with its degrees of freedom."""

    std: float
    degrees: float
    source: str = ""

    def draws(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, " count"]:
        """Return `count` stratified draws of Student's t with these degrees of freedom, in the quantity's unit."""
        return self.std * rng.permutation(_students(self.degrees, count))


@lru_cache(maxsize=16)
def _students(degrees: float, count: int) -> Float[np.ndarray, " count"]:
    from scipy.special import stdtrit  # scipy.stats would take five times as long to import

    return np.asarray(stdtrit(degrees, (np.arange(count) + 0.5) / count))


Replicates = Float[np.ndarray, "resamples parts"]
BySeed = Float[np.ndarray, "seeds draws parts"]


@dataclass(frozen=True)
class Estimate:
    """Mean of a quantity over seeds, with bootstrap replicates.

    Args:
        value: Mean over seeds; if there are several parts, that of the extreme one.
        parts: Mean over seeds of each part. Most quantities have one.
        replicates: Bootstrap replicates of each part.
        extreme: Whether the quantity is the smallest or the largest of its parts.
        seeds: Number of seeds.
        examples: Number of examples.
        spread: Seed-to-seed spread. None for fewer than `FEWEST_SEEDS` seeds; the estimate then applies only to these
            checkpoints.
        sampling_error: Standard error due to sampling, without the seed variance.
        examples_error: Standard error due to the sampled examples, without the annotated heads used to estimate
            classifier errors.
        fewest: Smallest number of examples, or clusters of examples, in any column; infinite if no block is sampled.
        published: Number of published runs that the quantity compares with.
        seedless: Whether seeds do not matter: nothing is trained, or the question is about one checkpoint.
        within: Range of possible values.
        interaction: Standard deviation over seeds due to their interaction with examples, such as answers that differ
            between seeds. It is part of the spread, but estimated from more data.
    """

    value: float
    parts: Float[np.ndarray, " parts"]
    replicates: Replicates
    extreme: Extreme | None
    seeds: int
    examples: int
    spread: Spread | None = None
    sampling_error: float = 0.0
    examples_error: float = 0.0
    fewest: float = float("inf")
    published: int = 0
    seedless: bool = False
    within: tuple[float, float] = (float("-inf"), float("inf"))
    interaction: float = 0.0

    @property
    def computable(self) -> bool:
        """Whether the quantity is finite on the examples and on every resample."""
        return bool(np.isfinite(self.value) and np.isfinite(self.replicates).all())

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the central interval at this confidence level, clipped to the quantity's range.

        It always contains the observed value, even if resamples rarely reach it, as for a head that is only narrowly
        the best.
        """
        low, high = np.clip(self._unbounded(confidence), *self.within)
        return min(float(low), self.value), max(float(high), self.value)

    def _unbounded(self, confidence: float) -> tuple[float, float]:
        """Return the central interval at this confidence level, without clipping.

        For the smallest of several parts, the lower end is the lowest one of any part. The upper end is a simultaneous
        bound over all parts that may be the smallest. For the largest part, the ends are swapped.
        """
        if self.extreme is None:
            ends = central_interval(self.replicates[:, 0], confidence)
            return float(ends[0]), float(ends[1])
        turned = 1.0 if self.extreme == "least" else -1.0
        draws, parts = turned * self.replicates, turned * self.parts
        tail = (1 - confidence) / 2
        low = float(np.quantile(draws, tail, axis=0).min())
        scale = draws.std(0)
        off = np.divide(draws - parts, scale, out=np.zeros_like(draws), where=scale > 0)
        first = _reach(abs(off), SELECTION_SHARE * tail) * scale
        near = parts - first <= (parts + first).min()
        high = float((parts + _reach(off[:, near], (1 - SELECTION_SHARE) * tail) * scale)[near].min())
        return (low, high) if turned > 0 else (-high, -low)


def _reach(off: Replicates, tail: float) -> float:
    """Return the simultaneous upper quantile of all parts."""
    return float(np.quantile(off.max(1), 1 - tail))


def estimate(
    estimands: Sequence[Estimand],
    settings: JudgeParams,
    *,
    seedless: bool = False,
    examples_share: float = 1.0,
    within: tuple[float, float] = (float("-inf"), float("inf")),
) -> Estimate:
    """Return the estimate from one estimand per seed.

    All seeds use the same resamples of a block, since they were evaluated on the same examples. Blocks are resampled
    independently. The interaction of seeds and examples is counted once, as part of the seed variance.

    Args:
        seedless: Whether seeds do not matter: nothing is trained, or the question is about one checkpoint.
        examples_share: Factor for the sampling error of the examples; 0 if the estimate is only for these examples.
        within: Range of possible values.
    """
    rng = np.random.default_rng(settings.seed)
    count = len(estimands)
    by_seed = _replicates(estimands, settings)
    parts = np.stack([estimand.parts for estimand in estimands])
    if not all(estimand.sampled for estimand in estimands):
        examples_share = 0.0
    value = parts.mean(0)
    replicates = _corrected(by_seed.mean(0), estimands, value)
    counted, interaction = np.full(len(value), examples_share), np.zeros(len(value))
    spreads: list[Spread | None] = [None] * len(value)
    if not seedless and count >= FEWEST_SEEDS:
        of_mean, of_all = by_seed.mean(0).var(0), _of_all_seeds(by_seed)
        interaction = np.sqrt(np.clip(by_seed.var(1).mean(0) - of_all, 0, None))
        spreads = [Spread(float(std), count - 1, "these seeds") for std in parts.std(0, ddof=1)]
        share = np.divide(of_all, of_mean, out=np.ones_like(of_mean), where=of_mean > 0)
        counted = examples_share * np.sqrt(share)
    if (counted < 1).any():
        middle = replicates.mean(0)
        replicates = value + examples_share * (middle - value) + counted * (replicates - middle)
    for part, spread in enumerate(spreads):
        if spread is not None:
            replicates[:, part] += spread.draws(rng, settings.resamples) * np.sqrt(1 / count + estimands[0].published)
    sizes = (
        _fewest(block, estimand.clusters[i] if estimand.clusters else None)
        for estimand in estimands
        if estimand.sampled
        for i, block in enumerate(estimand.blocks)
    )
    extreme = estimands[0].extreme
    place = decisive(value, extreme)
    examples_error = sampling_error = float(by_seed.mean(0)[:, place].std())
    if any(estimand.drawn for estimand in estimands):
        examples_error = float(_replicates(estimands, settings, annotated=False).mean(0)[:, place].std())
    return Estimate(
        value=float(value[place]),
        parts=value,
        replicates=replicates,
        extreme=extreme,
        seeds=count,
        examples=sum(len(block) for block in estimands[0].blocks),
        spread=spreads[place],
        sampling_error=float(counted[place]) * sampling_error,
        examples_error=float(counted[place]) * examples_error,
        fewest=min(sizes, default=np.inf),
        published=estimands[0].published,
        seedless=seedless,
        within=within,
        interaction=float(interaction[place]),
    )


def _of_all_seeds(by_seed: BySeed) -> Float[np.ndarray, " parts"]:
    """Return the variance of the mean over seeds due to example effects shared by all seeds.

    The rest is the interaction of seeds and examples, which is part of the seed variance.
    """
    count, of_mean, of_each = len(by_seed), by_seed.mean(0).var(0), by_seed.var(1).mean(0)
    return np.clip((count * of_mean - of_each) / (count - 1), 0, of_mean)


def _corrected(replicates: Replicates, estimands: Sequence[Estimand], parts: Float[np.ndarray, " parts"]) -> Replicates:
    """Return the replicates of the mean over seeds, corrected for bias and skewness part by part."""
    first = estimands[0]
    influence = []
    for place, block in enumerate(first.blocks):
        if first.drawn and first.drawn[place] is not None:
            continue
        left = _without(estimands, place).mean(0)
        influence.append(column_means(left) - left if len(block) > 1 else np.zeros_like(left))
    joined = np.concatenate(influence) if influence else np.zeros((1, len(parts)))
    columns = [bias_corrected(replicates[:, i], float(parts[i]), joined[:, i]) for i in range(len(parts))]
    return np.stack(columns, axis=1)


def _without(estimands: Sequence[Estimand], place: int) -> BySeed:
    """Return the leave-one-out statistic over the rows, or clusters of rows, of one block."""
    left = means_without(_joined(estimands, place), _clusters(estimands, place))
    means = [column_means(_joined(estimands, other)) for other in range(len(estimands[0].blocks))]
    means[place] = left
    return _of_means(estimands, [np.broadcast_to(mean, (len(left), mean.shape[1])) for mean in means], len(left))


def _fewest(block: Float[np.ndarray, "rows k"], clusters: Clusters) -> float:
    """Return the smallest number of rows, or clusters of rows, in any nonempty column."""
    present = ~np.isnan(block)
    if clusters is not None:
        together = np.zeros((int(clusters.max()) + 1, block.shape[1]), dtype=bool)
        np.logical_or.at(together, clusters, present)
        present = together
    counts = present.sum(0)
    return float(min(counts[counts > 0], default=0))


def _replicates(estimands: Sequence[Estimand], settings: JudgeParams, annotated: bool = True) -> BySeed:
    """Return the statistic on each resample. Draws depend on a block's position and size, not on the model.

    Args:
        annotated: Whether to resample blocks with a fixed number of rows to draw (`drawn`).
    """
    first, means = estimands[0], []
    for place in range(len(first.blocks)):
        block, drawn = _joined(estimands, place), first.drawn[place] if first.drawn else None
        clusters = _clusters(estimands, place)
        if drawn is not None and not annotated:
            means.append(column_means(block))
        elif clusters is None and len(block) * settings.resamples <= CACHED_DRAWS:
            means.append(column_means(block, _draws(settings, place, len(block), drawn)))
        else:
            rng = np.random.default_rng([settings.seed, place])
            means.append(resampled_means(block, rng, settings.resamples, drawn, clusters))
    return _of_means(estimands, means, settings.resamples)


@lru_cache(maxsize=4)
def _draws(settings: JudgeParams, place: int, rows: int, drawn: int | None) -> Float[np.ndarray, "resamples rows"]:
    """Return how often each row is drawn in each resample, cached because many estimates use the same draws."""
    rng = np.random.default_rng([settings.seed, place])
    return np.concatenate(list(resample_counts(rng, rows, settings.resamples, drawn=drawn)))


def _joined(estimands: Sequence[Estimand], place: int) -> Float[np.ndarray, "rows columns"]:
    """Return the columns of all seeds side by side."""
    return np.hstack([estimand.blocks[place] for estimand in estimands])


def _clusters(estimands: Sequence[Estimand], place: int) -> Int[np.ndarray, " rows"] | None:
    return estimands[0].clusters[place] if estimands[0].clusters else None


def _of_means(estimands: Sequence[Estimand], means: Sequence[np.ndarray], draws: int) -> BySeed:
    """Return each seed's statistic, computed from its columns of the joined means."""
    drawn_values, starts = [], [0] * len(means)
    for estimand in estimands:
        ends = [start + block.shape[1] for start, block in zip(starts, estimand.blocks, strict=True)]
        own = [mean[:, start:end] for mean, start, end in zip(means, starts, ends, strict=True)]
        values = np.asarray(estimand.statistic(*own), dtype=np.float64)
        parts = values.shape[-1] if estimand.extreme is not None else 1
        drawn_values.append(np.broadcast_to(values.reshape(-1, parts), (draws, parts)))
        starts = ends
    return np.stack(drawn_values)


def with_interval(
    block: Float[np.ndarray, "examples k"], statistic: Callable[[np.ndarray], np.ndarray], settings: JudgeParams
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """Return the statistic of each head with both ends of its 95 % bootstrap interval over examples.

    The intervals are not corrected for multiplicity: about seven of 144 intervals miss the true value.
    """
    values = statistic(column_means(block)[0])
    replicates = resampled_means(block, np.random.default_rng(settings.seed), settings.resamples)
    return values, *central_interval(statistic(replicates), 0.95)
