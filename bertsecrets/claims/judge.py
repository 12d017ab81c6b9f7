"""The judge: decides whether measurements agree with a claim by comparing a confidence interval with a band.

An order (`above`, `below`) holds if the interval lies beyond the limit. It deviates if the interval lies on the other
side, below the smallest effect of interest, or below half of the published effect. A figure (`around`) deviates if the
observed value lies outside the prediction interval around the published one. It is reproduced if the value lies inside
and the confidence interval excludes a model that learned nothing. A constant answer is reproduced only by the same
constant answer. An equality (`equal`) holds if the interval lies within the smallest effect of interest. At least three
seeds are needed for a decision. Claims that depend on how a word is read are judged under each reading.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
from bertsecrets.claims.both_readings import combined_readings, under_readings
from bertsecrets.claims.eligibility import ModelFacts, NotApplicable, applicability
from bertsecrets.claims.error_rates import interval_at, power, smallest_rate
from bertsecrets.claims.estimand import FEWEST, Estimand
from bertsecrets.claims.estimate import FEWEST_SEEDS, Estimate, estimate
from bertsecrets.claims.figure import Expectation
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import with_ceiling
from bertsecrets.claims.quantity import Needed, all_of
from bertsecrets.claims.schema import Case
from bertsecrets.claims.screening import usable
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError
from bertsecrets.formats import Outcome
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement

ENOUGH = 0.5  # fraction of a published effect; orders with significantly smaller effects are not reproduced
ALONE = ("the interval is of this checkpoint alone", "the interval is of these checkpoints alone")
SEVERAL = "the published figure is that of a constant answer, and this model gives several"
DUST = 1e-9  # points; tolerance for equal scores
Ends = tuple[float, float]


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
        verdict = combined_readings(case, verdicts)
    else:
        verdict = _judge(case, by_seed, settings, checkpoint, details)
    return replace(verdict, interim="this checkpoint") if checkpoint and not case.claim.seedless else verdict


def _judge(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams, checkpoint: bool, details: bool
) -> Verdict:
    """Judge a claim, under the reading given by its arguments if it depends on one."""
    claim = case.claim
    quantity, every = QUANTITIES[claim.quantity], _measurements(by_seed)
    if isinstance(answer := applicability(case, ModelFacts.measured(every[0])), NotApplicable):
        return Verdict(case, "not applicable", answer.reason, measurements=every)
    counted = usable(by_seed)
    try:
        estimands = [quantity.read(needed, **claim.arguments) for needed in counted.by_seed or by_seed[:1]]
    except NotApplicableError as error:
        return Verdict(case, "not applicable", str(error), measurements=every)
    if counted.problem:
        return Verdict(case, "degenerate", counted.problem, measurements=every, open=counted.more)
    estimands, ceiling = with_ceiling(estimands)
    measurements = _measurements(counted.by_seed)
    observed = estimate(
        estimands,
        settings,
        seedless=claim.seedless or checkpoint,
        examples_share=share_of_other_rows(case, measurements) if claim.expect.kind == "around" else 1.0,
        within=quantity.within(case.task),
    )
    weighed = Weighed(case, estimands, observed, at_published_size(case, observed, measurements), settings.confidence)
    outcome, reason = weighed.outcome
    against, in_favour = weighed.p_values if details else (None, None)
    if claim.existence:
        against = None  # the claim cannot deviate, so it cannot be a false alarm
        if outcome == "deviates":
            outcome, reason = "inconclusive", f"{reason}; another head or layer may still have the effect"
    return Verdict(
        case,
        outcome,
        "; ".join([reason, *_notes(estimands, slow=details), *ceiling, *counted.notes]),
        observed=observed.value if observed.computable else None,
        interval=observed.interval(settings.confidence) if observed.computable else None,
        band=weighed.limits,
        measurements=measurements,
        by_seed=tuple(tuple(estimand.parts.tolist()) for estimand in estimands),
        extreme=observed.extreme,
        power=weighed.power if weighed.outcome[0] == "inconclusive" else "",
        open=outcome == "inconclusive" and weighed.seeds_matter,
        p_against=against,
        p_for=in_favour,
        interim="" if observed.spread or observed.seedless else ALONE[len(estimands) > 1],
    )


def _measurements(by_seed: Sequence[Mapping[str, Needed]]) -> tuple[Measurement, ...]:
    return tuple(measurement for needed in by_seed for measurement in all_of(needed))


@dataclass(frozen=True)
class Weighed:
    """A case with its evidence: an estimand for each usable seed, and their estimate.

    Args:
        published_error: Sampling error of the published figure, if it was measured on different examples.
    """

    case: Case
    estimands: Sequence[Estimand]
    observed: Estimate
    published_error: float
    confidence: float

    @property
    def expect(self) -> Expectation:
        """What the claim expects."""
        return self.case.claim.expect

    @cached_property
    def constant(self) -> bool:
        """Whether the published figure is that of a constant answer and every seed also gives a constant answer."""
        return self.case.figure.constant_answer and all(estimand.constant for estimand in self.estimands)

    @cached_property
    def limits(self) -> Ends | None:
        """The band at the run's confidence."""
        return self._band(self.confidence)

    def _band(self, confidence: float, *, widened: bool = False) -> Ends | None:
        """Return the band; around a constant answer, it includes only rounding.

        Args:
            widened: Whether to account for the few encoders that the sampling error is estimated from
                (`Estimand.widened`). Otherwise, all of the sampling error is divided by that factor, so the band is
                slightly narrower than the normal one.
        """
        published, rounding = self.case.figure.published, self.case.figure.rounding
        if self.constant and published is not None:
            return published - rounding, published + rounding
        error = self.observed.sampling_error / (1 if widened else self.estimands[0].widened)
        return band(self.case, confidence, replace(self.observed, sampling_error=error), self.published_error)

    @cached_property
    def outcome(self) -> tuple[Outcome, str]:
        """The outcome at the run's confidence, and its reason."""
        if self._nothing_decides:
            return "inconclusive", self._nothing_decides
        return self._decide(self.confidence, self.observed.interval(self.confidence))

    @cached_property
    def _nothing_decides(self) -> str:
        """Why these measurements cannot decide the claim, whatever the interval; empty if they can."""
        observed = self.observed
        if not observed.computable:
            return "the quantity cannot be computed on some of the resamples"
        if observed.spread is None and not observed.seedless:
            if self.case.figure.constant_answer and not self.constant:
                return f"{SEVERAL}, which cannot reproduce it"
            seeds = "one seed is" if observed.seeds == 1 else f"{observed.seeds} seeds are"
            return f"{seeds} not enough: {FEWEST_SEEDS} are needed"
        if self._refuted:
            return ""
        if observed.fewest < FEWEST:
            return f"fewer than {FEWEST} examples are not enough"
        if self.constant and observed.examples_error > 0:
            return "constant answers can be compared on the whole validation set only"
        return "" if self.limits is not None else "the variation between runs is unknown: judge several seeds"

    @cached_property
    def _refuted(self) -> bool:
        """Whether no resample can support the claim and the observed value is outside its band."""
        value, limits = self.observed.value, self.limits
        outside = limits is not None and (value <= limits[0] or value >= limits[1])
        return outside and all(estimand.refuted for estimand in self.estimands)

    @property
    def seeds_matter(self) -> bool:
        """Whether more seeds could decide the claim. They cannot if only the published model is constant."""
        if self.observed.seedless or not self.observed.computable or self.observed.fewest < FEWEST:
            return False
        return not self.case.figure.constant_answer or (self.constant and self._same_constant != [False, True])

    def _decide(self, confidence: float, interval: Ends) -> tuple[Outcome, str]:
        """Return outcome and reason for an interval at this confidence level; a refuted claim deviates regardless."""
        if self._refuted:
            return "deviates", f"{self.estimands[0].refuted}, for any examples, so the interval is not used"
        limits, least = self._band(confidence), smallest_effect(self.case)
        assert limits is not None
        if self.constant:
            return self._of_constant(confidence)
        if self.expect.kind == "around":
            return self._of_figure(limits, self._band(confidence, widened=True) or limits, interval)
        if self.expect.kind == "equal":
            return decide_equal(interval, limits, least[1])
        published = self.case.figure.published if self.expect.comparable else None
        return decide_order(interval, limits, published, least)

    @cached_property
    def _same_constant(self) -> list[bool]:
        """Whether seeds give the published constant answer: [True] all, [False] none, [False, True] some of them."""
        low, high = self.limits or (np.nan, np.nan)
        return sorted({bool(low - DUST <= estimand.value <= high + DUST) for estimand in self.estimands})

    def _of_constant(self, confidence: float) -> tuple[Outcome, str]:
        """Return outcome and reason if the published figure is a constant answer's and every seed gives one.

        Which constant a training run collapses to may be random. If it is the published one with probability q, the
        probability that the published run gives it but none of N others does is q (1 - q)^N, which is largest at
        q = 1 / (N + 1).
        """
        if self._same_constant == [True]:
            return "reproduced", "every seed gives the published constant answer"
        if self._same_constant == [False, True]:
            return "inconclusive", "only some seeds give the published constant answer"
        outcome: Outcome = "deviates" if self._chance <= 1 - confidence else "inconclusive"
        chance = f"by chance in up to {self._chance:.1%} of runs"
        return outcome, f"every seed gives a constant answer other than the published one ({chance})"

    @property
    def _chance(self) -> float:
        count = self.observed.seeds
        return float(count**count / (count + 1) ** (count + 1))

    def _of_figure(self, limits: Ends, widened: Ends, interval: Ends) -> tuple[Outcome, str]:
        """Return outcome and reason for a published figure. Between both bands, it is inconclusive."""
        where = f"{format_number(self.observed.value)} lies {{}} the prediction interval around the published figure"
        inside = where.format("inside")
        if not widened[0] <= self.observed.value <= widened[1]:
            return "deviates", where.format("outside")
        if not limits[0] <= self.observed.value <= limits[1]:
            new = f"{format_interval(widened)}, the prediction interval for an encoder without annotated maps"
            return "inconclusive", f"{format_number(self.observed.value)} lies outside the band, but inside {new}"
        if not decidable(self.case, limits):
            return "inconclusive", f"not decidable: {inside}, as almost any value would"
        if self.case.figure.constant_answer:
            return "inconclusive", f"{inside}; {SEVERAL}"
        if self._nothing and interval[0] <= self._nothing[0] <= interval[1]:
            shown = f"{format_number(self._nothing[0])}, {self.estimands[0].nothing_is}"
            return "inconclusive", f"{format_interval(interval)} also includes {shown}"
        return "reproduced", inside

    @cached_property
    def _nothing(self) -> tuple[float, ...]:
        """The value of a model that learned nothing, as a tuple of one element; empty if there is none."""
        values = [estimand.nothing for estimand in self.estimands if estimand.nothing is not None]
        return (float(np.mean(values)),) if values else ()

    @cached_property
    def p_values(self) -> tuple[float | None, float | None]:
        """The smallest error rates at which the claim would still deviate, and would still be reproduced.

        The second is None for a figure: lying inside a prediction interval is no evidence against other values.
        """
        run, outcome = 1 - self.confidence, self.outcome[0]
        if self._nothing_decides:
            return None, None
        if self.constant:
            return self._chance if self._same_constant == [False] else 1.0, None

        def fails(rate: float) -> bool:
            return self._decide(1 - rate, interval_at(self.observed, rate, run))[0] == "deviates"

        def holds(rate: float) -> bool:
            limits, (low, high) = self._band(1 - rate), interval_at(self.observed, rate, run)
            assert limits is not None
            return limits[0] < low and high < limits[1]

        against = smallest_rate(fails, run)
        if self.expect.kind == "around":
            return against, None
        return against, 1.0 if outcome == "deviates" else smallest_rate(holds, run)

    @property
    def power(self) -> str:
        """What would decide the claim, as text; empty if unknown, or if it is not the interval that leaves it open."""
        if self.case.figure.constant_answer or self.observed.fewest < FEWEST:
            return ""
        if self.limits is None or not decidable(self.case, self.limits):
            return ""
        doubtful = self._nothing if self.expect.kind == "around" else self.limits
        compares_with_0 = self.expect.kind != "around" and 0.0 in doubtful
        least = smallest_effect(self.case)[0] if compares_with_0 else 0.0
        return power(self.observed, doubtful, self.confidence, least) if doubtful else ""


def decide_order(
    interval: tuple[float, float],
    limits: tuple[float, float],
    published: float | None = None,
    least: tuple[float, str] = (0.0, ""),
) -> tuple[Outcome, str]:
    """Return outcome and reason for an order: the quantity lies beyond a limit.

    Args:
        interval: Confidence interval of the quantity.
        limits: Limits, one of them infinite.
        published: Published value. An effect significantly smaller than half of it deviates. Ignored if the limit is
            not 0, since the limit is then the effect size that the claim states.
        least: Smallest effect of interest and its reason. A claim whose limit is between 0 and this effect deviates if
            the interval is below the effect.
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
    """Return outcome and reason for an equality: the interval lies inside the equivalence limits (two one-sided tests).

    Args:
        interval: Confidence interval of the quantity.
        limits: Equivalence limits; differences beyond them are of interest.
        why: Reason for these limits.
    """
    (low, high), shown = interval, format_interval(interval)
    if limits[0] < low and high < limits[1]:
        return "reproduced", f"{shown} lies inside {format_interval(limits)}: {why}"
    if high <= limits[0] or low >= limits[1]:
        return "deviates", f"{shown} lies outside {format_interval(limits)}: {why}"
    return "inconclusive", f"{shown} lies partly outside {format_interval(limits)}: {why}"


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
