"""From estimands to an estimate: bootstrap over examples, Student's t over seeds, and how many seeds would decide."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import central_interval, resampled_means
from bertsecrets.claims.estimand import Estimand
from bertsecrets.settings import JudgeParams

MOST_SEEDS = 1000  # that a power statement counts up to


@dataclass(frozen=True)
class Estimate:
    """An observed quantity: its mean over seeds, bootstrap replicates of it, and how many examples and seeds it has.

    `sampling_error` is what the choice of samples alone contributes, `examples_error` that of examples without the
    annotated heads that say how a classifier errs; `seed_std` the seed-to-seed standard deviation:
    that of the seeds themselves where there are several, else the cited one, else None. `fewest` is the size of the
    smallest sample that stands for more than itself; infinite where none does.
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
        """Return the central bootstrap interval."""
        low, high = central_interval(self.replicates, confidence)
        return float(low), float(high)


def estimate(estimands: Sequence[Estimand], settings: JudgeParams, seed_std: float | None = None) -> Estimate:
    """Return the estimate from one estimand per seed: a bootstrap over examples, and Student's t over seeds.

    The examples of a block are resampled alike for every seed, since all seeds saw the same ones; blocks are resampled
    apart. To the mean over n seeds comes t(n - 1) * spread / sqrt(n), as wide as so few seeds deserve (resampling two
    or three seeds would be far too narrow). With a single seed the cited spread, where there is one, is added instead.
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
    """Return how many rows have something to give."""
    return float((~np.isnan(block).all(1)).sum())


def _replicates(estimand: Estimand, settings: JudgeParams, annotated: bool = True) -> Float[np.ndarray, " resamples"]:
    """Return the statistic of each resample; equal for equal rows at the same place, whatever the seed of training.

    Args:
        annotated: if False, blocks with a number to draw of their own stay as they are.
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


def power(observed: Estimate, limits: tuple[float, float], decided: float) -> str:
    """Return how many seeds would decide a claim at this confidence, if the truth is what was observed, in words.

    More seeds shrink the seed-to-seed part of the error (`seed_std` over the root of their number, as wide as Student's
    t of so few makes it); the sampling error of the examples stays. A claim is decided where the nearest limit is
    further away than both together reach. One seed alone is judged with the cited spread as if it were known.
    """
    from scipy import stats  # most of a second to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    at = f"at {decided:.0%}"
    normal = float(stats.norm.ppf(decided))
    if not np.isfinite([*finite, observed.sampling_error]).all():
        return "no power statement: the quantity cannot be computed on all resamples"
    if normal * observed.sampling_error >= min(finite):
        return (
            f"no number of seeds decides this {at}: what was sampled leaves more doubt than the distance to the limit"
        )
    if observed.seed_std is None:
        return "seed-to-seed spread unknown: --seeds 2 or more measures it"
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
    return f"{needed} seed{'s' if needed > 1 else ''} would decide this {at} (by {spread} seed-to-seed spread)"
