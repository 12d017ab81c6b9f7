"""Bands: the limits between which a quantity must lie, always computed from spreads."""

from collections.abc import Iterable, Sequence
from math import floor, log10

import numpy as np

from bertsecrets.claims.estimate import Estimate, Spread
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

SMALLEST = {
    "points": (0.5, "half a point, less than a meaningful difference in GLUE's tables"),
    "percent": (1.0, "one map or head in a hundred"),
    "attention": (0.005, "a two-hundredth of a token's total attention"),
    "cosine": (0.01, "a hundredth of the whole range of similarity between non-negative maps"),
    "depth": (0.02, "a quarter of the distance between two of twelve layers"),
    "ratio": (0.02, "a fiftieth of the larger weight"),
    "r": (0.01, "a hundredth of a perfect correlation; panels of two tasks may correlate .98"),
    "standard deviations": (0.1, "a tenth of the heads' own spread"),
}
CONFIDENCE = 0.95  # for declaring a case undecidable before measuring
WIDEST = {"points": 50.0, "percent": 50.0}  # half of all values; wider prediction intervals include almost anything


def smallest(unit: str) -> tuple[float, str]:
    """Return the smallest effect of interest in a unit and its reason; 0 if the unit has none."""
    return SMALLEST.get(unit, (0.0, ""))


def smallest_effect(case: Case) -> tuple[float, str]:
    """Return a case's smallest effect of interest and its reason: those of the claim, otherwise of its unit."""
    own = case.claim.smallest_effect
    return (own.size, own.reason) if own else smallest(case.unit)


def too_wide(band: tuple[float, float], unit: str) -> bool:
    """Return whether a band around a figure is too wide to decide anything, because it includes most values.

    >>> too_wide((32.5, 72.9), "points"), too_wide((-20.0, 82.7), "points")
    (False, True)
    """
    low, high = band
    return min(high, 100.0) - max(low, 0.0) > WIDEST.get(unit, float("inf"))


def band(
    case: Case, confidence: float, observed: Estimate | None = None, published_error: float = 0.0
) -> tuple[float, float] | None:
    """Return the band of a case in the claim's unit; one end is infinite if the claim is about an order.

    Around a published figure, the band is a prediction interval for the mean over seeds, assuming that the figure comes
    from one more run of the same procedure or has the uncertainty on record (`doubt`). The seed variance is estimated
    from the observed seeds, or cited if there are fewer than three. Seeds may have similar scores by chance although
    their answers differ, so the spread of a score is at least what these differences cause (`Estimate.interaction`). If
    the claim says that both values were measured on the same examples, these add no sampling error.

    Args:
        observed: Estimate to compare. If None, the band for the limit of many seeds is returned.
        published_error: Sampling error of the published figure, if it was measured on different examples.

    Returns:
        The limits, or None if the seed variance is unknown.
    """
    expect, figure = case.claim.expect, case.figure
    if expect.kind == "above":
        return expect.value, float("inf")
    if expect.kind == "below":
        return float("-inf"), expect.value
    if expect.kind == "equal":
        least, _ = smallest_effect(case)
        return expect.value - least, expect.value + least
    assert figure.published is not None
    spread, doubt = (observed and observed.spread) or cited_spread(case), figure.doubt
    if spread is None and doubt is None and not case.claim.seedless:  # the last, because it imports the measure
        return None
    parts: list[tuple[float, float]] = [(published_error, np.inf)]  # standard errors with their degrees of freedom
    if observed is not None:
        parts.append((observed.sampling_error, np.inf))
    if doubt is not None:
        parts.append((doubt, figure.doubt_degrees))
    if spread is not None:
        own = 1 / observed.seeds if observed is not None else 0.0
        one_more = 0.0 if doubt is not None else 1.0  # whether the published figure counts as one more run
        least = observed.interaction if observed is not None and expect.sampling == "score" else 0.0
        parts.append((float(max(spread.std, least) * np.sqrt(one_more + own)), spread.degrees))
    half = reach(parts, confidence) + figure.rounding
    ends = np.clip(
        (figure.published - half, figure.published + half), *QUANTITIES[case.claim.quantity].within(case.task)
    )
    return float(ends[0]), float(ends[1])


def decidable(case: Case, limits: tuple[float, float]) -> bool:
    """Return whether a band can decide a case; a band around a figure must not be too wide."""
    return case.claim.expect.kind != "around" or not too_wide(limits, case.unit)


def undecidable(case: Case) -> str:
    """Return why no data could reproduce a claim on its task; empty if some could.

    A published figure may be so uncertain that its prediction interval includes most values.
    """
    expect, figure = case.claim.expect, case.figure
    if expect.kind != "around" or figure.published is None or figure.doubt is None:
        return ""
    half = reach([(figure.doubt, figure.doubt_degrees)], CONFIDENCE) + figure.rounding
    if not too_wide((figure.published - half, figure.published + half), case.unit):
        return ""
    where = TASKS[case.task].title if case.task in TASKS else "any task"
    doubtful = (
        f"{format_number(figure.published)} +- {format_number(half)} covers more than half of all possible values"
    )
    return f"cannot be decided on {where}: {doubtful}"


def cited_spread(case: Case) -> Spread | None:
    """Return the seed-to-seed spread cited with the published figure; None if there is none."""
    figure = case.figure
    if figure.seed_std is None:
        return None
    return Spread(figure.seed_std, figure.seed_degrees, figure.seed_source or "")


def reach(parts: Sequence[tuple[float, float]], confidence: float) -> float:
    """Return the half-width of the interval for a sum of independent errors (Welch-Satterthwaite degrees of freedom).

    Args:
        parts: Standard errors with their degrees of freedom.

    >>> round(reach([(1.0, float("inf"))], 0.95), 2)
    1.96
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    total = sum(error**2 for error, _ in parts)
    doubt = sum(error**4 / degrees for error, degrees in parts)
    share = (1 + confidence) / 2
    quantile = stdtrit(total**2 / doubt, share) if doubt > 0 else ndtri(share)
    return float(quantile * np.sqrt(total))


def at_published_size(case: Case, observed: Estimate, measurements: Iterable[Measurement]) -> float:
    """Return the sampling error of a published figure if it was measured on different examples; otherwise 0."""
    if case.claim.expect.sampling != "own":
        return 0.0
    most = case.claim.expect.examples or np.inf
    measured = {measurement.subject.task: measurement.examples for measurement in measurements}
    published = sum(min(most, TASKS[name].dev_rows if name in TASKS else np.inf) for name in measured)
    return observed.examples_error * float(np.sqrt(sum(measured.values()) / published))


def share_of_other_rows(case: Case, measurements: Iterable[Measurement]) -> float:
    """Return the factor for the sampling error when comparing with a published figure on the same validation set.

    It is 0 if the full validation set was measured, and 1 if the published figure was measured on different examples.
    """
    if case.claim.expect.sampling != "score":
        return 1.0
    rows = {measurement.subject.task: measurement.examples for measurement in measurements}
    whole = sum(TASKS[name].dev_rows for name in rows if name in TASKS)
    return float(np.sqrt(max(0.0, 1 - sum(rows.values()) / whole))) if whole else 1.0


def format_number(number: float | None) -> str:
    """Format a number with one decimal if it is 10 or more, otherwise with three significant digits; `-` for None.

    >>> format_number(12.345), format_number(0.0004), format_number(None)
    ('12.3', '0.0004', '-')
    """
    if number is None:
        return "-"
    text = f"{number:.1f}" if abs(number) >= 10 else f"{number:.3g}"
    return "0" if float(text) == 0 else text


def format_interval(interval: tuple[float, float] | None) -> str:
    """Format an interval as `[low, high]`, `> low` or `< high`; narrow ones with two significant digits of the width.

    >>> format_interval((0, float("inf"))), format_interval((0.2085, 0.2095))
    ('> 0', '[0.2085, 0.2095]')
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
