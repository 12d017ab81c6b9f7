"""The expectations of claims (an order, a figure or an equality), each with a band, a decision and p-values.

An order holds if the interval lies on the claimed side of the limit, and beyond the smallest effect of interest. An
order deviates if the interval lies on the other side of the limit. An order also deviates if the interval shows that
the effect is too small: less than the smallest effect of interest, or less than half of the published effect. A figure
deviates if the observed value lies outside the prediction interval around the published value. A figure is compatible
if the observed value lies inside the prediction interval, and the confidence interval excludes the value of a model
that learned nothing. An equality holds if the whole interval lies inside `value` ± the smallest effect of interest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from bertsecrets.claims.band import Ends, Errors, JudgedCase, combined, p_beyond, reach
from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.estimate import SMALLEST_P_VALUE, Estimate
from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.claims.sequential import ANALYSES
from bertsecrets.formats import Outcome
from bertsecrets.settings import Section
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

# Share of the variance due to seeds' different answers that is subtracted from the variance over seeds. If all of it
# were subtracted, or if it were subtracted for fewer seeds, more than 6% of the verdicts on seeds that differ more than
# P20's would be false.
KNOWN_SHARE = 0.75
MIN_EFFECT_SHARE = 0.5  # fraction of a published effect; orders with significantly smaller effects are not reproduced
WIDEST_BANDS = {"points": 50.0, "percent": 50.0}  # half of the range of values; wider bands include almost anything
SCORE_TOLERANCE = 1e-9  # in points; scores that differ by less are equal
Decision = tuple[Outcome, Cause]
PValues = tuple[float | None, float | None]  # against and for a claim
Bound = tuple[float, Errors]  # a margin, and errors whose joint reach is added to it


@dataclass(frozen=True)
class Evidence:
    """The evidence on a case: an estimand for each usable seed, and the estimate from all of them.

    Args:
        published_error: Sampling error of the published figure, if it was measured on different examples.
        level: Confidence level of the interval that decides an order or an equality.
        confidence: Confidence level of the run. The band around a published figure has the same level.
        early: Factor applied to the error rate of deviations from a published figure; below 1 if more seeds may follow.
        sampled: Estimate that includes the sampling of examples, if `observed` does not because the published figure
            was measured on the same examples. None if seeds account for the uncertainty.
    """

    case: JudgedCase
    estimands: Sequence[Estimand]
    observed: Estimate
    published_error: float
    level: float
    confidence: float
    early: float = 1.0
    sampled: Estimate | None = None

    @cached_property
    def interval(self) -> Ends:
        """The confidence interval of the quantity."""
        return (self.sampled or self.observed).interval(self.level)

    @cached_property
    def limits(self) -> Ends | None:
        """The band of the claim, which is at least as wide as the band that `expected/` shows."""
        return _hull(self.band(self.confidence), self.shown)

    @cached_property
    def shown(self) -> Ends | None:
        """The band for infinitely many seeds, which `expected/` shows."""
        return self.case.band(self.confidence)

    @cached_property
    def outer(self) -> Ends | None:
        """The band outside which a figure deviates. It is wider than `limits` while more seeds may follow."""
        return _hull(self.band(self.deciding_confidence), self.limits)

    @property
    def deciding_confidence(self) -> float:
        """The confidence level at which a figure is tested for a deviation."""
        return 1 - self.early * (1 - self.confidence)

    def band(self, confidence: float) -> Ends | None:
        """Return the band at a confidence level."""
        return self.case.band(confidence, self.observed, self.published_error)

    @cached_property
    def refuted(self) -> bool:
        """Whether the observed value is outside the claim's band and no resample can support the claim."""
        value, limits = self.observed.value, self.limits
        outside = limits is not None and (value <= limits[0] or value >= limits[1])
        return outside and all(estimand.refuted for estimand in self.estimands)

    @cached_property
    def constants(self) -> list[float]:
        """Scores of seeds with a constant answer; empty unless the published figure is the score of such an answer."""
        if not self.case.figure.constant_answer:
            return []
        return [estimand.value for estimand in self.estimands if estimand.constant]

    @property
    def same_constant(self) -> int:
        """The number of seeds that give the published constant answer to every example."""
        published = self.case.figure.published or 0.0
        tolerance = self.case.figure.rounding + SCORE_TOLERANCE
        return sum(abs(value - published) <= tolerance for value in self.constants)


def _hull(one: Ends | None, other: Ends | None) -> Ends | None:
    """Return the smallest interval that contains both intervals. None stands for no interval."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


class _Expectation(Section):
    """The base class of orders and equalities. Measurements can confirm both, because `value` is an exact number."""

    passes: ClassVar[Outcome] = "reproduced"
    value: float = 0.0

    def decidable(self, limits: Ends, unit: str) -> bool:
        """Return True, because the band of an order or an equality is never too wide to decide the claim."""
        return True


class Order(_Expectation):
    """The expectation that the quantity is above, or below, `value`.

    If `value` lies between 0 and the smallest effect of interest, the quantity must also exceed this effect in the
    claimed direction. If `value` is 0 and the published figure is `comparable`, the claim also requires that the effect
    is not significantly smaller than half of the published effect.
    """

    kind: Literal["above", "below"]
    comparable: bool = True

    @property
    def sign(self) -> float:
        """1 if the quantity should lie above the limit, and -1 if it should lie below the limit."""
        return 1.0 if self.kind == "above" else -1.0

    def judges(self, size: float) -> bool:
        """Return whether the quantity must exceed a smallest effect of this size, and not only the limit."""
        return 0 <= self.sign * self.value <= size

    def threshold(self, case: JudgedCase) -> float:
        """Return the threshold that `sign` times the quantity must exceed for the claim to hold."""
        size = case.smallest_effect[0]
        return size if self.judges(size) else self.sign * self.value

    def half_of_published(self, case: JudgedCase) -> float:
        """Return `sign` times half of the published effect, or -infinity if the size of the effect is not judged."""
        published = case.figure.published
        effect = self.sign * published if self.comparable and self.value == 0 and published is not None else 0.0
        return MIN_EFFECT_SHARE * effect if effect > 0 else float("-inf")

    def band(self, case: JudgedCase, *_: Any) -> Ends:
        """Return the range that the claim allows: from `value` to infinity, or from -infinity to `value`."""
        return (self.value, float("inf")) if self.kind == "above" else (float("-inf"), self.value)

    def doubtful(self, evidence: Evidence) -> tuple[float, ...]:
        """Return a 1-tuple with the value that the interval must exclude before the claim can be decided."""
        return (self.sign * self.threshold(evidence.case),)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the outcome and its reason."""
        if evidence.observed.value == self.value and evidence.observed.unvarying:
            return "inconclusive", Grounds.AT_LIMIT()
        case, interval = evidence.case, evidence.interval
        (size, why), limit, threshold = case.smallest_effect, self.sign * self.value, self.threshold(case)
        low, high = sorted(self.sign * end for end in interval)
        facts = {"interval": interval, "limit": self.value}
        other_side = "below" if self.kind == "above" else "above"
        if high < threshold:
            if threshold < size or limit > size or (low <= -size and high < 0):
                return "deviates", Grounds.OTHER_SIDE(side=other_side, **facts)
            return "deviates", Grounds.NEGLIGIBLE(interval=interval, side=other_side, limit=self.sign * size, why=why)
        if low <= limit:
            return "inconclusive", Grounds.INCLUDES_LIMIT(**facts)
        if low <= threshold:
            return "inconclusive", Grounds.INCLUDES_NEGLIGIBLE(interval=interval, size=size, why=why)
        if high < self.half_of_published(case):
            return "deviates", Grounds.LESS_THAN_HALF(interval=interval)
        return self.passes, Grounds.BEYOND_LIMIT(side=self.kind, **facts)

    def p_values(self, evidence: Evidence) -> PValues:
        """Return two p-values: one against the claim, and one in favour of it."""
        case, observed = evidence.case, evidence.observed
        above, below = (observed.p_above, observed.p_below)[:: int(self.sign)]
        threshold, half = self.threshold(case), self.half_of_published(case)
        in_favour = above(self.sign * threshold, evidence.level)
        against = below(self.sign * threshold, evidence.level)
        if half > threshold:
            against = min(against, max(in_favour, below(self.sign * half, evidence.level)))
        return against, in_favour

    def contradicts(self, value: float) -> bool:
        """Return whether a value contradicts the order, as some values in K19's table 1 contradict the text of K19."""
        return self.sign * value <= self.sign * self.value


class Equality(_Expectation):
    """The expectation that the quantity differs from `value` by less than the smallest effect of interest."""

    kind: Literal["equal"]

    def band(self, case: JudgedCase, *_: Any) -> Ends:
        """Return the equivalence limits. Only differences beyond these limits are large enough to be of interest."""
        size, _why = case.smallest_effect
        return self.value - size, self.value + size

    def doubtful(self, evidence: Evidence) -> tuple[float, ...]:
        """Return the two values that the interval must exclude before the claim can be decided."""
        return self.band(evidence.case)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the outcome and its reason, based on two one-sided tests."""
        (low, high), limits = evidence.interval, self.band(evidence.case)
        facts = {"interval": evidence.interval, "limits": limits, "why": evidence.case.smallest_effect[1]}
        if limits[0] < low and high < limits[1]:
            return self.passes, Grounds.EQUAL(**facts)
        if high < limits[0] or low > limits[1]:
            return "deviates", Grounds.UNEQUAL(**facts)
        return "inconclusive", Grounds.PARTLY_EQUAL(**facts)

    def p_values(self, evidence: Evidence) -> PValues:
        """Return two p-values: one against the claim, and one in favour of it."""
        (low, high), observed, level = self.band(evidence.case), evidence.observed, evidence.level
        against = min(observed.p_below(low, level), observed.p_above(high, level))
        return against, max(observed.p_above(low, level), observed.p_below(high, level))


class Figure(Section):
    """The expectation that the quantity lies within a prediction interval around the published figure.

    `sampling` is `score` if the figure was measured on the same validation set, and `own` if it was measured on
    different examples. `examples` is the number of examples behind the figure, if it is smaller than the validation
    set.
    """

    passes: ClassVar[Outcome] = "compatible"
    kind: Literal["around"]
    sampling: Literal["score", "own", "none"] = "none"
    examples: PositiveInt | None = None

    def band(
        self, case: JudgedCase, confidence: float, observed: Estimate | None = None, published_error: float = 0.0
    ) -> Ends | None:
        """Return the prediction interval for the mean across seeds; None if the seed variance is unknown.

        If `observed` is None, the interval is for the mean across infinitely many seeds.
        """
        figure = case.figure
        assert figure.published is not None
        if not (bounds := self._bounds(case, observed, published_error)):
            return None
        half = max(margin + reach(errors, confidence) for margin, errors in bounds)
        low, high = np.clip((figure.published - half, figure.published + half), *case.within)
        return float(low), float(high)

    def _bounds(self, case: JudgedCase, observed: Estimate | None, published_error: float) -> list[Bound]:
        """Return bounds on the difference from the published figure, or no bounds if the seed variance is unknown.

        The band is as wide as the widest of these bounds. The published run counts as one more run of the same
        procedure, unless the published figure has a known standard error (`doubt`). The seed variance is estimated from
        the observed seeds or, if there are fewer than three, taken from the cited spread. The spread of published runs
        is assumed to be at least the cited spread. If both values were measured on the same examples, the sampling of
        examples adds no error. A deviation must also significantly exceed the claim's tolerance.

        Seeds whose predictions differ may have similar scores by chance. The spread of a score is therefore at least
        the spread that the different predictions cause (`Estimate.interaction`). This part is estimated from thousands
        of predictions, so a normal distribution is used for it, and Student's t only for the remaining variance (see
        `KNOWN_SHARE`).
        """
        figure, rounding = case.figure, case.figure.rounding
        spread, doubt = (observed and observed.spread) or figure.cited_spread, figure.doubt
        if spread is None and doubt is None and not case.seedless:  # seedless last: it imports the measure
            return []
        std, degrees = (0.0, np.inf) if spread is None else (spread.std, spread.degrees)
        of_examples = (observed.sampling_error if observed else 0.0, np.inf)
        of_figure = [(published_error, np.inf)] + ([] if doubt is None else [(doubt, figure.doubt_degrees)])
        of_answers = observed.interaction if observed and self.sampling == "score" else 0.0
        known = KNOWN_SHARE * of_answers**2 if observed and observed.seeds >= ANALYSES[-1] else 0.0
        remainder = float(np.sqrt(max(0.0, std**2 - known)))
        own = float(np.sqrt(1 / observed.seeds)) if observed else 0.0
        one_more = float(np.hypot(own, doubt is None))  # without a known error, the figure counts as one more run
        of_difference = combined([of_examples, *of_figure, (of_answers * one_more, np.inf)])
        of_mean = combined([of_examples, (of_answers * own, np.inf)])
        bounds: list[Bound] = [
            (rounding, [of_difference, (remainder * one_more, degrees)]),
            (rounding + case.tolerance, [of_mean, (remainder * own, degrees)]),
        ]
        if doubt is None and figure.cited_spread is not None:
            of_paper = (figure.cited_spread.std, figure.cited_spread.degrees)
            bounds.append((rounding, [combined([of_mean, (remainder * own, degrees), *of_figure, of_paper])]))
        return bounds

    def decide(self, evidence: Evidence) -> Decision:
        """Return the outcome and its reason.

        Before the last analysis, a deviation must lie outside a wider band. If the published figure is the score of a
        constant answer, training may collapse to either class. The claim therefore also holds if any seed gives the
        published constant answer. The claim remains open if every seed gives a constant answer, but none gives the
        published one. If the interval lies above the score of the most frequent class, the model has learned something,
        and the claim cannot hold.
        """
        case, value, limits, outer = evidence.case, evidence.observed.value, evidence.limits, evidence.outer
        assert limits is not None
        assert outer is not None
        has_learned, same = self._learned(evidence), evidence.same_constant
        if len(evidence.constants) == len(evidence.estimands) and not same:
            return "inconclusive", Grounds.OTHER_CONSTANT()
        if same and not has_learned:
            return self.passes, Grounds.SAME_CONSTANT(same=same, seeds=len(evidence.estimands))
        early = {"seeds": evidence.observed.seeds, "planned": ANALYSES[-1], "outer": outer}
        if not outer[0] <= value <= outer[1]:
            return "deviates", Grounds.OUTSIDE(**self._difference(case, value, outer))
        if not limits[0] <= value <= limits[1]:
            return "inconclusive", Grounds.OUTSIDE_SO_FAR(observed=value, **early)
        if not self.decidable(limits, case.unit):
            return "inconclusive", Grounds.BAND_TOO_WIDE(published=case.figure.published)
        facts, tolerance = self._difference(case, value, limits), case.stated_tolerance
        if case.figure.constant_answer:
            return has_learned or (self.passes, Grounds.INSIDE_WITHOUT_LEARNING(tolerance=case.tolerance, **facts))
        for nothing in self.doubtful(evidence):
            interval, side = evidence.interval, np.sign(facts["published"] - nothing)
            if min(side * (end - nothing) for end in interval) <= 0:
                includes = interval[0] <= nothing <= interval[1]
                grounds = Grounds.INCLUDES_NOTHING_LEARNED if includes else Grounds.OTHER_SIDE_OF_NOTHING
                meaning = evidence.estimands[0].nothing_is
                return "inconclusive", grounds(interval=interval, nothing=nothing, meaning=meaning)
        if tolerance is not None and abs(facts["difference"]) > tolerance + case.figure.rounding:
            return "inconclusive", Grounds.OUTSIDE_TOLERANCE(tolerance=tolerance, **facts)
        return self.passes, Grounds.INSIDE(**facts)

    def _difference(self, case: JudgedCase, value: float, band: Ends) -> dict[str, Any]:
        """Return the difference from the published figure, with an interval of the same width as the unclipped band."""
        published = case.figure.published
        assert published is not None
        half, difference = max(published - band[0], band[1] - published), value - published
        ends = {"low": difference - half, "high": difference + half}
        return {"published": published, "difference": difference, "half": half, **ends}

    def _learned(self, evidence: Evidence) -> Decision | None:
        """Return the decision if the model learned something although the published answer is constant, else None."""
        case = evidence.case
        most = max((nothing + case.tolerance for nothing in self.doubtful(evidence)), default=np.inf)
        if not case.figure.constant_answer or evidence.interval[0] <= most:
            return None
        return "inconclusive", Grounds.LEARNED_SOMETHING(interval=evidence.interval, nothing=most - case.tolerance)

    def p_values(self, evidence: Evidence) -> PValues:
        """Return the p-value against the claim, and None, because no measurement can confirm a published figure."""
        value, published, shown = evidence.observed.value, evidence.case.figure.published, evidence.shown
        assert published is not None
        if shown is not None and shown[0] <= value <= shown[1]:
            return 1.0, None
        distance, confidence = abs(value - published), evidence.deciding_confidence
        bounds = self._bounds(evidence.case, evidence.observed, evidence.published_error)
        p_value = max(p_beyond(distance - margin, errors, confidence) for margin, errors in bounds)
        return min(1.0, max(SMALLEST_P_VALUE, p_value) / evidence.early), None

    def decidable(self, limits: Ends, unit: str) -> bool:
        """Return whether the band is narrow enough to decide the claim: it must not include most possible values."""
        low, high = limits
        return min(high, 100.0) - max(low, 0.0) <= WIDEST_BANDS.get(unit, float("inf"))

    def doubtful(self, evidence: Evidence) -> tuple[float, ...]:
        """Return a 1-tuple with the quantity's value for a model that learned nothing, or () if it is unknown."""
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
        """Return the factor by which to multiply the sampling error when comparing with the published figure.

        The factor is 1 if the figure was measured on different examples. If it was measured on the validation set, the
        factor is 0 for measurements on the whole set, and between 0 and 1 for measurements on some of its rows.
        """
        if self.sampling != "score":
            return 1.0
        rows = {measurement.subject.task: measurement.examples for measurement in measurements}
        whole = sum(TASKS[name].dev_rows for name in rows if name in TASKS)
        return float(np.sqrt(max(0.0, 1 - sum(rows.values()) / whole))) if whole else 1.0


Expectation = Annotated[Order | Figure | Equality, Field(discriminator="kind")]
