"""Estimates from estimands: of the procedure that seeds and examples are drawn for, not of one run of it.

Examples and seeds are crossed: every seed has seen the same examples (the multi-bootstrap of Sellam et al. 2022). With
few seeds, resampling them would be far too narrow, so they add Student's t, by a spread that what is known beforehand
and the seeds themselves give together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import bias_corrected, central_interval, column_means, means_without, resampled_means
from bertsecrets.claims.estimand import Clusters, Estimand
from bertsecrets.claims.spread import Spread
from bertsecrets.settings import JudgeParams

Replicates = Float[np.ndarray, "resamples parts"]


@dataclass(frozen=True)
class Estimate:
    """An observed quantity: its mean over seeds, draws of what it may truly be, and what they were made of.

    Args:
        value: the mean over seeds; of several parts, the extreme one.
        parts: the mean over seeds of each part; a single one for most quantities.
        replicates: draws of each part.
        extreme: whether the quantity is the least or the most of its parts.
        seeds: how many; `examples` likewise.
        spread: of the seeds; None where it is not known, so that the estimate is one of this checkpoint alone.
        sampling_error: the standard error that comes from the choice of samples, without that of the seeds.
        examples_error: the part of it that comes from the examples, without the annotated heads from which a
            classifier's errors are known.
        fewest: the number of examples, or clusters of them, behind the column of a block with the fewest; infinite
            where none is a sample of something larger.
        published: with how many published runs the decisive part compares what was measured.
        seedless: nothing is trained, so that there are no other seeds.
    """

    value: float
    parts: Float[np.ndarray, " parts"]
    replicates: Replicates
    extreme: str | None
    seeds: int
    examples: int
    spread: Spread | None = None
    sampling_error: float = 0.0
    examples_error: float = 0.0
    fewest: float = float("inf")
    published: int = 0
    seedless: bool = False

    @property
    def computable(self) -> bool:
        """Whether the quantity has a value on the examples and on every resample."""
        return bool(np.isfinite(self.value) and np.isfinite(self.replicates).all())

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the central interval of this confidence.

        Of the least of several parts, the lower end is that of the part with the lowest; the upper end must hold for
        all parts at once (and the other way round for the most).
        """
        if self.extreme is None:
            ends = central_interval(self.replicates[:, 0], confidence)
            return float(ends[0]), float(ends[1])
        turned = 1.0 if self.extreme == "least" else -1.0
        draws, parts = turned * self.replicates, turned * self.parts
        tail = (1 - confidence) / 2
        low = float(np.quantile(draws, tail, axis=0).min())
        scale = draws.std(0)
        scaled = np.divide(draws - parts, scale, out=np.zeros_like(draws), where=scale > 0)
        reach = float(np.quantile(scaled.max(1), 1 - tail))
        high = float((parts + reach * scale).min())
        return (low, high) if turned > 0 else (-high, -low)


def estimate(
    estimands: Sequence[Estimand],
    settings: JudgeParams,
    known: Spread | None = None,
    *,
    seedless: bool = False,
    examples_share: float = 1.0,
) -> Estimate:
    """Return the estimate from one estimand per seed.

    Every seed gets the same resamples of a block, since all seeds saw the same examples; blocks are resampled
    independently. What a seed does to single examples is counted once, in the spread over seeds.

    Args:
        known: the spread over seeds as far as it is known beforehand.
        seedless: nothing is trained, so that seeds make no difference.
        examples_share: how much of the error that the examples bring is counted; 0 if the estimate is of these alone.
    """
    rng = np.random.default_rng(settings.seed)
    count = len(estimands)
    by_seed = np.stack([_replicates(estimand, settings) for estimand in estimands])  # [seed, resample, part]
    parts = np.stack([estimand.parts for estimand in estimands])
    published = np.array(estimands[0].published or np.zeros(parts.shape[1]))
    if not all(estimand.sampled for estimand in estimands):
        examples_share = 0.0
    replicates = _corrected(by_seed.mean(0), estimands, parts.mean(0))
    if examples_share < 1:
        replicates = parts.mean(0) + examples_share * (replicates - parts.mean(0))
    elif count > 1 and not seedless:
        replicates = replicates.mean(0) + _shared(by_seed) * (replicates - replicates.mean(0))
    spreads: list[Spread | None] = [None] * parts.shape[1]
    if not seedless:
        for part in range(parts.shape[1]):
            spread = known.updated(parts[:, part].tolist()) if known is not None else None
            if spread is None and count > 1:
                spread = Spread(float(parts[:, part].std(ddof=1)), count - 1, "the seeds")
            spreads[part] = spread
            if spread is not None:
                drawn = (rng.permutation(settings.resamples) + 0.5) / settings.resamples
                replicates[:, part] += spread.quantiles(drawn) * np.sqrt(1 / count + published[part])
    sizes = (
        _fewest(block, estimand.clusters[place] if estimand.clusters else None)
        for estimand in estimands
        if estimand.sampled
        for place, block in enumerate(estimand.blocks)
    )
    extreme = estimands[0].extreme
    decisive = int(parts.mean(0).argmax() if extreme == "most" else parts.mean(0).argmin())
    examples_error = sampling_error = float(by_seed.mean(0)[:, decisive].std())
    if any(estimand.drawn for estimand in estimands):
        of_examples = np.stack([_replicates(estimand, settings, annotated=False) for estimand in estimands])
        examples_error = float(of_examples.mean(0)[:, decisive].std())
    return Estimate(
        value=float(parts.mean(0)[decisive]),
        parts=parts.mean(0),
        replicates=replicates,
        extreme=extreme,
        seeds=count,
        examples=sum(len(block) for block in estimands[0].blocks),
        spread=spreads[decisive],
        sampling_error=examples_share * sampling_error,
        examples_error=examples_share * examples_error,
        fewest=min(sizes, default=np.inf),
        published=int(published[decisive]),
        seedless=seedless,
    )


def _shared(by_seed: Float[np.ndarray, "seeds resamples parts"]) -> Float[np.ndarray, " parts"]:
    """Return the standard deviation that the examples bring to all seeds alike, as a share of that of their mean.

    The rest is what each seed does to single examples, which is part of the spread over seeds.
    """
    count = len(by_seed)
    of_mean, of_each = by_seed.mean(0).var(0), by_seed.var(1).mean(0)
    alike = np.clip((count * of_mean - of_each) / (count - 1), 0, of_mean)
    return np.sqrt(np.divide(alike, of_mean, out=np.ones_like(of_mean), where=of_mean > 0))


def _corrected(replicates: Replicates, estimands: Sequence[Estimand], parts: Float[np.ndarray, " parts"]) -> Replicates:
    """Return the replicates of the mean over seeds, corrected for bias and skewness part by part."""
    first = estimands[0]
    influence = []
    for place, block in enumerate(first.blocks):
        if first.drawn and first.drawn[place] is not None:
            continue
        clusters = first.clusters[place] if first.clusters else None
        left = np.mean([_without(estimand, place, clusters) for estimand in estimands], axis=0)  # [unit, part]
        influence.append(column_means(left) - left if len(block) > 1 else np.zeros_like(left))
    joined = np.concatenate(influence) if influence else np.zeros((1, len(parts)))
    columns = [bias_corrected(replicates[:, i], float(parts[i]), joined[:, i]) for i in range(len(parts))]
    return np.stack(columns, axis=1)


def _without(estimand: Estimand, place: int, clusters: np.ndarray | None) -> Float[np.ndarray, "units parts"]:
    """Return the statistic without each row, or cluster of rows, of one block."""
    left = means_without(estimand.blocks[place], clusters)
    means = [left if i == place else column_means(block) for i, block in enumerate(estimand.blocks)]
    return _by_part(estimand, estimand.statistic(*means), len(left))


def _fewest(block: Float[np.ndarray, "rows k"], clusters: Clusters) -> float:
    """Return the number of rows, or clusters of rows, in the column that has the fewest of those that have any."""
    present = ~np.isnan(block)
    if clusters is not None:
        together = np.zeros((int(clusters.max()) + 1, block.shape[1]), dtype=bool)
        np.logical_or.at(together, clusters, present)
        present = together
    counts = present.sum(0)
    return float(min(counts[counts > 0], default=0))


def _replicates(estimand: Estimand, settings: JudgeParams, annotated: bool = True) -> Replicates:
    """Return the statistic of each resample; the draws depend on a block's position and size, not on the model.

    Args:
        annotated: if False, blocks that say how many rows to draw (`drawn`) are not resampled.
    """
    means = []
    for place, block in enumerate(estimand.blocks):
        drawn = estimand.drawn[place] if estimand.drawn else None
        clusters = estimand.clusters[place] if estimand.clusters else None
        if annotated or drawn is None:
            rng = np.random.default_rng([settings.seed, place])
            means.append(resampled_means(block, rng, settings.resamples, drawn, clusters))
        else:
            means.append(column_means(block))
    return _by_part(estimand, estimand.statistic(*means), settings.resamples)


def _by_part(estimand: Estimand, found: object, rows: int) -> Float[np.ndarray, "rows parts"]:
    """Return what a statistic gives for several draws as [draw, part]."""
    values = np.asarray(found, dtype=np.float64)
    parts = values.shape[-1] if estimand.extreme is not None else 1
    return np.broadcast_to(values.reshape(-1, parts), (rows, parts)).copy()


def with_interval(
    block: Float[np.ndarray, "examples k"], statistic: Callable[[np.ndarray], np.ndarray], settings: JudgeParams
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """Return each head's number with both ends of its 95 % bootstrap interval over examples.

    The intervals are not corrected for their number: of 144 intervals at 95 %, about seven miss the truth.
    """
    values = statistic(column_means(block)[0])
    replicates = resampled_means(block, np.random.default_rng(settings.seed), settings.resamples)
    return values, *central_interval(statistic(replicates), 0.95)
