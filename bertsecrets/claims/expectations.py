"""What claims expect: an order, a figure or an equality, each with its band and its decision on the evidence.

An order holds if the interval lies beyond the limit. It deviates if the interval lies on the other side, below the
smallest effect of interest, or below half of the published effect. A figure deviates if the observed value lies outside
the prediction interval around the published one. It is reproduced if the value lies inside and the confidence interval
excludes a model that learned nothing. An equality holds if the interval lies within the smallest effect of interest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from bertsecrets.claims.band import Ends, JudgedCase, reach, too_wide
from bertsecrets.claims.estimand import FEWEST_EXAMPLES, Estimand
from bertsecrets.claims.estimate import Estimate
from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.formats import Outcome
from bertsecrets.settings import Section
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

MIN_EFFECT_SHARE = 0.5  # fraction of a published effect; orders with significantly smaller effects are not reproduced
SCORE_TOLERANCE = 1e-9  # points; for equal scores
Decision = tuple[Outcome, Cause]


@dataclass(frozen=True)
class Evidence:
    """What has been measured for a case: an estimand for each usable seed, and their estimate.

    Args:
        published_error: Sampling error of the published figure, if it was measured on different examples.
        confidence: Confidence of the run.
    """

    case: JudgedCase
    estimands: Sequence[Estimand]
    observed: Estimate
    published_error: float
    confidence: float

    @cached_property
    def constant(self) -> bool:
        """Whether the published figure is that of a constant answer and every seed also gives a constant answer."""
        return self.case.figure.constant_answer and all(estimand.constant for estimand in self.estimands)

    @cached_property
    def limits(self) -> Ends | None:
        """The band at the run's confidence."""
        return self.band(self.confidence)

    def band(self, confidence: float, *, widened: bool = False) -> Ends | None:
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
        return self.case.band(confidence, replace(self.observed, sampling_error=error), self.published_error)

    @cached_property
    def refuted(self) -> bool:
        """Whether no resample can support the claim and the observed value is outside its band."""
        value, limits = self.observed.value, self.limits
        outside = limits is not None and (value <= limits[0] or value >= limits[1])
        return outside and all(estimand.refuted for estimand in self.estimands)

    @cached_property
    def same_constant(self) -> set[bool]:
        """Whether seeds give the published constant answer: all, none, or only some of them."""
        low, high = self.limits or (np.nan, np.nan)
        return {bool(low - SCORE_TOLERANCE <= each.value <= high + SCORE_TOLERANCE) for each in self.estimands}

    @property
    def chance(self) -> float:
        """The probability, at most, that all seeds collapse to another constant answer than the published run."""
        count = self.observed.seeds
        return float(count**count / (count + 1) ** (count + 1))

    @property
    def seeds_matter(self) -> bool:
        """Whether more seeds could decide the claim. They cannot if only the published model is constant."""
        if self.observed.seedless or not self.observed.computable or self.observed.fewest < FEWEST_EXAMPLES:
            return False
        return not self.case.figure.constant_answer or (self.constant and self.same_constant != {True, False})


class _Expectation(Section):
    """What orders and equalities have in common: a value that is given, not published."""

    value: float = 0.0

    def decidable(self, limits: Ends, unit: str) -> bool:
        """Return whether a band can decide a claim."""
        return True

    def doubtful(self, evidence: Evidence) -> tuple[float, ...]:
        """Return the values that an interval must exclude."""
        return evidence.limits or ()


class Order(_Expectation):
    """The quantity lies above or below `value`.

    If the published figure is `comparable`, an order with a limit of 0 is also judged by the size of the effect.
    """

    kind: Literal["above", "below"]
    comparable: bool = True

    @property
    def sign(self) -> float:
        """1 if the quantity is expected above the limit, -1 if below."""
        return 1.0 if self.kind == "above" else -1.0

    def band(
        self, case: JudgedCase, confidence: float, observed: Estimate | None = None, published_error: float = 0.0
    ) -> Ends:
        """Return the limits, one of them infinite."""
        return (self.value, float("inf")) if self.kind == "above" else (float("-inf"), self.value)

    def decide(self, evidence: Evidence, confidence: float, interval: Ends) -> Decision:
        """Return outcome and reason for a confidence interval of the quantity."""
        return self.compare(evidence.case, interval)

    def compare(self, case: JudgedCase, interval: Ends) -> Decision:
        """Return outcome and reason for a confidence interval of the quantity.

        An effect significantly smaller than half of the published one deviates, but only if the limit is 0, since the
        limit is otherwise the effect size that the claim states. If the limit is between 0 and the smallest effect of
        interest, an interval below that effect deviates.
        """
        (size, why), published = case.smallest_effect, case.figure.published
        limit, low, high = self.sign * self.value, *sorted(self.sign * end for end in interval)
        if low == high == limit:
            return "inconclusive", Grounds.AT_LIMIT()
        opposite = low <= -size and (limit == 0 or high < 0)
        if 0 <= limit <= size and high < size and not opposite:
            return "deviates", Grounds.NEGLIGIBLE(interval=interval, size=size, why=why)
        if high < limit:
            return "deviates", Grounds.OTHER_SIDE(interval=interval)
        if low <= limit:
            return "inconclusive", Grounds.INCLUDES_LIMIT(interval=interval)
        effect = self.sign * published if self.comparable and limit == 0 and published is not None else 0.0
        if effect > 0 and high < MIN_EFFECT_SHARE * effect:
            return "deviates", Grounds.LESS_THAN_HALF(interval=interval)
        return "reproduced", Grounds.BEYOND_LIMIT(interval=interval)

    def contradicts(self, value: float) -> bool:
        """Return whether a value contradicts the order, as table 1 contradicts "well on all tasks"."""
        return self.sign * value <= self.sign * self.value


class Equality(_Expectation):
    """The quantity is `value`, up to the smallest effect of interest."""

    kind: Literal["equal"]

    def band(
        self, case: JudgedCase, confidence: float, observed: Estimate | None = None, published_error: float = 0.0
    ) -> Ends:
        """Return the equivalence limits; differences beyond them are of interest."""
        size, _ = case.smallest_effect
        return self.value - size, self.value + size

    def decide(self, evidence: Evidence, confidence: float, interval: Ends) -> Decision:
        """Return outcome and reason for a confidence interval of the quantity (two one-sided tests)."""
        (low, high), limits = interval, self.band(evidence.case, confidence)
        facts = {"interval": interval, "limits": limits, "why": evidence.case.smallest_effect[1]}
        if limits[0] < low and high < limits[1]:
            return "reproduced", Grounds.EQUAL(**facts)
        if high <= limits[0] or low >= limits[1]:
            return "deviates", Grounds.UNEQUAL(**facts)
        return "inconclusive", Grounds.PARTLY_EQUAL(**facts)


class Figure(Section):
    """The quantity lies within a prediction interval around the published figure.

    `sampling` is `score` if the figure was measured on the same validation set, and `own` if it was measured on
    different examples. `examples` limits their number, if the published figure did not use full validation sets.
    """

    kind: Literal["around"]
    sampling: Literal["score", "own", "none"] = "none"
    examples: PositiveInt | None = None

    def band(
        self, case: JudgedCase, confidence: float, observed: Estimate | None = None, published_error: float = 0.0
    ) -> Ends | None:
        """Return the prediction interval for the mean over seeds; None if the seed variance is unknown.

        The published figure comes from one more run of the same procedure, or has the uncertainty on record (`doubt`).
        The seed variance is estimated from the observed seeds, or cited if there are fewer than three. Seeds may have
        similar scores by chance although their answers differ, so the spread of a score is at least what these
        differences cause (`Estimate.interaction`). If both values were measured on the same examples, these add no
        sampling error.

        Args:
            observed: Estimate to compare. If None, the band for the limit of many seeds is returned.
            published_error: Sampling error of the published figure, if it was measured on different examples.
        """
        figure = case.figure
        assert figure.published is not None
        spread, doubt = (observed and observed.spread) or figure.cited_spread, figure.doubt
        if spread is None and doubt is None and not case.seedless:  # the last, because it imports the measure
            return None
        parts: list[tuple[float, float]] = [(published_error, np.inf)]  # standard errors with their degrees of freedom
        if observed is not None:
            parts.append((observed.sampling_error, np.inf))
        if doubt is not None:
            parts.append((doubt, figure.doubt_degrees))
        if spread is not None:
            own = 1 / observed.seeds if observed is not None else 0.0
            one_more = 0.0 if doubt is not None else 1.0  # whether the published figure counts as one more run
            least = observed.interaction if observed is not None and self.sampling == "score" else 0.0
            parts.append((float(max(spread.std, least) * np.sqrt(one_more + own)), spread.degrees))
        half = reach(parts, confidence) + figure.rounding
        low, high = np.clip((figure.published - half, figure.published + half), *case.within)
        return float(low), float(high)

    def decide(self, evidence: Evidence, confidence: float, interval: Ends) -> Decision:
        """Return outcome and reason. Between the bands with and without the error of few encoders, it is open."""
        case, value = evidence.case, evidence.observed.value
        if evidence.constant:
            return self._decide_constant(evidence, confidence)
        limits, widened = evidence.band(confidence), evidence.band(confidence, widened=True)
        assert limits is not None
        assert widened is not None
        if not widened[0] <= value <= widened[1]:
            return "deviates", Grounds.OUTSIDE(observed=value)
        if not limits[0] <= value <= limits[1]:
            return "inconclusive", Grounds.BETWEEN_BANDS(observed=value, widened=widened)
        if not self.decidable(limits, case.unit):
            return "inconclusive", Grounds.BAND_TOO_WIDE(observed=value)
        if case.figure.constant_answer:
            return "inconclusive", Grounds.SEVERAL_ANSWERS_INSIDE(observed=value)
        for nothing in self.doubtful(evidence):
            if interval[0] <= nothing <= interval[1]:
                facts = {"nothing": nothing, "meaning": evidence.estimands[0].nothing_is}
                return "inconclusive", Grounds.INCLUDES_NOTHING_LEARNED(interval=interval, **facts)
        return "reproduced", Grounds.INSIDE(observed=value)

    def _decide_constant(self, evidence: Evidence, confidence: float) -> Decision:
        """Return outcome and reason if the published figure is a constant answer's and every seed gives one.

        Which constant a training run collapses to may be random. If it is the published one with probability q, the
        probability that the published run gives it but none of N others does is q (1 - q)^N, which is largest at
        q = 1 / (N + 1).
        """
        if evidence.same_constant == {True}:
            return "reproduced", Grounds.SAME_CONSTANT()
        if evidence.same_constant == {True, False}:
            return "inconclusive", Grounds.SOME_CONSTANT()
        outcome: Outcome = "deviates" if evidence.chance <= 1 - confidence else "inconclusive"
        return outcome, Grounds.OTHER_CONSTANT(chance=evidence.chance)

    def decidable(self, limits: Ends, unit: str) -> bool:
        """Return whether a band can decide a claim; it must not be too wide."""
        return not too_wide(limits, unit)

    def doubtful(self, evidence: Evidence) -> tuple[float, ...]:
        """Return the values that an interval must exclude: that of a model that learned nothing, if there is one."""
        values = [estimand.nothing for estimand in evidence.estimands if estimand.nothing is not None]
        return (float(np.mean(values)),) if values else ()

    def published_error(self, observed: Estimate, measurements: Iterable[Measurement]) -> float:
        """Return the sampling error of the published figure if it was measured on different examples; otherwise 0."""
        if self.sampling != "own":
            return 0.0
        most = self.examples or np.inf
        measured = {measurement.subject.task: measurement.examples for measurement in measurements}
        published = sum(min(most, TASKS[name].dev_rows if name in TASKS else np.inf) for name in measured)
        return observed.examples_error * float(np.sqrt(sum(measured.values()) / published))

    def share_of_other_rows(self, measurements: Iterable[Measurement]) -> float:
        """Return the factor for the sampling error when comparing with a published figure on the same validation set.

        It is 0 if the full validation set was measured, and 1 if the figure was measured on different examples.
        """
        if self.sampling != "score":
            return 1.0
        rows = {measurement.subject.task: measurement.examples for measurement in measurements}
        whole = sum(TASKS[name].dev_rows for name in rows if name in TASKS)
        return float(np.sqrt(max(0.0, 1 - sum(rows.values()) / whole))) if whole else 1.0


Expectation = Annotated[Order | Figure | Equality, Field(discriminator="kind")]
