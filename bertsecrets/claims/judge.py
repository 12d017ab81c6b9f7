"""The judge, which decides whether measurements agree with what a claim expects (`expectations`).

At least three seeds are needed for a decision.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bertsecrets.claims.band import format_number
from bertsecrets.claims.eligibility import ModelFacts, NotApplicable, applicability
from bertsecrets.claims.estimand import Estimand, with_same_selection
from bertsecrets.claims.estimate import FEWEST_SEEDS, SMALLEST_P_VALUE, Estimate, estimate, far_seed
from bertsecrets.claims.expectations import Evidence, Figure, PValues
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import with_ceiling
from bertsecrets.claims.quantity import OfSeed, all_of, seeds_of
from bertsecrets.claims.reasons import TOO_SMALL, Cause, Grounds
from bertsecrets.claims.schema import Case
from bertsecrets.claims.screening import check_same_rows, usable
from bertsecrets.claims.sequential import (
    ANALYSES,
    MOST_REPLACED,
    early_rate,
    interim_confidence,
    one_sided,
    overall_p_value,
)
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError, NotGivenError
from bertsecrets.formats import PASSES, Outcome
from bertsecrets.models.locations import is_papers_model
from bertsecrets.patterns.readings import AUTHORS
from bertsecrets.progress import counted
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.metrics import FEWEST_EXAMPLES, is_constant
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

A_ROW = {"points": 100.0}  # largest effect of one row on the sum of a quantity over rows, by unit
UNTESTED_GROUNDS = {Grounds.AT_LIMIT, Grounds.SAME_CONSTANT, Grounds.OTHER_CONSTANT}  # decided whatever the p-values
UNDECIDED_GROUNDS = (  # a narrower interval, from more seeds or examples, could decide the claim
    *(Grounds.INCLUDES_LIMIT, Grounds.INCLUDES_NEGLIGIBLE, Grounds.INCLUDES_NOTHING_LEARNED, Grounds.PARTLY_EQUAL),
)
READING = "reading"  # argument of the quantities that depend on a reading
TARGET_POWER = 0.8
PRACTICAL_SEEDS = 20
POWER_SEARCH_LIMIT = 1000  # the largest number of seeds considered


def judge(
    case: Case, by_seed: Sequence[OfSeed], settings: JudgeParams, *, checkpoint: bool = False, details: bool = True
) -> Verdict:
    """Return the verdict on a claim, given the measurements of each seed.

    Args:
        by_seed: For each seed, the named measurements that the claim's quantity needs (`requirements.measure_case`).
        checkpoint: Whether to judge a single checkpoint instead of the training procedure. The interval then accounts
            only for the sampling of examples.
        details: Whether to compute p-values and slow notes, which take most of the time and do not affect the outcome.
    """
    verdict = _judge(by_authors_labels(case, _measurements(by_seed)), by_seed, settings, checkpoint, details)
    verdict = replace(verdict, inputs=tuple(each for needed in by_seed for each in all_of(needed, states=True)))
    return replace(verdict, interim="this checkpoint") if checkpoint and not case.claim.seedless else verdict


def refused(case: Case, error: NotApplicableError, **more: Any) -> Verdict:
    """Return the verdict on a case that cannot be judged because the quantity does not exist or an input is missing."""
    if isinstance(error, NotGivenError):
        return Verdict.because(case, "inconclusive", Grounds.NOT_GIVEN(needed=error), **more)
    return Verdict.because(case, "not applicable", Grounds.NOT_APPLICABLE(message=error), **more)


def judge_in_sequence(
    case: Case, by_seed: Sequence[OfSeed], settings: JudgeParams, fixed: int | None = None, *, details: bool = True
) -> Verdict:
    """Return the verdict of the first analysis that settles a claim or, if no analysis does, of the last analysis.

    Args:
        fixed: Number of seeds to judge at once, not counting replaced seeds. By default, judge after each seed.
    """
    for count in range(min(fixed or 1, len(by_seed)), len(by_seed) + 1):
        verdict = judge(case, by_seed[:count], settings, details=details)
        if fixed is not None:
            verdict = until_replaced(verdict, fixed, count)
        if not verdict.open:
            break
    return verdict


def until_replaced(verdict: Verdict, wanted: int, measured: int) -> Verdict:
    """Return the verdict, with `open` set if seeds that learned nothing can be replaced by further seeds.

    Seeds are not replaced if none of them learned anything.
    """
    missing = 0 < len(verdict.by_seed) < wanted and measured < wanted + MOST_REPLACED
    return replace(verdict, open=missing and not verdict.case.seedless)


def _judge(case: Case, by_seed: Sequence[OfSeed], settings: JudgeParams, checkpoint: bool, details: bool) -> Verdict:
    claim = case.claim
    quantity, every = QUANTITIES[claim.quantity], _measurements(by_seed)
    if isinstance(answer := applicability(case, ModelFacts.of_measurement(every[0], claim.measure)), NotApplicable):
        return Verdict.because(case, "not applicable", answer.cause, measurements=every)
    check_same_rows([measurement for needed in by_seed for measurement in all_of(needed, states=True)])
    counted = usable(by_seed)
    try:
        estimands = [quantity.read(needed, **claim.arguments) for needed in counted.by_seed or by_seed[:1]]
    except NotApplicableError as error:
        return refused(case, error, measurements=every)
    more = len(counted.by_seed) < ANALYSES[-1] and len(by_seed) < ANALYSES[-1] + MOST_REPLACED
    if counted.problem:
        still = counted.more and more
        return Verdict.because(case, "degenerate", counted.problem, measurements=every, open=still)
    estimands, ceiling = with_ceiling(with_same_selection(estimands))
    evidence = _evidence(case, estimands, _measurements(counted.by_seed), settings, checkpoint)
    observed = evidence.observed
    shortage = counted.few or _shortage(evidence, every)
    outcome: Outcome
    if shortage:
        outcome, cause = "inconclusive", shortage
    elif evidence.refuted:  # regardless of the interval
        outcome, cause = "deviates", Grounds.REFUTED(refuted=evidence.estimands[0].refuted)
    else:
        outcome, cause = case.claim.expect.decide(evidence)
    against, in_favour = _p_values(case, evidence, outcome, cause) if details and not shortage else (None, None)
    notes = [*_notes(counted.by_seed, estimands, slow=details), *ceiling, *counted.notes]
    notes += _far_seed(case, counted.by_seed, estimands)
    if claim.existence:
        against = None  # the claim cannot deviate, so it cannot be a false alarm
        if outcome == "deviates":
            outcome, cause = "inconclusive", Grounds.EXISTENCE(now=cause)
    if outcome == "deviates" and cause.grounds.deviation == TOO_SMALL and any(each.provenance.limits for each in every):
        outcome, cause, against = "inconclusive", Grounds.LIMITED_ROWS(now=cause), None
    settled = cause.grounds in (Grounds.AT_LIMIT, Grounds.LIMITED_ROWS)  # whatever further seeds show
    undecided = outcome == "inconclusive" or (evidence.early < 1 and outcome in PASSES)
    seeds_matter = not observed.seedless and observed.computable and observed.fewest >= FEWEST_EXAMPLES
    return Verdict.because(
        case,
        outcome,
        cause,
        *notes,
        observed=observed.value if observed.computable else None,
        interval=evidence.interval if observed.computable else None,
        band=evidence.limits,
        measurements=_measurements(counted.by_seed),
        by_seed=tuple(tuple(estimand.parts.tolist()) for estimand in estimands),
        extreme=observed.extreme,
        power=_power(case, evidence) if cause.grounds in UNDECIDED_GROUNDS else "",
        open=undecided and more and seeds_matter and not settled,
        p_against=against,
        p_for=in_favour,
        interim=_level(case, evidence),
    )


def _evidence(
    case: Case, estimands: Sequence[Estimand], measurements: Sequence[Measurement], settings: JudgeParams, alone: bool
) -> Evidence:
    """Return the evidence on a case, with levels for this number of seeds. With `alone`, judge a single checkpoint."""
    figure = case.claim.expect if isinstance(case.claim.expect, Figure) else None
    of_row = A_ROW.get(case.unit, 0.0)
    estimated = partial(
        estimate, estimands, settings, seedless=case.claim.seedless or alone, within=case.within, of_row=of_row
    )
    share = figure.share_of_other_rows(measurements) if figure else 1.0
    observed, sampled = estimated(examples_share=share), estimated() if alone and share < 1 else None
    confidence, level, early = settings.confidence, one_sided(settings.confidence), 1.0
    if observed.spread is not None:
        level, early = interim_confidence(level), early_rate(observed.seeds) if figure else 1.0
    error = figure.published_error(observed, measurements) if figure else 0.0
    level = one_sided(confidence) if figure else level
    return Evidence(case, estimands, observed, error, level, confidence, early, sampled)


def _level(case: Case, evidence: Evidence) -> str:
    """Return a remark on the number of seeds and the confidence level; empty if seeds make no difference."""
    observed = evidence.observed
    if observed.seedless:
        return ""
    if observed.spread is None:
        expect, seeds = case.claim.expect, counted(observed.seeds, "seed")
        if isinstance(expect, Figure) and expect.sampling == "score" and not observed.sampling_error:
            return f"{seeds} on the paper's own examples: the interval is a point, since seed variance is unknown"
        return f"{seeds}: the interval accounts only for the sampling of examples"
    return f"after {observed.seeds} seeds ({100 * evidence.level:.3g} % interval)"


def _measurements(by_seed: Sequence[OfSeed]) -> tuple[Measurement, ...]:
    return tuple(measurement for needed in by_seed for measurement in all_of(needed))


def _shortage(evidence: Evidence, measurements: Sequence[Measurement]) -> Cause | None:
    """Return why these measurements cannot decide the claim, regardless of the interval; None if they can decide it."""
    observed = evidence.observed
    if not observed.computable:
        return Grounds.NOT_COMPUTABLE()
    if observed.fewest < FEWEST_EXAMPLES:
        return Grounds.FEW_EXAMPLES(needed=FEWEST_EXAMPLES)
    if observed.spread is None and not observed.seedless:
        return Grounds.FEW_SEEDS(seeds=observed.seeds, needed=FEWEST_SEEDS)
    if unmet := next((estimand.unmet for estimand in evidence.estimands if estimand.unmet), ""):
        return Grounds.UNMET(unmet=unmet)
    if evidence.refuted:
        return None
    labels = ((TASKS[each.subject.task], each.samples["target"]) for each in measurements if "target" in each.samples)
    if any(len(target) >= FEWEST_EXAMPLES and is_constant(task, target) for task, target in labels):
        return Grounds.UNMET(unmet="every example has the same label: measure rows with different labels")
    if evidence.constants and observed.examples_error > 0:
        return Grounds.CONSTANT_ON_SAMPLE()
    return Grounds.UNKNOWN_SPREAD() if evidence.limits is None else None


def _p_values(case: Case, evidence: Evidence, outcome: Outcome, cause: Cause) -> PValues:
    """Return the verdict's `p_against` and `p_for`, corrected for the number of analyses."""
    if evidence.refuted:
        return SMALLEST_P_VALUE, 1.0
    against, in_favour = case.claim.expect.p_values(evidence)
    if cause.grounds in UNTESTED_GROUNDS:
        against, in_favour = 1.0, in_favour and 1.0
    if in_favour is None or against is None:
        return against, None
    if evidence.observed.spread is not None:
        against, in_favour = overall_p_value(against), overall_p_value(in_favour)
    return against, 1.0 if outcome == "deviates" else in_favour


def _power(case: Case, evidence: Evidence) -> str:
    """Return a remark on how many seeds or examples would decide the claim; empty if no useful number can be given."""
    expect, limits = case.claim.expect, evidence.limits
    if case.figure.constant_answer or evidence.observed.fewest < FEWEST_EXAMPLES:
        return ""
    if evidence.observed.spread is None and not evidence.observed.seedless:
        return ""  # the reason says how many seeds are needed
    if limits is None or not expect.decidable(limits, case.unit) or not (doubtful := expect.doubtful(evidence)):
        return ""
    return power(evidence.observed, doubtful, evidence.level)


def power(observed: Estimate, limits: Sequence[float], confidence: float) -> str:
    """Return, as text, how many seeds would decide a claim with 80% power if the observed value were the true value.

    The variation between seeds must be known, unless seeds make no difference to the claim.

    More seeds reduce the seed variance but not the sampling error of the examples. If the sampling error alone is too
    large to decide the claim, the text gives the number of examples needed, not of seeds.

    Args:
        limits: Values that the interval must exclude; infinite values are ignored.
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    finite = [abs(observed.value - limit) for limit in limits if np.isfinite(limit)]
    if not observed.computable:
        return "it is unknown how many seeds would decide this: the quantity is undefined on some resamples"
    distance, share = min(finite), (1 + confidence) / 2
    if distance <= 0:
        return "more seeds would not decide this: the observed value lies exactly at the limit"
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
        return f"about {examples} examples instead of {observed.examples}{also} would be needed to decide this"
    if observed.seedless:
        probability = f"{TARGET_POWER:.0%} probability"
        return f"these {observed.examples} examples would decide this with {probability}; seeds make no difference"
    enough = np.flatnonzero(np.hypot(of_seeds, of_examples) <= distance) + 1
    if not len(enough):
        return f"more than {POWER_SEARCH_LIMIT} seeds would be needed to decide this"
    text = f"{max(enough[0], FEWEST_SEEDS)} seeds would decide this with {TARGET_POWER:.0%} probability"
    value = format_number(observed.value)
    if enough[0] > PRACTICAL_SEEDS:
        return f"{text}, which is not practical: {value} is too close to the limit"
    return f"{text} if {value} is the true value"


def _far_seed(case: Case, by_seed: Sequence[OfSeed], estimands: Sequence[Estimand]) -> list[str]:
    """Return a note on a seed that is far from the other seeds, if any. No other check detects a single bad seed."""
    if (far := far_seed([estimand.value for estimand in estimands], case.smallest_effect[0])) is None:
        return []
    place, distance = far
    how = f"is {distance:.1f} standard deviations from the other seeds"
    how = how if np.isfinite(distance) else "differs from the other seeds, which are equal"
    return [f"seed {_seed(by_seed[place])} {how}"]


def _seed(needed: OfSeed) -> int:
    return seeds_of(all_of(needed))[0]


def _notes(by_seed: Sequence[OfSeed], estimands: Sequence[Estimand], *, slow: bool) -> list[str]:
    """Return the notes of the estimands, listed by seed if they differ. With `slow`, also compute slow notes."""
    notes = []
    for estimand in estimands:
        more = [estimand.slow_note()] if slow and estimand.slow_note else []
        notes.append(", ".join([*estimand.notes, *more]))
    if len(set(notes)) == 1:
        return [note for note in notes[:1] if note]
    return [f"seed {_seed(needed)}: {note}" for needed, note in zip(by_seed, notes, strict=True) if note]


def by_authors_labels(case: Case, measurements: Iterable[Measurement]) -> Case:
    """Return the case, with the labels of K19's authors if the pattern classifier was trained on these labels.

    The authors labelled maps of BERT-base, so their labels apply to no other model. With these labels, the disagreement
    between readers adds no uncertainty to the published figures.
    """
    patterns = [measurement for measurement in measurements if measurement.measure == "patterns"]
    theirs = [f"{AUTHORS}_predicted" in each.samples and is_papers_model(each.subject.model) for each in patterns]
    claim = case.claim
    if READING not in QUANTITIES[claim.quantity].arguments.model_fields or not any(theirs) or not all(theirs):
        return case
    tasks = {**claim.tasks, case.task: case.figure.model_copy(update={"doubt": None})}
    arguments = {**claim.arguments, READING: AUTHORS}
    return replace(case, claim=claim.model_copy(update={"arguments": arguments, "tasks": tasks}))
