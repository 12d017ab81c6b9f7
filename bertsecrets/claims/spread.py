"""The seed-to-seed spread of a quantity: what is known before its own seeds, and what they add to that."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

LEAST_DEGREES, MOST_DEGREES = 2.0, 8.0  # of a prior: runs of one model say little about another's


@dataclass(frozen=True)
class Spread:
    """A seed-to-seed standard deviation, known as well as from `degrees` + 1 seeds.

    Args:
        std: in the quantity's unit, of values on the same examples.
        source: whose it is.
        alike: how much of the variance that the choice of examples brings to one seed all seeds have in common. The
            rest is what a seed does to single examples, which is part of the spread; 1 where that is not known.
    """

    std: float
    degrees: float
    source: str = ""
    alike: float = 1.0

    def draws(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, " count"]:
        """Return so many draws of Student's t with these degrees of freedom, spread evenly, in the quantity's unit."""
        return self.std * rng.permutation(_students(self.degrees, count))

    def updated(self, values: Sequence[float]) -> "Spread":
        """Return the spread once seeds have been seen: its square is the mean of both, weighted by their degrees.

        The more seeds have been seen, the less counts what was known before, of another model or task: its
        degrees are divided by their number.

        Args:
            values: of the quantity, by seed.
        """
        own, before = len(values) - 1, self.degrees / len(values)
        if own < 1:
            return self
        variance = (before * self.std**2 + own * float(np.var(values, ddof=1))) / (before + own)
        return Spread(float(np.sqrt(variance)), before + own, f"the seeds and {self.source}")


@lru_cache(maxsize=16)
def _students(degrees: float, count: int) -> Float[np.ndarray, " count"]:
    from scipy.special import stdtrit  # scipy.stats would take five times as long to import

    return np.asarray(stdtrit(degrees, (np.arange(count) + 0.5) / count))


def pooled(spreads: Sequence[tuple[float, int]], source: str, alike: float = 1.0) -> Spread | None:
    """Return the spread that several give for another case of their kind; None for none (Smyth 2004, section 6).

    Each is the standard deviation of so many degrees of freedom. The more they differ beyond what their degrees
    explain, the fewer degrees the result has.
    """
    from scipy.special import digamma, polygamma

    known = [(std, degrees) for std, degrees in spreads if std > 0 and degrees > 0]
    if not known:
        return None
    half = np.array([degrees / 2 for _, degrees in known])
    logs = np.log([std**2 for std, _ in known]) - digamma(half) + np.log(half)
    beyond = float(logs.var(ddof=1) - polygamma(1, half).mean()) if len(known) > 1 else 0.0
    degrees = 2 * _inverse_trigamma(beyond) if beyond > 0 else MOST_DEGREES
    degrees = float(np.clip(degrees, LEAST_DEGREES, min(MOST_DEGREES, sum(d for _, d in known))))
    variance = np.exp(logs.mean() + digamma(degrees / 2) - np.log(degrees / 2))
    return Spread(float(np.sqrt(variance)), degrees, source, alike)


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value, by Newton's steps on 1 / trigamma (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x
