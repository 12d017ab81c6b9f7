"""The judge: whether a measurement agrees with a claim, by comparing the interval that is printed with a band.

An order (`above`, `below`) holds if the interval lies beyond its limit; where the paper has a figure, the interval must
not lie below half of it either. A figure (`around`) deviates if the observed one lies outside the prediction interval
around it, and is reproduced inside of it if a model that has learned nothing is excluded. An equality (`equal`) holds
if the interval lies within the smallest effect of interest. An order also deviates if its effect is shown to be
smaller than that. One seed says nothing about others if their spread is unknown. A claim that depends on how a word is
read is judged under each reading.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from bertsecrets.claims.band import (
    at_published_size,
    band,
    decidable,
    format_interval,
    format_number,
    share_of_other_rows,
    smallest_effect,
)
from bertsecrets.claims.error_rates import interval_at, power, seeds_may_decide, smallest_rate
from bertsecrets.claims.estimand import FEWEST, Estimand
from bertsecrets.claims.estimate import Estimate, Spread, estimate
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import with_ceiling
from bertsecrets.claims.quantity import Needed, all_of
from bertsecrets.claims.readings import together, under_readings
from bertsecrets.claims.record import spread_beforehand
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError
from bertsecrets.formats import Outcome
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import published_identities
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement

GIVEN = ("target", "errors", "cluster")  # samples that do not come from the subject
MANY = 100  # examples; two different models never agree on all of so many
ENOUGH = 0.5  # of a published effect: an order with a significantly smaller effect does not reproduce it


def judge(
    case: Case,
    by_seed: Sequence[Mapping[str, Needed]],
    settings: JudgeParams,
    known: Spread | None = None,
    *,
    look_up: bool = True,
) -> Verdict:
    """Return the verdict on a claim from the measurements of each seed.

    Args:
        by_seed: per seed, what the claim's quantity needs, by name (`plan.measure_case`).
        known: the spread over seeds as far as it is known beforehand; by default what is cited or on record.
        look_up: False to take nothing as known where `known` is not given.
    """
    readings = under_readings(case)
    if not readings:
        return _judge(case, by_seed, settings, known, look_up)
    return together(case, {name: _judge(one, by_seed, settings, known, look_up) for name, one in readings.items()})


def _judge(
    case: Case,
    by_seed: Sequence[Mapping[str, Needed]],
    settings: JudgeParams,
    known: Spread | None,
    look_up: bool,
) -> Verdict:
    """Return the verdict on a claim under the reading that it names, if it hangs on one."""
    claim = case.claim
    assert claim.quantity is not None
    assert claim.expect is not None
    measurements = tuple(measurement for needed in by_seed for measurement in all_of(needed))
    problem = model_problem(case, measurements[0])
    try:
        quantity = QUANTITIES[claim.quantity]
        estimands = [] if problem else [quantity.read(needed, **claim.arguments) for needed in by_seed]
    except NotApplicableError as error:
        problem = str(error)
    if problem:
        return Verdict(case, "not applicable", problem, measurements=measurements)
    if (collapsed := degenerate(by_seed)) is not None:
        return Verdict(case, "degenerate", collapsed, measurements=measurements)
    estimands, ceiling = with_ceiling(estimands)
    around = claim.expect.kind == "around"
    observed = estimate(
        estimands,
        settings,
        known or (spread_beforehand(case, measurements[0].subject.model) if look_up else None),
        seedless=claim.seedless,
        examples_share=share_of_other_rows(case, measurements) if around else 1.0,
        within=quantity.within(case.task),
    )
    published_error = at_published_size(case, observed, measurements)
    limits = band(case, settings.confidence, observed, published_error)
    against, in_favour = None, None
    outcome: Outcome = "inconclusive"
    reason = _nothing_decides(estimands, observed, limits)
    if not reason:
        outcome, reason = _outcome(case, estimands, observed, limits, observed.interval(settings.confidence))
        against, in_favour = _p_values(case, estimands, observed, published_error, outcome, settings.confidence)
    if case.claim.existence:
        against = None  # the claim cannot deviate, so it is no false alarm either
        if outcome == "deviates":
            outcome, reason = "inconclusive", f"{reason}; another head or layer may still have the effect"
    undecided, doubtful = outcome == "inconclusive", _doubtful(case, estimands, limits)
    return Verdict(
        case,
        outcome,
        "; ".join([reason, *_notes(estimands), *ceiling]),
        observed=observed.value if observed.computable else None,
        interval=observed.interval(settings.confidence) if observed.computable else None,
        band=limits,
        measurements=measurements,
        by_seed=tuple(tuple(estimand.parts.tolist()) for estimand in estimands),
        extreme=observed.extreme,
        alike=observed.alike,
        power=_power(case, observed, limits, doubtful, settings.confidence) if undecided else "",
        open=undecided and observed.fewest >= FEWEST and seeds_may_decide(observed, doubtful, settings.confidence),
        p_against=against,
        p_for=in_favour,
    )


def _power(
    case: Case,
    observed: Estimate,
    limits: tuple[float, float] | None,
    doubtful: Sequence[float],
    confidence: float,
) -> str:
    """Return what would decide an undecided claim, as text; empty if unknown."""
    if limits is None or not decidable(case, limits):
        return ""
    assert case.claim.expect is not None
    compares_with_0 = case.claim.expect.kind != "around" and 0.0 in doubtful
    least = smallest_effect(case)[0] if compares_with_0 else 0.0
    return power(observed, doubtful, confidence, least) if doubtful else ""


def _nothing_decides(estimands: Sequence[Estimand], observed: Estimate, limits: tuple[float, float] | None) -> str:
    """Return why these measurements cannot decide the claim, whatever the interval; empty if they can."""
    if not observed.computable:
        return "the quantity cannot be computed on some of the resamples"
    if _refuted(estimands, observed, limits):
        return ""
    if observed.fewest < FEWEST:
        return f"fewer than {FEWEST} examples decide nothing"
    if limits is None or (observed.spread is None and not observed.seedless):
        return "only one seed, and the spread over seeds is unknown: measure several seeds"
    return ""


def _refuted(estimands: Sequence[Estimand], observed: Estimate, limits: tuple[float, float] | None) -> bool:
    """Return whether no resample can support the claim, and the observed value is outside its band."""
    outside = limits is not None and (observed.value <= limits[0] or observed.value >= limits[1])
    return outside and all(estimand.refuted for estimand in estimands)


def _outcome(
    case: Case,
    estimands: Sequence[Estimand],
    observed: Estimate,
    limits: tuple[float, float] | None,
    interval: tuple[float, float],
) -> tuple[Outcome, str]:
    """Return outcome and reason; a refuted claim needs no interval."""
    if _refuted(estimands, observed, limits):
        return "deviates", f"{estimands[0].refuted}, whatever the examples: the interval decides nothing here"
    assert limits is not None
    assert case.claim.expect is not None
    if case.claim.expect.kind == "around":
        return _of_figure(case, estimands, observed, limits, interval)
    if case.claim.expect.kind == "equal":
        return decide_equal(interval, limits, smallest_effect(case)[1])
    published = case.figure.published if case.claim.expect.comparable else None
    return decide_order(interval, limits, published, smallest_effect(case))


def _p_values(
    case: Case,
    estimands: Sequence[Estimand],
    observed: Estimate,
    published_error: float,
    outcome: Outcome,
    confidence: float,
) -> tuple[float, float | None]:
    """Return the smallest error rates at which a claim would still deviate, and still be reproduced.

    That a figure is reproduced has none: to lie inside a prediction interval is no evidence against all other values.
    """
    run, expect = 1 - confidence, case.claim.expect
    assert expect is not None

    def fails(rate: float) -> bool:
        limits, interval = band(case, 1 - rate, observed, published_error), interval_at(observed, rate, run)
        return _outcome(case, estimands, observed, limits, interval)[0] == "deviates"

    def holds(rate: float) -> bool:
        limits, (low, high) = band(case, 1 - rate, observed, published_error), interval_at(observed, rate, run)
        assert limits is not None
        return limits[0] < low and high < limits[1]

    against = smallest_rate(fails, run)
    if expect.kind == "around":
        return against, None
    return against, 1.0 if outcome == "deviates" else smallest_rate(holds, run)


def decide_order(
    interval: tuple[float, float],
    limits: tuple[float, float],
    published: float | None = None,
    least: tuple[float, str] = (0.0, ""),
) -> tuple[Outcome, str]:
    """Return outcome and reason of an order: the quantity lies beyond a limit.

    Args:
        published: the paper's figure; an effect of less than half of it does not reproduce it. Only for orders that
            compare with 0: any other limit is itself the size that the claim names.
        least: the smallest effect of interest, and why; for orders that ask for more than 0, or than this effect. They
            deviate if the whole interval is below it.
    """
    low, high = interval
    above = np.isinf(limits[1])
    limit = limits[0] if above else limits[1]
    shown = format_interval(interval)
    if low == high == limit:
        return "inconclusive", "nothing to judge: every resample equals the limit exactly"
    asked, towards = (limit, interval) if above else (-limit, (-high, -low))
    opposite = towards[0] <= -least[0] and (asked == 0 or towards[1] < 0)
    if 0 <= asked <= least[0] and towards[1] < least[0] and not opposite:
        small = f"{shown} is below the smallest effect of interest, {format_number(least[0])} ({least[1]})"
        return "deviates", small
    near, far = (low - limit, high - limit) if above else (limit - high, limit - low)
    if far < 0:
        return "deviates", f"{shown} lies on the other side of the limit"
    if near <= 0:
        return "inconclusive", f"{shown} includes the limit"
    if published is not None and limit == 0:
        effect = published - limit if above else limit - published
        if effect > 0 and far < ENOUGH * effect:
            return "deviates", f"the order holds, but {shown} is less than half of the published effect"
    return "reproduced", f"{shown} lies beyond the limit"


def decide_equal(interval: tuple[float, float], limits: tuple[float, float], why: str) -> tuple[Outcome, str]:
    """Return outcome and reason of an equality: the interval lies within what is of no interest (two one-sided tests).

    Args:
        limits: so far from the value that any other is of interest.
        why: these are the limits.
    """
    (low, high), shown = interval, format_interval(interval)
    if limits[0] < low and high < limits[1]:
        return "reproduced", f"{shown} lies inside {format_interval(limits)}: {why}"
    if high <= limits[0] or low >= limits[1]:
        return "deviates", f"{shown} lies outside {format_interval(limits)}: {why}"
    return "inconclusive", f"{shown} lies partly outside {format_interval(limits)}: {why}"


def _of_figure(
    case: Case,
    estimands: Sequence[Estimand],
    observed: Estimate,
    limits: tuple[float, float],
    interval: tuple[float, float],
) -> tuple[Outcome, str]:
    """Return outcome and reason of a published figure."""
    low, high = limits
    where = f"{format_number(observed.value)} lies {{}} the prediction interval around the published figure"
    if not low <= observed.value <= high:
        return "deviates", where.format("outside")
    if case.figure.constant_answer:
        if all(estimand.constant for estimand in estimands):
            return "reproduced", where.format("inside") + ", and is a constant answer's too"
        return "inconclusive", where.format("inside") + ", which is that of a constant answer; this model gives several"
    if not decidable(case, limits):
        return "inconclusive", f"not decidable: {where.format('inside')}, as nearly anything does"
    nothing = [estimand.nothing for estimand in estimands if estimand.nothing is not None]
    if nothing and interval[0] <= float(np.mean(nothing)) <= interval[1]:
        shown = format_number(float(np.mean(nothing)))
        return "inconclusive", f"{format_interval(interval)} also holds {shown}, {estimands[0].nothing_is}"
    return "reproduced", where.format("inside")


def _doubtful(case: Case, estimands: Sequence[Estimand], limits: tuple[float, float] | None) -> tuple[float, ...]:
    """Return the values that an interval must exclude to decide a claim that is not decided yet."""
    if case.claim.expect is None or case.claim.expect.kind != "around":
        return limits or ()
    nothing = [estimand.nothing for estimand in estimands if estimand.nothing is not None]
    return (float(np.mean(nothing)),) if nothing else ()


def _notes(estimands: Sequence[Estimand]) -> list[str]:
    """Return the notes of the estimands; seed by seed where they differ."""
    by_seed = [", ".join(estimand.notes) for estimand in estimands]
    if len(set(by_seed)) == 1:
        return [note for note in by_seed[:1] if note]
    return [f"seed {place}: {note}" for place, note in enumerate(by_seed, start=1) if note]


def model_problem(case: Case, measurement: Measurement) -> str | None:
    """Return why a claim does not speak of models of this architecture or shape; None if it does."""
    architecture = measurement.provenance.architecture
    if not case.speaks_of(architecture):
        return f"is about {' and '.join(case.claim.architectures)}; the model is {architecture or 'unknown'}"
    if (problem := weights_problem(case, measurement.provenance.weights)) is not None:
        return problem
    shapes = [np.shape(value) for value in measurement.values.values() if np.ndim(value) == 2]
    return shape_problem(case, shapes[0] if shapes else None)


def weights_problem(case: Case, weights: str | None) -> str | None:
    """Return why a claim does not speak of an encoder with these weights; None if it does, or they are unknown.

    Args:
        weights: their identity (`ModelRef.identity`).
    """
    wanted = case.claim.needs_weights
    if wanted is None or weights is None or weights in published_identities(wanted):
        return None
    instead = f"; {case.claim.relative} asks the same of any model" if case.claim.relative else ""
    return f"is about the published weights of {wanted}; this model has others{instead}"


def shape_problem(case: Case, shape: Sequence[int] | None) -> str | None:
    """Return why a claim does not speak of models with so many layers and heads; None if it does, or they are unknown.

    Args:
        shape: the numbers of layers and of the heads in each.
    """
    wanted = case.claim.needs_shape
    if wanted is None or shape is None or tuple(shape) == tuple(wanted):
        return None
    instead = f"; {case.claim.relative} asks the same of any shape" if case.claim.relative else ""
    return f"needs {wanted[0]} layers x {wanted[1]} heads; the model has {shape[0]} x {shape[1]}{instead}"


def degenerate(by_seed: Sequence[Mapping[str, Needed]]) -> str | None:
    """Return why measurements cannot decide any claim (a collapsed model, identical seeds); None if they can.

    Args:
        by_seed: per seed, what the claim's quantity needs, by name.
    """
    for needed in by_seed:
        for measurement in all_of(needed):
            problem = get_measure(measurement.measure).degenerate(measurement)
            if problem:
                return f"{measurement.subject}: {problem}"
    for one, other in combinations(by_seed, 2):
        for first, second in zip(all_of(one), all_of(other), strict=True):
            if first.examples != second.examples:
                return f"{first.subject} and {second.subject} have {first.examples} and {second.examples} examples"
            if get_initialisation(first.subject.initialisation).trains and _identical(first, second):
                return f"{first.subject} and {second.subject} give the same numbers: the seed changes nothing"
    return None


def _identical(one: Measurement, other: Measurement) -> bool:
    """Return whether two trained subjects have exactly the same numbers.

    For predicted classes this takes many examples and more than one class: two seeds may end in the same constant
    answer.
    """
    if one.subject == other.subject:
        return False
    names = [name for name in one.samples if name not in GIVEN and name in other.samples]
    equal = [name for name in names if np.array_equal(one.samples[name], other.samples[name], equal_nan=True)]
    real = [name for name in names if one.samples[name].dtype.kind == "f"]
    if real:
        return all(name in equal for name in real)
    varied = any(np.ptp(one.samples[name]) > 0 for name in names)
    return bool(names) and equal == names and varied and one.examples >= MANY
