"""The judge: decides whether measurements agree with a claim, as its expectation says (`expectations`).

At least three seeds are needed for a decision. A published constant answer is reproduced only by the same constant
answer. Claims that depend on what K19 calls vertical are judged under each reading (`patterns.readings`), since section
4.1 and the authors' blog define the word differently. If the readings disagree, the claim is inconclusive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bertsecrets.claims.band import Ends, undecidable
from bertsecrets.claims.eligibility import ModelFacts, NotApplicable, applicability
from bertsecrets.claims.error_rates import interval_at, power, smallest_rate
from bertsecrets.claims.estimand import FEWEST_EXAMPLES, Estimand
from bertsecrets.claims.estimate import FEWEST_SEEDS, estimate
from bertsecrets.claims.expectations import Decision, Evidence, Figure
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import with_ceiling
from bertsecrets.claims.quantity import Needed, all_of
from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.claims.schema import Case
from bertsecrets.claims.screening import usable
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError
from bertsecrets.formats import Outcome
from bertsecrets.patterns.readings import READINGS
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement

READING = "reading"  # argument of the quantities that depend on a reading
OF_CHECKPOINTS = ("the interval is of this checkpoint alone", "the interval is of these checkpoints alone")


def judge(
    case: Case,
    by_seed: Sequence[Mapping[str, Needed]],
    settings: JudgeParams,
    *,
    checkpoint: bool = False,
    details: bool = True,
) -> Verdict:
    """Return the verdict on a claim from the measurements of each seed.

    Args:
        by_seed: For each seed, the measurements that the claim's quantity needs, by name (`requirements.measure_case`).
        checkpoint: Whether to judge a single checkpoint instead of the training procedure. The interval then accounts
            only for the sampling of examples.
        details: Whether to compute p-values and slow notes, which take most of the time and do not affect the outcome.
    """
    readings = under_readings(case)
    if readings:
        verdicts = {
            name: _judge(read_case, by_seed, settings, checkpoint, details) for name, read_case in readings.items()
        }
        verdict = _combined(case, verdicts)
    else:
        verdict = _judge(case, by_seed, settings, checkpoint, details)
    return replace(verdict, interim="this checkpoint") if checkpoint and not case.claim.seedless else verdict


def _judge(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams, checkpoint: bool, details: bool
) -> Verdict:
    """Judge a claim, under the reading given by its arguments if it depends on one."""
    claim = case.claim
    quantity, every = QUANTITIES[claim.quantity], _measurements(by_seed)
    if isinstance(answer := applicability(case, ModelFacts.of_measurement(every[0], claim.measure)), NotApplicable):
        doubtful = answer.reason == undecidable(case)
        cause = Grounds.UNDECIDABLE(doubt=answer.reason) if doubtful else Grounds.OTHER_MODEL(problem=answer.reason)
        return Verdict.because(case, "not applicable", cause, measurements=every)
    counted = usable(by_seed)
    try:
        estimands = [quantity.read(needed, **claim.arguments) for needed in counted.by_seed or by_seed[:1]]
    except NotApplicableError as error:
        return Verdict.because(case, "not applicable", Grounds.NOT_APPLICABLE(message=error), measurements=every)
    if counted.problem:
        return Verdict.because(case, "degenerate", counted.problem, measurements=every, open=counted.more)
    estimands, ceiling = with_ceiling(estimands)
    measurements = _measurements(counted.by_seed)
    figure = claim.expect if isinstance(claim.expect, Figure) else None
    observed = estimate(
        estimands,
        settings,
        seedless=claim.seedless or checkpoint,
        examples_share=figure.share_of_other_rows(measurements) if figure else 1.0,
        within=case.within,
    )
    published_error = figure.published_error(observed, measurements) if figure else 0.0
    evidence = Evidence(case, estimands, observed, published_error, settings.confidence)
    if shortage := _shortage(evidence):
        decision: Decision = "inconclusive", shortage
    else:
        decision = _decide(case, evidence, settings.confidence, observed.interval(settings.confidence))
    outcome, cause = decision
    against, in_favour = _p_values(case, evidence, outcome) if details and not shortage else (None, None)
    notes = [*_notes(estimands, slow=details), *ceiling, *counted.notes]
    power_text = _power(case, evidence) if outcome == "inconclusive" else ""
    if claim.existence:
        against = None  # the claim cannot deviate, so it cannot be a false alarm
        if outcome == "deviates":
            outcome, notes = "inconclusive", ["another head or layer may still have the effect", *notes]
    return Verdict.because(
        case,
        outcome,
        cause,
        *notes,
        observed=observed.value if observed.computable else None,
        interval=observed.interval(settings.confidence) if observed.computable else None,
        band=evidence.limits,
        measurements=measurements,
        by_seed=tuple(tuple(estimand.parts.tolist()) for estimand in estimands),
        extreme=observed.extreme,
        power=power_text,
        open=outcome == "inconclusive" and evidence.seeds_matter,
        p_against=against,
        p_for=in_favour,
        interim="" if observed.spread or observed.seedless else OF_CHECKPOINTS[len(estimands) > 1],
    )


def _measurements(by_seed: Sequence[Mapping[str, Needed]]) -> tuple[Measurement, ...]:
    return tuple(measurement for needed in by_seed for measurement in all_of(needed))


def _shortage(evidence: Evidence) -> Cause | None:
    """Return why these measurements cannot decide the claim, whatever the interval; None if they can."""
    observed = evidence.observed
    if not observed.computable:
        return Grounds.NOT_COMPUTABLE()
    if observed.spread is None and not observed.seedless:
        if evidence.case.figure.constant_answer and not evidence.constant:
            return Grounds.SEVERAL_ANSWERS()
        reason = Grounds.ONE_SEED if observed.seeds == 1 else Grounds.FEW_SEEDS
        return reason(seeds=observed.seeds, needed=FEWEST_SEEDS)
    if unmet := next((estimand.unmet for estimand in evidence.estimands if estimand.unmet), ""):
        return Grounds.UNMET(unmet=unmet)
    if evidence.refuted:
        return None
    if observed.fewest < FEWEST_EXAMPLES:
        return Grounds.FEW_EXAMPLES(needed=FEWEST_EXAMPLES)
    if evidence.constant and observed.examples_error > 0:
        return Grounds.CONSTANT_ON_SAMPLE()
    return Grounds.UNKNOWN_SPREAD() if evidence.limits is None else None


def _decide(case: Case, evidence: Evidence, confidence: float, interval: Ends) -> Decision:
    """Return outcome and reason for an interval at this confidence level; a refuted claim deviates regardless."""
    if evidence.refuted:
        return "deviates", Grounds.REFUTED(refuted=evidence.estimands[0].refuted)
    return case.claim.expect.decide(evidence, confidence, interval)


def _p_values(case: Case, evidence: Evidence, outcome: Outcome) -> tuple[float | None, float | None]:
    """Return the smallest error rates at which the claim would still deviate, and would still be reproduced.

    The second is None for a figure: lying inside a prediction interval does not contradict other values.

    Args:
        outcome: The outcome at the run's confidence.
    """
    run = 1 - evidence.confidence
    if evidence.constant:
        return evidence.chance if evidence.same_constant == {False} else 1.0, None

    def fails(rate: float) -> bool:
        return _decide(case, evidence, 1 - rate, interval_at(evidence.observed, rate, run))[0] == "deviates"

    def holds(rate: float) -> bool:
        limits, (low, high) = evidence.band(1 - rate), interval_at(evidence.observed, rate, run)
        assert limits is not None
        return limits[0] < low and high < limits[1]

    against = smallest_rate(fails, run)
    if isinstance(case.claim.expect, Figure):
        return against, None
    return against, 1.0 if outcome == "deviates" else smallest_rate(holds, run)


def _power(case: Case, evidence: Evidence) -> str:
    """Return what would decide the claim; empty if unknown, or if it is not the interval that leaves it open."""
    expect, limits = case.claim.expect, evidence.limits
    if case.figure.constant_answer or evidence.observed.fewest < FEWEST_EXAMPLES:
        return ""
    if limits is None or not expect.decidable(limits, case.unit) or not (doubtful := expect.doubtful(evidence)):
        return ""
    size = case.smallest_effect[0] if 0.0 in doubtful and not isinstance(expect, Figure) else 0.0
    return power(evidence.observed, doubtful, evidence.confidence, size)


def _notes(estimands: Sequence[Estimand], *, slow: bool) -> list[str]:
    """Return the notes of the estimands, listed by seed if they differ.

    Args:
        slow: Whether to include notes that take long to compute.
    """
    by_seed = []
    for estimand in estimands:
        more = [estimand.slow_note()] if slow and estimand.slow_note else []
        by_seed.append(", ".join([*estimand.notes, *more]))
    if len(set(by_seed)) == 1:
        return [note for note in by_seed[:1] if note]
    return [f"seed {place}: {note}" for place, note in enumerate(by_seed, start=1) if note]


# ---------------------------------------------------------------------- both readings


def under_readings(case: Case) -> dict[str, Case]:
    """Return a case under each reading, by name; empty if the quantity takes no reading or the claim sets one."""
    claim = case.claim
    if READING in claim.arguments or READING not in QUANTITIES[claim.quantity].arguments.parameters:
        return {}
    return {reading: under(case, reading) for reading in READINGS}


def under(case: Case, reading: str) -> Case:
    """Return a case that is judged under only one reading."""
    arguments = {**case.claim.arguments, READING: reading}
    return replace(case, claim=case.claim.model_copy(update={"arguments": arguments}))


def _combined(case: Case, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Combine the verdicts on a case under each reading.

    Observed value, interval, band and values by seed are those of the first reading, that of the paper;
    `Verdict.readings` contains all verdicts. The p-values are the largest over all readings.
    """
    each = list(verdicts.values())
    unjudged = next((verdict for verdict in each if verdict.observed is None), None)
    if unjudged is not None:
        return replace(unjudged, case=case)
    agree = len({verdict.outcome for verdict in each}) == 1
    if agree:
        briefs = dict.fromkeys(verdict.cause.brief for verdict in each if verdict.cause)
        reasons = "; ".join(f"{name}: {verdict.reason}" for name, verdict in verdicts.items())
        cause = Grounds.READINGS_AGREE(readings=reasons, briefs=", ".join(briefs))
    else:
        shown = (f"{name} {verdict.status} ({verdict.observed_text})" for name, verdict in verdicts.items())
        cause = Grounds.READINGS_DISAGREE(readings=", ".join(shown))
    powers = (f"{name}: {verdict.power}" for name, verdict in verdicts.items() if verdict.power)
    against = [verdict.p_against for verdict in each if verdict.p_against is not None]
    in_favour = [verdict.p_for for verdict in each if verdict.p_for is not None]
    return replace(
        each[0],
        case=case,
        outcome=each[0].outcome if agree else "inconclusive",
        reason=str(cause),
        cause=cause,
        power="; ".join(powers) if agree else "",
        open=any(verdict.open for verdict in each),
        p_against=max(against) if len(against) == len(each) else None,
        p_for=max(in_favour) if len(in_favour) == len(each) else None,
        readings=dict(verdicts),
    )
