"""Bands: the limits between which a quantity must lie. They are computed from sampling error and seed spread."""

from collections.abc import Iterable

import numpy as np

from bertsecrets.claims.estimate import Estimate
from bertsecrets.claims.schema import Case
from bertsecrets.texts.tasks import TASKS, Task
from bertsecrets.types import Measurement

WIDEST = 50.0  # points: a band around a published score that is wider than half the scale decides nothing


def band(case: Case, confidence: float, sampling_error: float = 0.0) -> tuple[float, float]:
    """Return the band of a claim on a task, in the claim's unit; an infinite end for a claim about an order.

    For `around`: published +- (z * sqrt(sampling**2 + seed**2) + rounding), where `seed` is the cited seed-to-seed
    standard deviation and `sampling` the standard error of the published score on the official dev set or, where the
    claim says `own`, that of the measurement at as many examples as the published figure has.

    Args:
        confidence: of the band; it sets z.
        sampling_error: of the measurement, in the claim's unit (`at_published_size`).
    """
    expect, figure = case.claim.expect, case.figure
    assert expect is not None
    if expect.kind == "above":
        return expect.value, float("inf")
    if expect.kind == "below":
        return float("-inf"), expect.value
    assert figure.published is not None
    half = float(z_of(confidence) * np.hypot(published_sampling(case, sampling_error), figure.seed_std or 0.0))
    half += figure.rounding
    return figure.published - half, figure.published + half


def z_of(confidence: float) -> float:
    """Return the number of standard deviations on each side of the mean that hold this share of a normal distribution.

    >>> round(z_of(0.99), 3)
    2.576
    """
    from scipy.special import ndtri  # scipy.stats would take five times as long to import

    return float(ndtri((1 + confidence) / 2))


def published_sampling(case: Case, own_error: float = 0.0) -> float:
    """Return the sampling error that goes into a band around a published figure, in the claim's unit."""
    expect, figure = case.claim.expect, case.figure
    assert expect is not None
    if expect.sampling == "score" and figure.published is not None:
        return 100 * score_error(TASKS[case.task], figure.published / 100)
    return own_error if expect.sampling == "own" else 0.0


def too_wide(limits: tuple[float, float]) -> bool:
    """Return whether a band is so wide that nearly any value would lie in it.

    >>> too_wide((20, 91)), too_wide((60, 70)), too_wide((0, float("inf")))
    (True, False, False)
    """
    return bool(np.isfinite(limits).all() and limits[1] - limits[0] > WIDEST)


def too_wide_reason(limits: tuple[float, float]) -> str:
    """Return, in words, that a band is too wide to decide anything."""
    return f"not judged: the band is so wide ({limits[1] - limits[0]:.0f} points) that nearly any value would lie in it"


def at_published_size(case: Case, observed: Estimate, measurements: Iterable[Measurement]) -> float:
    """Return the sampling error that the observed quantity would have on as many examples as the published figure."""
    assert case.claim.expect is not None
    most = case.claim.expect.examples or np.inf
    measured = {measurement.subject.task: measurement.examples for measurement in measurements}
    published = sum(min(most, TASKS[name].dev_rows if name in TASKS else np.inf) for name in measured)
    return observed.examples_error * float(np.sqrt(sum(measured.values()) / published))


def score_error(task: Task, score: float) -> float:
    """Return the standard error of a score (a fraction) on a task's official dev set.

    Binomial for accuracy, and for F1 as its usual approximation; for a correlation that of Pearson's r under normality,
    (1 - r**2) / sqrt(n - 1).
    """
    share = min(max(score, 0.0), 1.0)
    if task.regression:
        return (1 - share**2) / float(np.sqrt(task.dev_rows - 1))
    return float(np.sqrt(share * (1 - share) / task.dev_rows))


def format_number(number: float | None) -> str:
    """Return a number with one decimal from 10 on and three significant digits below; `-` for None.

    >>> format_number(12.345), format_number(0.0004), format_number(None)
    ('12.3', '0.0004', '-')
    """
    if number is None:
        return "-"
    text = f"{number:.1f}" if abs(number) >= 10 else f"{number:.3g}"
    return "0" if float(text) == 0 else text


def format_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval as `[low, high]`, `> low` or `< high`.

    >>> format_interval((0, float("inf")))
    '> 0'
    """
    if interval is None:
        return "-"
    low, high = interval
    if high == np.inf:
        return f"> {format_number(low)}"
    if low == -np.inf:
        return f"< {format_number(high)}"
    return f"[{format_number(low)}, {format_number(high)}]"
