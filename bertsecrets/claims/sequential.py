"""Interim analyses: seeds are added until a claim is decided, with the error rates of all analyses under control.

Five analyses at 95 % each are wrong in more than 5 % of all cases. So each of them uses the higher level at which all
together keep 95 % (Pocock 1977). Their number is fixed in advance and the same for all runs: an early end (a decision,
a budget) can only reduce errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from bertsecrets.claims.error_rates import LEAST
from bertsecrets.claims.estimate import Spread
from bertsecrets.claims.judge import judge
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.settings import JudgeParams

ANALYSES = 5  # planned: after 1, 2, 3, 4 and 5 seeds
NODES = 96  # of the quadrature


def judge_interim(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams, known: Spread | None = None
) -> Verdict:
    """Return the verdict of the interim analysis after these seeds; earlier analyses must have left the claim open.

    Args:
        by_seed: as for `judge`, in the order in which the seeds were added; at most the first `ANALYSES` are used.
    """
    if case.claim.seedless:
        return judge(case, by_seed, settings, known)
    confidence = interim_confidence(settings.confidence)
    own = settings.model_copy(update={"confidence": confidence})
    verdict = judge(case, by_seed[:ANALYSES], own, known)
    if verdict.interval is None:
        return verdict
    place = min(len(by_seed), ANALYSES)
    return replace(
        verdict,
        interim=f"interim analysis {place} of at most {ANALYSES} ({100 * confidence:.1f} % interval)",
        p_against=overall_p_value(verdict.p_against, settings.confidence),
        p_for=overall_p_value(verdict.p_for, settings.confidence),
    )


def judge_in_sequence(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams, known: Spread | None = None
) -> Verdict:
    """Return the verdict of the first interim analysis that decides a claim, or that further seeds cannot change."""
    for count in range(1, len(by_seed) + 1):
        verdict = judge_interim(case, by_seed[:count], settings, known)
        if not verdict.open or count == ANALYSES:
            break
    return verdict


def overall_p_value(p_value: float | None, confidence: float) -> float | None:
    """Return the p-value of all interim analyses together from that of one.

    >>> round(overall_p_value(1 - interim_confidence(0.95), 0.95), 3), overall_p_value(1.0, 0.95)
    (0.05, 1.0)
    """
    from scipy.special import ndtri

    if p_value is None:
        return None
    rate = 1 - _within(float(-ndtri(p_value / 2)), ANALYSES)
    decided = p_value <= 1 - interim_confidence(confidence)
    return float(np.clip(rate, LEAST, 1 - confidence if decided else 1.0))


@cache
def interim_confidence(confidence: float, analyses: int = ANALYSES) -> float:
    """Return the confidence of each interim analysis at which all of them together have the one given.

    The means of the analyses are those of a random walk, after steps of equal size (Pocock 1977, table 1).

    >>> round(interim_confidence(0.95), 4), round(interim_confidence(0.95, 2), 4), round(interim_confidence(0.95, 1), 4)
    (0.9842, 0.9706, 0.95)
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    bound = float(brentq(lambda reach: _within(reach, analyses) - confidence, 0.5, 8))
    return float(1 - 2 * ndtr(-bound))


def _within(reach: float, analyses: int) -> float:
    """Return the chance that no analysis of a random walk is further than `reach` of its standard deviations from 0."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    density = np.exp(-((reach * nodes) ** 2) / 2) / np.sqrt(2 * np.pi)
    for count in range(1, analyses):
        before, here = reach * np.sqrt(count) * nodes, reach * np.sqrt(count + 1) * nodes
        step = np.exp(-((here[:, None] - before) ** 2) / 2) / np.sqrt(2 * np.pi)
        density = step @ (reach * np.sqrt(count) * weights * density)
    return float(reach * np.sqrt(analyses) * weights @ density)
