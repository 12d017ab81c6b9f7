"""The evidence for a verdict: what has been measured, and the band that it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bertsecrets.claims.band import Ends, JudgedCase
from bertsecrets.claims.estimand import FEWEST_EXAMPLES, Estimand
from bertsecrets.claims.estimate import Estimate

SCORE_TOLERANCE = 1e-9  # points; for equal scores


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
