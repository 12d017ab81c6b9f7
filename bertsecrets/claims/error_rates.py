"""The smallest error rates at which a decision would still be made: the p-values against a claim and for it."""

from collections.abc import Callable

import numpy as np

from bertsecrets.claims.band import reach
from bertsecrets.claims.estimate import Estimate

LEAST = 1e-6  # the smallest that is told apart: no resampling and no spread of a few seeds says more
PRECISION = 1.05  # the result may be so many times the smallest rate itself: every step costs an interval
DRAWS = 5  # in each tail: an interval with fewer beyond its ends goes by Student's t instead


def smallest_rate(decided: Callable[[float], bool], rate: float) -> float:
    """Return the smallest error rate at which something is decided; `LEAST` if it always is, 1 if it never is.

    Args:
        decided: whether it is, at an error rate; if at one, then at every larger one.
        rate: the one that the run decides at. The result is not above it exactly if something is decided there.

    >>> 0.012 <= smallest_rate(lambda rate: rate > 0.012, 0.05) <= 0.0126
    True
    """
    low, high = (LEAST, rate) if decided(rate) else (rate, 1.0)
    if low == LEAST and decided(LEAST):
        return LEAST
    while high > PRECISION * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def interval_at(observed: Estimate, rate: float, run: float) -> tuple[float, float]:
    """Return an estimate's central interval at an error rate.

    Where hardly any draws lie beyond its ends, it is that of a larger error rate, stretched as Student's t is.

    Args:
        run: the error rate that the run decides at, at which the draws always suffice.
    """
    edge = min(run, 2 * DRAWS / len(observed.replicates))
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
