"""Confidence levels for analyses after 3, 4 and 5 seeds that control the error rate of all three analyses together.

For an order or an equality, two errors are possible: finding that it holds when it does not, and finding that it
deviates when it does not. Over all analyses together, the probability of each error is at most the run's error rate.
All analyses have the same nominal level (Pocock 1977). For a figure, a deviation before the last analysis is tested at
a tenth of the error rate. The level depends on the number of seeds, not on the command, and the schedule is fixed in
advance. Stopping early, because of a decision or a budget, therefore cannot increase error rates.
"""

from functools import cache
from itertools import pairwise

import numpy as np

from bertsecrets.claims.estimate import SMALLEST_P_VALUE

ANALYSES = (3, 4, 5)  # numbers of usable seeds
MOST_REPLACED = 3  # maximum number of seeds that are replaced because they learned nothing
EARLY_RATE = 1 / 10  # error rate of early deviations of a figure, relative to that of the last analysis
QUADRATURE_NODES = 96


def early_rate(seeds: int) -> float:
    """Return the factor applied to the error rate for deviations from a figure in the analysis after `seeds` seeds."""
    return 1.0 if seeds >= ANALYSES[-1] else EARLY_RATE


def one_sided(confidence: float) -> float:
    """Return the confidence level of a central interval whose error rate is 1 - confidence at each end.

    >>> round(one_sided(0.95), 3)
    0.9
    """
    return 2 * confidence - 1


def overall_p_value(p_value: float) -> float:
    """Return the one-sided p-value of one analysis, corrected for the number of analyses.

    >>> round(overall_p_value((1 - interim_confidence(0.9)) / 2), 4), overall_p_value(1.0)
    (0.05, 1.0)
    """
    from scipy.special import ndtri

    overall = (1 - _within(float(-ndtri(p_value)))) / 2 if p_value < 0.5 else 0.0
    return float(np.clip(max(overall, p_value), SMALLEST_P_VALUE, 1.0))


@cache
def interim_confidence(confidence: float) -> float:
    """Return the nominal confidence level of each analysis for a given overall level.

    >>> round(interim_confidence(0.95), 3)
    0.974
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    bound = float(brentq(lambda reach: _within(reach) - confidence, 0.01, 8))
    return float(1 - 2 * ndtr(-bound))


def _within(reach: float) -> float:
    """Return the probability that a random walk stays within `reach` standard deviations of 0 at all analyses."""
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    first = reach * np.sqrt(ANALYSES[0])
    density = np.exp(-((first * nodes) ** 2) / (2 * ANALYSES[0])) / np.sqrt(2 * np.pi * ANALYSES[0])
    for before, now in pairwise(ANALYSES):
        ends = reach * np.sqrt([before, now])
        step = np.exp(-((ends[1] * nodes[:, None] - ends[0] * nodes) ** 2) / (2 * (now - before)))
        density = step @ (ends[0] * weights * density) / np.sqrt(2 * np.pi * (now - before))
    return float(reach * np.sqrt(ANALYSES[-1]) * weights @ density)
