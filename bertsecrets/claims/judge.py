"""The judge: whether a measurement agrees with a claim, by comparing resampling intervals with bands.

An order (`above`, `below`) is decided by the share of bootstrap resamples in which it holds. A figure (`around`) is
decided by equivalence: the observed interval lies inside the band (reproduced), wholly outside (deviates), or across
its edge (inconclusive). Too little data never pass: with fewer examples than a sign test needs the outcome is
inconclusive, and no band becomes wider as the measured data shrink.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bertsecrets.claims.band import at_published_size, band, format_number, too_wide, too_wide_reason
from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import Estimate, estimate, power
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case, Outcome
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.registry import get_measure
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement


def judge(case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams) -> Verdict:
    """Return the verdict on a claim from the measurements of each seed.

    Args:
        by_seed: per seed, what the claim's quantity needs, by name (`plan.measure_case`).
    """
    claim = case.claim
    assert claim.quantity is not None
    assert claim.expect is not None
    measurements = tuple(measurement for needed in by_seed for measurement in all_of(needed))
    problem = shape_problem(case, measurements[0])
    try:
        quantity = QUANTITIES[claim.quantity]
        estimands = [] if problem else [quantity.read(needed, **claim.arguments) for needed in by_seed]
    except NotApplicableError as error:
        problem = str(error)
    if problem:
        return Verdict(case, "not applicable", problem, measurements=measurements)
    observed = estimate(estimands, settings, case.figure.seed_std)
    limits = band(case, settings.confidence, at_published_size(case, observed, measurements))
    outcome, reason = _outcome(estimands, observed, limits, settings.decided)
    computable = bool(np.isfinite([observed.value, *observed.replicates]).all())
    return Verdict(
        case,
        outcome,
        "; ".join([reason, *_notes(estimands)]),
        observed=observed.value if computable else None,
        interval=observed.interval(0.95) if computable else None,
        band=limits,
        measurements=measurements,
        power=_power(measurements, observed, limits, settings.decided),
    )


def all_of(needed: Mapping[str, Needed]) -> list[Measurement]:
    """Return all measurements of one seed, in the order of the needs and, of each, of its tasks."""
    return [
        measurement
        for of_need in needed.values()
        for measurement in (of_need if isinstance(of_need, tuple) else (of_need,))
    ]


def _outcome(
    estimands: Sequence[Estimand], observed: Estimate, limits: tuple[float, float], decided: float
) -> tuple[Outcome, str]:
    """Return outcome and reason, also where something else than the resamples decides."""
    if too_wide(limits):
        return "inconclusive", too_wide_reason(limits)
    least = fewest_that_decide(decided)
    if observed.fewest < least and np.isfinite(observed.replicates).all():
        return "inconclusive", f"fewer than {least} examples cannot decide anything"
    outside = observed.value <= limits[0] or observed.value >= limits[1]
    if outside and all(estimand.refuted for estimand in estimands):
        return "deviates", estimands[0].refuted
    return decide(observed, limits, decided)


def _power(measurements: Sequence[Measurement], observed: Estimate, limits: tuple[float, float], decided: float) -> str:
    """Return how many seeds would decide the claim, in words."""
    if all(get_measure(measurement.measure).seedless for measurement in measurements):
        return "seeds make no difference: nothing is trained"
    if too_wide(limits):
        return "more seeds would not help: the band is too wide"
    return power(observed, limits, decided)


def _notes(estimands: Sequence[Estimand]) -> list[str]:
    """Return the notes of the estimands; seed by seed where they differ."""
    by_seed = [", ".join(estimand.notes) for estimand in estimands]
    if len(set(by_seed)) == 1:
        return [note for note in by_seed[:1] if note]
    return [f"seed {place}: {note}" for place, note in enumerate(by_seed, start=1) if note]


def fewest_that_decide(decided: float) -> int:
    """Return the smallest number of examples with which a sign test can reach this confidence, if all of them agree.

    >>> fewest_that_decide(0.95)
    5
    """
    return int(np.ceil(np.log(1 - decided) / np.log(0.5)))


def decide(observed: Estimate, limits: tuple[float, float], decided: float) -> tuple[Outcome, str]:
    """Return outcome and reason of an estimate against a band.

    Args:
        decided: the share of resamples at which an order counts as decided; a figure is decided by the central
            interval that leaves 1 - `decided` on each side (two one-sided tests).
    """
    low, high = limits
    if not np.isfinite(observed.replicates).all():
        return "inconclusive", "the quantity cannot be computed on some of the resamples"
    if np.isinf(low) or np.isinf(high):
        inside = ((observed.replicates > low) & (observed.replicates < high)).mean()
        ties = ((observed.replicates == low) | (observed.replicates == high)).mean()
        if ties == 1:
            return "inconclusive", "nothing to judge: every resample equals the limit exactly"
        share = float(inside + ties / 2)  # a tie counts for both sides equally
        reason = f"holds in {share:.1%} of the resamples"
        if share >= decided:
            return "reproduced", reason
        return ("deviates", reason) if share <= 1 - decided else ("inconclusive", reason + ", which is not decisive")
    tail = 1 - decided
    left, right = observed.interval(1 - 2 * tail)
    shown = f"the {1 - 2 * tail:.0%} interval [{format_number(left)}, {format_number(right)}]"
    if left >= low and right <= high:
        return "reproduced", f"{shown} lies inside the band"
    if right < low or left > high:
        return "deviates", f"{shown} lies outside the band"
    return "inconclusive", f"{shown} crosses the edge of the band"


def shape_problem(case: Case, measurement: Measurement) -> str | None:
    """Return why a claim about particular layers or heads cannot be judged on the measured model; None if it can."""
    wanted = case.claim.needs_shape
    if wanted is None:
        return None
    shapes = [np.shape(value) for value in measurement.values.values() if np.ndim(value) == 2]
    if shapes and tuple(shapes[0]) != tuple(wanted):
        return f"needs {wanted[0]} layers x {wanted[1]} heads; the model has {shapes[0][0]} x {shapes[0][1]}"
    return None
