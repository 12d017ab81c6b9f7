"""From readings to an estimate: bootstrap over examples, Student's t over seeds, and how many seeds would decide."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from bertsecrets.claims.estimand import Reading, column_means
from bertsecrets.settings import JudgeParams

AT_ONCE = 100  # resamples drawn at a time: bounds memory
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
        """The central bootstrap interval."""
        tail = (1 - confidence) / 2
        low, high = np.quantile(self.replicates, [tail, 1 - tail])
        return float(low), float(high)


def estimate(readings: Sequence[Reading], settings: JudgeParams, seed_std: float | None = None) -> Estimate:
    """A quantity from one reading per seed: a bootstrap over examples, and Student's t over seeds.

    The examples of a block are resampled alike for every seed, since all seeds saw the same ones; blocks are resampled
    apart. To the mean over n seeds comes t(n - 1) * spread / sqrt(n), as wide as so few seeds deserve (resampling two
    or three seeds would be far too narrow). With a single seed the cited spread, where there is one, is added instead.
    """
    rng = np.random.default_rng(settings.seed)
    resamples = settings.resamples
    values = np.array([reading.value for reading in readings])
    by_seed = np.stack([_replicates(reading, settings) for reading in readings])
    if len(readings) == 1:
        spread = seed_std
        replicates = by_seed[0] + rng.normal(0, seed_std or 0.0, resamples)
    else:
        spread = float(values.std(ddof=1))
        degrees = len(readings) - 1
        replicates = by_seed.mean(0) + rng.standard_t(degrees, resamples) * spread / np.sqrt(len(readings))
    examples = sum(len(block) for block in readings[0].blocks)
    error = float(by_seed.mean(0).std())
    examples_error = error
    if any(reading.drawn for reading in readings):
        alone = np.stack([_replicates(reading, settings, annotated=False) for reading in readings])
        examples_error = float(alone.mean(0).std())
    fewest = min((_rows(block) for reading in readings if reading.sampled for block in reading.blocks), default=np.inf)
    return Estimate(float(values.mean()), replicates, len(readings), examples, error, spread, fewest, examples_error)


def _rows(block: Float[np.ndarray, "rows k"]) -> float:
    """How many rows have something to give."""
    return float((~np.isnan(block).all(1)).sum())


def _replicates(reading: Reading, settings: JudgeParams, annotated: bool = True) -> Float[np.ndarray, " resamples"]:
    """The statistic of each resample; with `annotated` False, blocks with a number of their own stay as they are."""
    drawn = reading.drawn or (None,) * len(reading.blocks)
    means = (
        _resampled(block, settings, place, number) if annotated or number is None else block.mean(0, keepdims=True)
        for place, (block, number) in enumerate(zip(reading.blocks, drawn, strict=True))
    )
    return np.asarray(reading.statistic(*means), dtype=np.float64)


def _resampled(
    block: Float[np.ndarray, "rows k"], settings: JudgeParams, place: int, drawn: int | None = None
) -> Float[np.ndarray, "draws k"]:
    """The column means of each resample; equal for equal rows at the same place, whatever the seed of training."""
    rng = np.random.default_rng([settings.seed, place])
    rows, found = len(block), []
    for start in range(0, settings.resamples, AT_ONCE):
        size = min(AT_ONCE, settings.resamples - start)
        counts = rng.multinomial(drawn or rows, np.full(rows, 1 / rows), size=size)
        found.append(column_means(block, counts.astype(np.float64)))
    return np.concatenate(found)


def power(observed: Estimate, limits: tuple[float, float], decided: float) -> str:
    """How many seeds would decide a claim at this confidence, if the truth is what was observed.

    More seeds shrink the seed-to-seed part of the error (`seed_std` over the root of their number, as wide as Student's
    t of so few makes it); the sampling error of the examples stays. A claim is decided where the nearest limit is
    further away than both together reach. One seed alone is judged with the cited spread as if it were known.
    """
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
