"""Verdicts that are looked at after every seed: seeds are added until a claim is decided, at an error rate that holds.

Whoever looks five times, each time at 95 %, is wrong more often than in one case of twenty. So every look is taken at
the higher level at which all of them together keep 95 % (Pocock 1977). Their number is planned beforehand and is the
same for all runs: what ends them earlier (a decision, a budget) can only make errors rarer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from bertsecrets.claims.error_rates import LEAST
from bertsecrets.claims.judge import judge
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case
from bertsecrets.claims.spread import Spread
from bertsecrets.claims.verdict import Verdict
from bertsecrets.settings import JudgeParams

LOOKS = 5  # that are planned: after 1, 2, 3, 4 and 5 seeds
NODES = 96  # of the quadrature


def judge_in_looks(
    case: Case,
    by_seed: Sequence[Mapping[str, Needed]],
    settings: JudgeParams,
    known: Spread | None = None,
    *,
    first: int = 1,
) -> Verdict:
    """Return the verdict of the first look that decides a claim, or that leaves nothing for further seeds to decide.

    Args:
        by_seed: as for `judge`, in the order in which the seeds were added; those after the last look are left out.
        first: the look to begin with, where those before it are known to have decided nothing.
    """
    if case.claim.seedless:
        return judge(case, by_seed, settings, known)
    confidence = at_each_look(settings.confidence)
    own = settings.model_copy(update={"confidence": confidence})
    last = min(len(by_seed), LOOKS)
    for count in range(min(first, last), last + 1):
        verdict = judge(case, by_seed[:count], own, known)
        if not verdict.open:
            break
    if verdict.interval is None:
        return verdict
    counts = ", ".join(map(str, range(1, count + 1)))
    plural = "seed" if count == 1 else "seeds"
    return replace(
        verdict,
        looks=f"looked after {counts} {plural} of at most {LOOKS}; each at {100 * confidence:.1f} %",
        p_against=of_all_looks(verdict.p_against, settings.confidence),
        p_for=of_all_looks(verdict.p_for, settings.confidence),
    )


def of_all_looks(p_value: float | None, confidence: float) -> float | None:
    """Return the p-value of one look as that of all: the error rate that they have together if each has this one.

    >>> round(of_all_looks(1 - at_each_look(0.95), 0.95), 3), of_all_looks(1.0, 0.95)
    (0.05, 1.0)
    """
    from scipy.special import ndtri

    if p_value is None:
        return None
    rate = 1 - _within(float(-ndtri(p_value / 2)), LOOKS)
    decided = p_value <= 1 - at_each_look(confidence)
    return float(np.clip(rate, LEAST, 1 - confidence if decided else 1.0))


@cache
def at_each_look(confidence: float, looks: int = LOOKS) -> float:
    """Return the confidence of each look with which all of them together have the one given.

    The looks of a mean are those of a random walk, after steps of equal size (Pocock 1977, table 1).

    >>> round(at_each_look(0.95), 4), round(at_each_look(0.95, 2), 4), round(at_each_look(0.95, 1), 4)
    (0.9842, 0.9706, 0.95)
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    bound = float(brentq(lambda reach: _within(reach, looks) - confidence, 0.5, 8))
    return float(1 - 2 * ndtr(-bound))


def _within(reach: float, looks: int) -> float:
    """Return the chance that no look of a random walk is further off than `reach` of its own standard deviations."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    density = np.exp(-((reach * nodes) ** 2) / 2) / np.sqrt(2 * np.pi)
    for look in range(1, looks):
        before, here = reach * np.sqrt(look) * nodes, reach * np.sqrt(look + 1) * nodes
        step = np.exp(-((here[:, None] - before) ** 2) / 2) / np.sqrt(2 * np.pi)
        density = step @ (reach * np.sqrt(look) * weights * density)
    return float(reach * np.sqrt(looks) * weights @ density)
