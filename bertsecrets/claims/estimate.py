"""Estimates of a quantity for a training procedure, computed from one estimand per seed.

Seeds and examples are crossed: every seed is evaluated on the same examples, as in the multi-bootstrap (Sellam et al.
2022). Resampling only a few seeds would give intervals that are far too narrow. Therefore, for each end of the
interval, two distances from the mean across seeds are combined: the distance to the end of the bootstrap interval over
examples, and the distance to the end of Student's interval over seeds. The combined distance is the square root of the
sum of their squares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

import numpy as np
from jaxtyping import Bool, Float

from bertsecrets.claims.bootstrap import central_interval, column_means, resample_counts, resampled_means
from bertsecrets.claims.estimand import Clusters, Estimand, Extreme, decisive
from bertsecrets.settings import JudgeParams

FEWEST_SEEDS = 3  # fewer are not enough to estimate the seed variance
FAR_SEED = 3.0  # standard deviations from the other seeds; a note names a seed that is farther away
SELECTION_SHARE = 0.1  # share of the error rate for finding parts that may be largest (Romano, Shaikh and Wolf 2014)
SMALLEST_P_VALUE = 1e-6  # neither resampling nor a few seeds can support a smaller one
MIN_TAIL_DRAWS = 5  # minimum number of draws in a tail; smaller tails are extrapolated as normal
MANY_DEGREES = 1e6  # degrees of freedom for which Student's t is practically normal
FAR = 1e6  # distance from a limit, in half-widths, if the interval has no width
ROUNDING = 1e-9  # resamples that differ by less count as equal
UNSEEN = 0.025  # error rate that gives the standard error of a part whose resamples are all equal
CACHED_DRAWS = 2_000_000  # maximum number of draws per block (16 MB) to cache for estimates of the same size

Replicates = Float[np.ndarray, "resamples parts"]
Parts = Float[np.ndarray, " parts"]
BySeed = Float[np.ndarray, "seeds draws parts"]


@dataclass(frozen=True)
class Spread:
    """A standard deviation between seeds, in the quantity's unit, with its degrees of freedom."""

    std: float
    degrees: float
    source: str = ""


@dataclass(frozen=True)
class Estimate:
    """The mean of a quantity across seeds, with bootstrap replicates.

    Args:
        value: Mean of the quantity, or of its extreme part, across seeds.
        parts: Mean of each part across seeds. Most quantities have a single part.
        replicates: Replicates of each part from bootstrap resamples of the examples.
        extreme: Whether the quantity is the smallest or the largest of its parts.
        spread: Seed-to-seed spread. None for fewer than `FEWEST_SEEDS` seeds; the estimate then applies only to these
            checkpoints.
        sampling_error: Standard error due to sampling, without the seed variance.
        examples_error: Standard error due to the sampling of examples alone. It excludes the error due to sampling the
            annotated heads that are used to estimate classifier errors.
        fewest: Smallest number of examples (or of clusters of examples) from which a column mean is computed. Infinite
            if no block is sampled.
        published: Number of published runs to which the quantity compares the model.
        seedless: Whether seeds are irrelevant, because nothing is trained or a single checkpoint is judged.
        within: Range of possible values.
        interaction: Standard deviation across seeds that is due to the interaction of seeds and examples: seeds differ
            in which examples they predict correctly. This variation is part of `spread`, but estimated from more data.
        seed_errors: Standard error of each part that is due to the variation between seeds.
        of_row: For each part, the largest effect of a single row on the sum over rows (see `unseen_share`). 0 if
            unknown.
    """

    value: float
    parts: Parts
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
    seed_errors: Parts | float = 0.0
    of_row: Parts | float = 0.0

    @property
    def computable(self) -> bool:
        """Whether the quantity is finite on the examples and on every resample."""
        return bool(np.isfinite(self.value) and np.isfinite(self.replicates).all())

    @property
    def unvarying(self) -> bool:
        """Whether the quantity has the same value on every resample and for every seed."""
        return bool(_alike(self.replicates).all() and not np.any(self.seed_errors))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the central interval at this confidence level, clipped to the quantity's range."""
        tail = (1 - confidence) / 2
        low, high = np.clip((self._lower_end(tail), -self._turned._lower_end(tail)), *self.within)
        return float(low), float(high)

    def p_above(self, limit: float, confidence: float) -> float:
        """Return a one-sided p-value, which is small if the quantity clearly lies above a limit.

        The distance from the limit, in standard errors, is compared with Student's t distribution. The standard error
        is derived from the interval at the given confidence level. The p-value is therefore below (1 - confidence) / 2
        if and only if this interval lies above the limit.
        """
        from scipy.special import stdtr  # scipy.stats would take five times as long to import

        tail = (1 - confidence) / 2
        tested, own = self._tested(tail)
        half, (quantiles, degrees) = self._below(own), self._students(own)
        gaps = self.parts - limit
        distances = np.divide(gaps, half, out=FAR * np.sign(gaps), where=half > 0)
        p_values = stdtr(degrees, -distances * quantiles)[tested]
        p_value = p_values.min() * tail / own if self.extreme == "most" else p_values.max()
        return float(np.clip(p_value, SMALLEST_P_VALUE, 1.0))

    def p_below(self, limit: float, confidence: float) -> float:
        """Return a one-sided p-value, which is small if the quantity clearly lies below a limit (see `p_above`)."""
        return self._turned.p_above(-limit, confidence)

    @property
    def _turned(self) -> "Estimate":
        """The estimate of the negated quantity."""
        other: dict[Extreme | None, Extreme] = {"least": "most", "most": "least"}
        extreme = other.get(self.extreme)
        return replace(self, value=-self.value, parts=-self.parts, replicates=-self.replicates, extreme=extreme)

    def _lower_end(self, tail: float) -> float:
        """Return the lower end of the interval. `tail` is the error rate at this end.

        If the quantity is the smallest part, its lower end is the minimum of the lower ends of all parts. If the
        quantity is the largest part, its lower end is the maximum of the lower ends of those parts that may be the
        largest, and the error rate is divided among these parts.
        """
        tested, own = self._tested(tail)
        ends = (self.parts - self._below(own))[tested]
        return float(ends.max() if self.extreme == "most" else ends.min())

    def _tested(self, tail: float) -> tuple[Bool[np.ndarray, " parts"], float]:
        """Return a mask of the parts that determine the lower end, and the error rate of each of these parts."""
        if self.extreme != "most":
            return np.ones(len(self.parts), dtype=bool), tail
        first = SELECTION_SHARE * tail / len(self.parts)
        near = self.parts + self._turned._below(first) >= (self.parts - self._below(first)).max()
        return near, (1 - SELECTION_SHARE) * tail / int(near.sum())

    def _below(self, tail: float) -> Parts:
        """Return the distance of each part from the lower end of its interval."""
        from scipy.special import stdtrit

        of_seeds = self.seed_errors * float(stdtrit(self.seeds - 1, 1 - tail)) if self.spread else 0.0
        return np.hypot(self._of_examples(tail), of_seeds)

    def _of_examples(self, tail: float) -> Parts:
        """Return each part minus the lower percentile of its bootstrap replicates, or 0 if the percentile is higher.

        If all replicates are equal, return the largest change that a type of row missing from the sample could cause.
        """
        from scipy.special import ndtri

        edge = max(tail, min(0.25, MIN_TAIL_DRAWS / len(self.replicates)))
        off = np.clip(self.parts - np.quantile(self.replicates, edge, axis=0), 0, None)
        of_unseen = np.where(_alike(self.replicates), self.of_row * unseen_share(self.fewest, tail), 0.0)
        return np.asarray(np.maximum(off * float(ndtri(tail) / ndtri(edge)), of_unseen))

    def _students(self, tail: float) -> tuple[Parts, Parts]:
        """Return Student's quantile and degrees of freedom for each part's total error (Welch-Satterthwaite)."""
        from scipy.special import ndtri, stdtrit

        of_examples = (self._of_examples(tail) / float(ndtri(tail))) ** 2
        of_seeds = np.broadcast_to(self.seed_errors, self.parts.shape) ** 2
        doubt = of_seeds**2 / max(1, self.seeds - 1)
        many = np.full(doubt.shape, MANY_DEGREES)
        degrees = np.divide((of_examples + of_seeds) ** 2, doubt, out=many, where=doubt > 0).clip(1, MANY_DEGREES)
        return stdtrit(degrees, 1 - tail), degrees


def estimate(
    estimands: Sequence[Estimand],
    settings: JudgeParams,
    *,
    seedless: bool = False,
    examples_share: float = 1.0,
    within: tuple[float, float] = (float("-inf"), float("inf")),
    of_row: float = 0.0,
) -> Estimate:
    """Return an estimate of the quantity from one estimand per seed.

    All seeds use the same resamples of a block, since they were evaluated on the same examples. Blocks are resampled
    independently. The interaction of seeds and examples is counted once, as part of the seed variance.

    Args:
        examples_share: Factor by which the sampling error of the examples is multiplied. 0 if the estimate applies
            only to these examples.
        of_row: Largest effect of a single row on the sum over rows. 0 if unknown.
    """
    from scipy.special import ndtri

    count = len(estimands)
    by_seed = _replicates(estimands, settings)
    of_parts = np.stack([estimand.parts for estimand in estimands])
    if not all(estimand.sampled for estimand in estimands):
        examples_share = 0.0
    parts = of_parts.mean(0)
    place = decisive(parts, estimands[0].extreme)
    counted, interaction = np.full(len(parts), examples_share), np.zeros(len(parts))
    spread, seed_errors = None, np.zeros(len(parts))
    if not seedless and count >= FEWEST_SEEDS:
        of_mean, of_each = by_seed.mean(0).var(0), by_seed.var(1).mean(0)
        of_all = np.clip((count * of_mean - of_each) / (count - 1), 0, of_mean)  # effects of examples on all seeds
        interaction = np.sqrt(np.clip(of_each - of_all, 0, None))
        counted *= np.sqrt(np.divide(of_all, of_mean, out=np.ones_like(of_mean), where=of_mean > 0))
        stds = of_parts.std(0, ddof=1)
        spread = Spread(float(stds[place]), count - 1, "these seeds")
        seed_errors = stds * np.sqrt(1 / count + estimands[0].published)
    sampled = (zip_longest(estimand.blocks, estimand.clusters) for estimand in estimands if estimand.sampled)
    fewest = min((_fewest(block, clusters) for pairs in sampled for block, clusters in pairs), default=np.inf)
    examples_error = sampling_error = float(by_seed.mean(0)[:, place].std())
    if any(estimand.drawn for estimand in estimands):
        examples_error = float(_replicates(estimands, settings, annotated=False).mean(0)[:, place].std())
    elif _alike(by_seed.mean(0))[place]:
        examples_error = sampling_error = of_row * unseen_share(fewest, UNSEEN) / -float(ndtri(UNSEEN))
    return Estimate(
        value=float(parts[place]),
        parts=parts,
        replicates=parts + counted * (by_seed.mean(0) - parts),
        extreme=estimands[0].extreme,
        seeds=count,
        examples=sum(len(block) for block in estimands[0].blocks),
        spread=spread,
        sampling_error=float(counted[place]) * sampling_error,
        examples_error=float(counted[place]) * examples_error,
        fewest=fewest,
        published=estimands[0].published,
        seedless=seedless,
        within=within,
        interaction=float(interaction[place]),
        seed_errors=seed_errors,
        of_row=of_row * counted,
    )


def unseen_share(rows: float, tail: float) -> float:
    """Return the largest share that a type of row can have if it does not occur among `rows` random rows.

    This is the exact binomial limit (Clopper and Pearson 1934), which is about 3 / `rows` if `tail` is 5%. The
    probability that the limit is too low is `tail`.

    >>> round(unseen_share(60, 0.05), 3), unseen_share(float("inf"), 0.05)
    (0.049, 0.0)
    """
    return float(1 - tail ** (1 / rows)) if rows else 1.0


def _alike(replicates: Replicates) -> Bool[np.ndarray, " parts"]:
    """Return, for each part, whether all resamples are equal, apart from rounding."""
    return np.ptp(replicates, axis=0) < ROUNDING


def far_seed(values: Sequence[float], least: float) -> tuple[int, float] | None:
    """Return the index of the seed farthest from the mean of the others, and its distance in standard deviations.

    The standard deviation is also computed from the others. If these are equal, the distance is infinite for a seed
    that differs by more than `least`. Return None if there are too few seeds, or if the distance is at most `FAR_SEED`.

    >>> far_seed([60.0, 61.0, 59.0, 60.0, 60.0], 1), far_seed([60.0, 61.0, 59.0, 60.0, 50.0], 1)[0]
    (None, 4)
    >>> far_seed([60.0, 60.0, 60.0, 60.5], 1), far_seed([60.0, 60.0, 60.0, 0.0], 1)[0]
    (None, 3)
    """
    if len(values) <= FEWEST_SEEDS:
        return None
    distances = []
    for place, value in enumerate(values):
        others = np.delete(values, place)
        difference, spread = abs(value - float(others.mean())), float(others.std(ddof=1))
        equal = np.inf if difference > max(least, ROUNDING) else 0.0
        distances.append(difference / spread if spread > ROUNDING else equal)
    place = int(np.argmax(distances))
    return (place, distances[place]) if distances[place] > FAR_SEED else None


def _fewest(block: Float[np.ndarray, "rows k"], clusters: Clusters) -> float:
    """Count the rows (or clusters of rows) with a value in each nonempty column, and return the smallest count."""
    present = ~np.isnan(block)
    if clusters is not None:
        together = np.zeros((int(clusters.max()) + 1, block.shape[1]), dtype=bool)
        np.logical_or.at(together, clusters, present)
        present = together
    counts = present.sum(0)
    return float(min(counts[counts > 0], default=0))


def _replicates(estimands: Sequence[Estimand], settings: JudgeParams, annotated: bool = True) -> BySeed:
    """Return each seed's statistic on each resample. Draws depend on a block's position and size, not on the model."""
    together = zip(*(estimand.blocks for estimand in estimands), strict=True)
    by_block, replicates = [], []
    for place, (blocks, drawn, clusters) in enumerate(zip_longest(together, estimands[0].drawn, estimands[0].clusters)):
        block = np.hstack(blocks)
        if drawn is not None and not annotated:  # annotated heads, which are then not resampled
            means = column_means(block)
        elif clusters is None and len(block) * settings.resamples <= CACHED_DRAWS:
            means = column_means(block, _draws(settings, place, len(block), drawn))
        else:
            rng = np.random.default_rng([settings.seed, place])
            means = resampled_means(block, rng, settings.resamples, drawn, clusters)
        by_block.append(np.split(means, np.cumsum([each.shape[1] for each in blocks])[:-1], axis=1))
    for estimand, own in zip(estimands, zip(*by_block, strict=True), strict=True):
        values = np.asarray(estimand.statistic(*own), dtype=np.float64)
        parts = values.shape[-1] if estimand.extreme is not None else 1
        replicates.append(np.broadcast_to(values.reshape(-1, parts), (settings.resamples, parts)))
    return np.stack(replicates)


@lru_cache(maxsize=4)
def _draws(settings: JudgeParams, place: int, rows: int, drawn: int | None) -> Float[np.ndarray, "resamples rows"]:
    """Return how often each row is drawn in each resample, cached because many estimates use the same draws."""
    rng = np.random.default_rng([settings.seed, place])
    return np.concatenate(list(resample_counts(rng, rows, settings.resamples, drawn=drawn)))


def with_interval(
    block: Float[np.ndarray, "examples k"], statistic: Callable[[np.ndarray], np.ndarray], settings: JudgeParams
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """Return the statistic of each head with both ends of its 95% bootstrap interval over examples.

    The intervals are not corrected for multiplicity: about seven of 144 intervals miss the true value.
    """
    values = statistic(column_means(block)[0])
    replicates = resampled_means(block, np.random.default_rng(settings.seed), settings.resamples)
    return values, *central_interval(statistic(replicates), 0.95)
