"""p-values against and for a claim, and the number of seeds or examples needed to decide it."""

from collections.abc import Callable, Sequence

import numpy as np

from bertsecrets.claims.band import reach
from bertsecrets.claims.estimate import FEWEST_SEEDS, Estimate

TARGET_POWER = 0.8
POWER_SEARCH_LIMIT = 1000  # the largest number of seeds considered
SMALLEST_P_VALUE = 1e-6  # the smallest p-value; neither resampling nor a few seeds can support a smaller one
P_VALUE_TOLERANCE = 1.05  # relative tolerance of p-values; each bisection step computes an interval
MIN_TAIL_DRAWS = 5  # minimum number of draws in each tail; otherwise the tail of Student's t is used


def smallest_rate(decided: Callable[[float], bool], rate: float) -> float:
    """Return the smallest error rate at which a decision is made; `SMALLEST_P_VALUE` if it always is, 1 if it never is.

    Args:
        decided: Whether a decision is made at an error rate. Must be monotonic: true for all larger rates as well.
        rate: Error rate of the run. The result is at most `rate` if and only if `decided(rate)`.

    >>> 0.012 <= smallest_rate(lambda rate: rate > 0.012, 0.05) <= 0.0126
    True
    """
    low, high = (SMALLEST_P_VALUE, rate) if decided(rate) else (rate, 1.0)
    if low == SMALLEST_P_VALUE and decided(SMALLEST_P_VALUE):
        return SMALLEST_P_VALUE
    while high > P_VALUE_TOLERANCE * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def interval_at(observed: Estimate, rate: float, run: float) -> tuple[float, float]:
    """Return an estimate's central interval at an error rate.

    If there are too few draws in the tails, the interval at a larger error rate is stretched by the ratio of the
    quantiles of Student's t.

    Args:
        run: Error rate of the run, for which the number of draws always suffices.
    """
    edge = min(run, 2 * MIN_TAIL_DRAWS / len(observed.replicates))
    if rate >= edge:
        return observed.interval(1 - rate)
    errors = [(observed.sampling_error, np.inf)]
    if observed.spread is not None:
        runs = np.sqrt(1 / observed.seeds + observed.published)
        errors.append((float(observed.spread.std * runs), observed.spread.degrees))
    here = reach(errors, 1 - edge)
    stretch = reach(errors, 1 - rate) / here if here > 0 else 1.0
    low, high = observed.interval(1 - edge)
    ends = observed.value + stretch * (np.array([low, high]) - observed.value)
    low, high = np.clip(ends, *observed.within)
    return float(low), float(high)


def power(observed: Estimate, limits: Sequence[float], confidence: float, least: float = 0.0) -> str:
    """Return, as text, how many seeds decide a claim with 80 % power if the observed value is the true one.

    More seeds reduce the seed variance but not the sampling error of the examples. If the sampling error is already too
    large, the text gives the number of examples instead.

    Args:
        limits: Values that the interval must exclude; infinite values are ignored.
        least: Smallest effect of interest, if the limit is 0. An interval inside it is also a decision.
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    if not observed.computable:
        return "the number of seeds needed is unknown: the quantity cannot be computed on every resample"
    distance, share = max(min(finite), least - abs(observed.value)), (1 + confidence) / 2
    if distance <= 0:
        return "no number of seeds can decide a value at the limit"
    if observed.spread is None and not observed.seedless:
        return f"the number of seeds needed is unknown: run {FEWEST_SEEDS} or more to estimate their variation"
    of_examples = float(ndtri(share) + ndtri(TARGET_POWER)) * observed.sampling_error
    of_seeds = np.zeros(1)
    if observed.spread is not None:
        seeds = np.arange(1, POWER_SEARCH_LIMIT + 1)
        runs = np.sqrt(1 / seeds + observed.published)
        of_seeds = (stdtrit(np.maximum(1, seeds - 1), share) + ndtri(TARGET_POWER)) * observed.spread.std * runs
    if of_examples >= distance:
        now = float(of_seeds[min(observed.seeds, len(of_seeds)) - 1])
        left = distance**2 - now**2 if now < distance else distance**2
        examples = int(np.ceil(observed.examples * of_examples**2 / left))
        also = "" if now < distance else ", and more seeds,"
        return f"about {examples} examples{also} would be needed to decide this, instead of {observed.examples}"
    if observed.seedless:
        probability = f"{TARGET_POWER:.0%} probability"
        return f"these {observed.examples} examples decide this with {probability}; seeds make no difference"
    enough = np.flatnonzero(np.hypot(of_seeds, of_examples) <= distance) + 1
    if not len(enough):
        return f"more than {POWER_SEARCH_LIMIT} seeds would be needed to decide this"
    return f"{max(enough[0], FEWEST_SEEDS)} seeds would decide this with {TARGET_POWER:.0%} probability"
