"""Estimates from estimands: a bootstrap over examples, Student's t over seeds, and the seeds needed to decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import central_interval, column_means, resampled_means
from bertsecrets.claims.estimand import Estimand
from bertsecrets.settings import JudgeParams

MOST_SEEDS = 1000  # the largest number that a power statement considers


@dataclass(frozen=True)
class Estimate:
    """An observed quantity: its mean over seeds, bootstrap replicates of it, and how many examples and seeds it has.

    Args:
        sampling_error: the standard error that comes from the choice of samples, without that of the seeds.
        examples_error: the part of it that comes from the examples, without the annotated heads from which a
            classifier's errors are known.
        seed_std: the seed-to-seed standard deviation: of the seeds themselves where there are several, otherwise the
            cited one; None where neither is known.
        fewest: the size of the smallest block that is a sample of something larger; infinite where none is.
    """

    value: float
    replicates: Float[np.ndarray, " resamples"]
    seeds: int
    examples: int
    sampling_error: float = 0.0
    seed_std: float | None = None
    fewest: float = float("inf")
    examples_error: float = 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the central bootstrap interval that holds this share of the replicates."""
        low, high = central_interval(self.replicates, confidence)
        return float(low), float(high)


def estimate(estimands: Sequence[Estimand], settings: JudgeParams, seed_std: float | None = None) -> Estimate:
    """Return the estimate from one estimand per seed: a bootstrap over examples, and Student's t over seeds.

    Every seed gets the same resamples of a block, since all seeds saw the same examples; blocks are resampled
    independently. The mean over n seeds gets the error t(n - 1) * spread / sqrt(n), which is as wide as few seeds
    require (resampling two or three seeds would be far too narrow). A single seed gets the cited spread, if any.
    """
    rng = np.random.default_rng(settings.seed)
    resamples = settings.resamples
    values = np.array([estimand.value for estimand in estimands])
    by_seed = np.stack([_replicates(estimand, settings) for estimand in estimands])
    if len(estimands) == 1:
        spread = seed_std
        replicates = by_seed[0] + rng.normal(0, seed_std or 0.0, resamples)
    else:
        spread = float(values.std(ddof=1))
        degrees = len(estimands) - 1
        replicates = by_seed.mean(0) + rng.standard_t(degrees, resamples) * spread / np.sqrt(len(estimands))
    sampling_error = examples_error = float(by_seed.mean(0).std())
    if any(estimand.drawn for estimand in estimands):
        of_examples = np.stack([_replicates(estimand, settings, annotated=False) for estimand in estimands])
        examples_error = float(of_examples.mean(0).std())
    sizes = (_rows(block) for estimand in estimands if estimand.sampled for block in estimand.blocks)
    return Estimate(
        value=float(values.mean()),
        replicates=replicates,
        seeds=len(estimands),
        examples=sum(len(block) for block in estimands[0].blocks),
        sampling_error=sampling_error,
        seed_std=spread,
        fewest=min(sizes, default=np.inf),
        examples_error=examples_error,
    )


def _rows(block: Float[np.ndarray, "rows k"]) -> float:
    """Return the number of rows that are not all NaN."""
    return float((~np.isnan(block).all(1)).sum())


def _replicates(estimand: Estimand, settings: JudgeParams, annotated: bool = True) -> Float[np.ndarray, " resamples"]:
    """Return the statistic of each resample; the draws depend on a block's position and size, not on the model.

    Args:
        annotated: if False, blocks that say how many rows to draw (`drawn`) are not resampled.
    """
    means = []
    for place, block in enumerate(estimand.blocks):
        drawn = estimand.drawn[place] if estimand.drawn else None
        if annotated or drawn is None:
            rng = np.random.default_rng([settings.seed, place])
            means.append(resampled_means(block, rng, settings.resamples, drawn))
        else:
            means.append(block.mean(0, keepdims=True))
    return np.asarray(estimand.statistic(*means), dtype=np.float64)


def with_interval(
    block: Float[np.ndarray, "examples k"], statistic: Callable[[np.ndarray], np.ndarray], settings: JudgeParams
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """Return each head's number with both ends of its 95 % bootstrap interval over examples.

    The intervals are not corrected for their number: of 144 intervals at 95 %, about seven miss the truth.
    """
    values = statistic(column_means(block)[0])
    replicates = resampled_means(block, np.random.default_rng(settings.seed), settings.resamples)
    return values, *central_interval(statistic(replicates), 0.95)


def power(observed: Estimate, limits: tuple[float, float], decided: float) -> str:
    """Return, in words, how many seeds would decide a claim at this confidence if the observed value were the truth.

    More seeds shrink the seed-to-seed part of the error (`seed_std` divided by the root of their number, times the
    quantile of Student's t); the sampling error of the examples stays. A claim is decided if the nearest limit is
    further away than both errors together. A single seed is judged as if the cited spread were exactly known.
    """
    from scipy import stats  # most of a second to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    at = f"at {decided:.0%}"
    normal = float(stats.norm.ppf(decided))
    if not np.isfinite([*finite, observed.sampling_error]).all():
        return "the number of seeds needed is unknown: the quantity cannot be computed on every resample"
    if normal * observed.sampling_error >= min(finite):
        return (
            f"more seeds would not decide this {at}: the sampling error alone exceeds the distance to the limit, "
            "so only a larger sample would"
        )
    if observed.seed_std is None:
        return "the number of seeds needed is unknown: measure the seed-to-seed spread with --seeds 2 or more"
    cited = observed.seeds == 1
    if cited and np.hypot(observed.seed_std, observed.sampling_error) * normal < min(finite):
        needed = 1
    else:
        seeds = np.arange(2, MOST_SEEDS + 1)
        quantiles = stats.t.ppf(decided, seeds - 1)
        reach = np.hypot(quantiles * observed.seed_std / np.sqrt(seeds), normal * observed.sampling_error)
        enough = seeds[reach < min(finite)]
        if not len(enough):
            return f"more than {MOST_SEEDS} seeds would be needed to decide this {at}"
        needed = int(enough[0])
    spread = "the cited" if cited else "the seeds' own"
    enough_seeds = "one seed is enough to decide this" if needed == 1 else f"{needed} seeds would decide this"
    return f"{enough_seeds} {at} (by {spread} seed-to-seed spread)"
