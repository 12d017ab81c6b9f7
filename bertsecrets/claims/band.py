"""Functions that compute and format bands, which are the limits between which a quantity must lie."""

from collections.abc import Sequence
from math import floor, log10
from typing import Protocol

import numpy as np

from bertsecrets.claims.estimate import MANY_DEGREES, Estimate
from bertsecrets.claims.figure import TaskFigure

Ends = tuple[float, float]
Error = tuple[float, float]  # a standard error and its degrees of freedom
Errors = Sequence[Error]
SMALLEST_EFFECTS = {
    "points": (0.5, "half a point, less than a meaningful difference in GLUE's tables"),
    "percent": (1.0, "one map or head in a hundred"),
    "attention": (0.005, "a two-hundredth of a token's total attention"),
    "cosine": (0.01, "a hundredth of the whole range of similarity between non-negative maps"),
    "depth": (0.02, "a quarter of the distance between two of twelve layers"),
    "ratio": (0.02, "a fiftieth of the larger weight"),
    "r": (0.01, "a hundredth of a perfect correlation; panels of two tasks may correlate .98"),
    "standard deviations": (0.1, "a tenth of the heads' own spread"),
}


class JudgedCase(Protocol):
    """The part of the interface of `schema.Case` that expectations and evidence use."""

    @property
    def figure(self) -> TaskFigure: ...
    @property
    def unit(self) -> str: ...
    @property
    def seedless(self) -> bool: ...
    @property
    def within(self) -> Ends: ...
    @property
    def smallest_effect(self) -> tuple[float, str]: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def stated_tolerance(self) -> float | None: ...
    def band(
        self, confidence: float, observed: Estimate | None = None, published_error: float = 0.0
    ) -> Ends | None: ...


def smallest(unit: str) -> tuple[float, str]:
    """Return the smallest effect of interest in a unit, and the reason for it. The effect is 0 if none is defined."""
    return SMALLEST_EFFECTS.get(unit, (0.0, ""))


def reach(errors: Errors, confidence: float) -> float:
    """Return the half-width of a confidence interval for a sum of errors, some of which are estimated from few seeds.

    It is the root of the sum of squares of the half-widths for each error.

    Args:
        errors: Standard errors, each with its degrees of freedom.

    >>> round(reach([(1.0, float("inf"))], 0.95), 2), round(reach([(1.0, float("inf")), (1.0, 4.0)], 0.95), 2)
    (1.96, 3.4)
    """
    return combined(_reaches(errors, confidence))[0]


def p_beyond(distance: float, errors: Errors, confidence: float) -> float:
    """Return a two-sided p-value, which is below 1 - `confidence` if a distance from 0 exceeds `reach`."""
    from scipy.special import stdtr, stdtrit  # scipy.stats would take five times as long to import

    half, degrees = combined(_reaches(errors, confidence))
    if distance <= 0 or half == 0:
        return float(distance <= 0)
    return 2 * float(stdtr(degrees, -distance / half * stdtrit(degrees, (1 + confidence) / 2)))


def _reaches(errors: Errors, confidence: float) -> list[Error]:
    """Return the half-width of the confidence interval for each error, with its degrees of freedom."""
    from scipy.special import stdtrit

    return [(stdtrit(min(degrees, MANY_DEGREES), (1 + confidence) / 2) * error, degrees) for error, degrees in errors]


def combined(errors: Errors) -> Error:
    """Return the standard error of a sum of independent errors, and its degrees of freedom (Welch-Satterthwaite)."""
    total = sum(error**2 for error, _ in errors)
    doubt = sum(error**4 / degrees for error, degrees in errors)
    return float(np.sqrt(total)), min(total**2 / doubt, MANY_DEGREES) if doubt > 0 else MANY_DEGREES


def format_number(number: float | None) -> str:
    """Format a number with one decimal if it is 10 or more, otherwise with three significant digits; `-` for None.

    >>> format_number(12.345), format_number(0.0004), format_number(0.0), format_number(None)
    ('12.3', '0.0004', '0', '-')
    """
    if number is None:
        return "-"
    text = f"{number:.1f}" if abs(number) >= 10 else f"{number:.3g}"
    return "0" if float(text) == 0 else text


def format_interval(interval: Ends | None) -> str:
    """Format an interval as `[low, high]`, `> low` or `< high`, with at least two significant digits of its width.

    >>> format_interval((0, float("inf"))), format_interval((float("-inf"), 50)), format_interval((0.2085, 0.2095))
    ('> 0', '< 50.0', '[0.2085, 0.2095]')
    """
    if interval is None:
        return "-"
    low, high = interval
    if high == np.inf:
        return f"> {format_number(low)}"
    if low == -np.inf:
        return f"< {format_number(high)}"
    decimals = 1 - floor(log10(high - low)) if high > low else 0
    ends = []
    for end in (low, high):
        text = format_number(end)
        shown = len(text.partition(".")[2]) if "e" not in text else decimals
        ends.append(f"{end + 0:.{decimals}f}" if shown < decimals and "e" not in text else text)
    return f"[{', '.join(ends)}]"
