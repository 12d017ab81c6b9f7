"""Interim analyses: add seeds until a claim is decided, controlling the error rate over all analyses.

Orders are analysed after 3, 4 and 5 seeds at a constant nominal level, for 95 % overall (Pocock 1977). Figures can
deviate early at 99.5 %, and are reproduced only after the last seed, at 95 %. Seeds that did not learn are replaced.
The schedule is fixed in advance, so stopping early (because of a decision or a budget) cannot increase error rates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from bertsecrets.claims.error_rates import SMALLEST_P_VALUE
from bertsecrets.claims.expectations import Figure
from bertsecrets.claims.judge import judge
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.schema import Case
from bertsecrets.claims.screening import usable
from bertsecrets.claims.verdict import Verdict
from bertsecrets.settings import JudgeParams

ANALYSES = (3, 4, 5)  # numbers of usable seeds
MOST_SEEDS = 8  # maximum number of trained seeds, including those replaced
EARLY_RATE = 1 / 10  # error rate of early deviations of a figure, relative to that of the last analysis
QUADRATURE_NODES = 96


def judge_interim(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams, *, details: bool = True
) -> Verdict:
    """Return the verdict of the interim analysis after these seeds. The claim must still be open after earlier ones.

    Args:
        by_seed: Measurements as for `judge`, in the order in which seeds were added.
        details: Whether to compute p-values and slow notes.
    """
    if case.claim.seedless:
        return judge(case, by_seed, settings, details=details)
    learned = len(usable(by_seed).by_seed)
    last = learned >= ANALYSES[-1] or len(by_seed) >= MOST_SEEDS
    of_figure = isinstance(case.claim.expect, Figure)
    early = 1 if last else EARLY_RATE
    rate = (1 - settings.confidence) * early if of_figure else 1 - interim_confidence(settings.confidence)
    verdict = judge(case, by_seed, settings.model_copy(update={"confidence": 1 - rate}), details=details)
    verdict = replace(verdict, open=verdict.open and not last)
    if verdict.interval is None or learned < ANALYSES[0]:
        return verdict
    if of_figure:
        against = None if verdict.p_against is None else min(1.0, verdict.p_against / early)
    else:
        against = overall_p_value(verdict.p_against, settings.confidence)
    verdict = replace(
        verdict,
        interim=f"analysis after {learned} of at most {ANALYSES[-1]} seeds ({100 * (1 - rate):.3g} % interval)",
        p_against=against,
        p_for=overall_p_value(verdict.p_for, settings.confidence),
    )
    if of_figure and verdict.outcome == "reproduced" and not last and not case.figure.constant_answer:
        cause = Grounds.SO_FAR(now=verdict.reason, seeds=ANALYSES[-1])
        return replace(verdict, outcome="inconclusive", reason=str(cause), cause=cause, open=True)
    return verdict


def judge_in_sequence(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams, *, details: bool = True
) -> Verdict:
    """Return the verdict of the first interim analysis that closes a claim, or that of the last one."""
    for count in range(1, len(by_seed) + 1):
        verdict = judge_interim(case, by_seed[:count], settings, details=details)
        if not verdict.open:
            break
    return verdict


def overall_p_value(p_value: float | None, confidence: float) -> float | None:
    """Return the overall p-value of an order over all interim analyses, given that of one analysis.

    >>> round(overall_p_value(1 - interim_confidence(0.95), 0.95), 3), overall_p_value(1.0, 0.95)
    (0.05, 1.0)
    """
    from scipy.special import ndtri

    if p_value is None:
        return None
    rate = 1 - _within(float(-ndtri(p_value / 2)))
    decided = p_value <= 1 - interim_confidence(confidence)
    return float(np.clip(rate, SMALLEST_P_VALUE, 1 - confidence if decided else 1.0))


@cache
def interim_confidence(confidence: float) -> float:
    """Return the nominal confidence level of each interim analysis of an order for a given overall level.

    >>> round(interim_confidence(0.95), 3)
    0.974
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    bound = float(brentq(lambda reach: _within(reach) - confidence, 0.5, 8))
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
