"""Does a measurement agree with a claim? Bands from sampling error and seed spread, intervals by resampling.

An order (`above`, `below`) is decided by the share of bootstrap resamples in which it holds. A figure (`around`) is
decided by equivalence: the observed interval lies inside the band (reproduced), wholly outside (deviates), or across
its edge (inconclusive). Data that are too few to decide anything never pass: fewer examples than a sign test needs are
inconclusive, and no band grows as the measured data shrink.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from bertsecrets.claims.estimand import NotApplicableError, Reading
from bertsecrets.claims.estimate import Estimate, estimate, power
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case, Outcome
from bertsecrets.measures import seedless
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.tasks import TASKS, Task
from bertsecrets.types import Measurement

WIDEST = 50.0  # points: a band around a published score that is wider than half the scale decides nothing
TOO_WIDE = f"a band of more than {WIDEST:.0f} points could hardly be missed: this figure cannot be decided"
ONE_MODEL = "classes of maps come from a classifier that was trained, and its errors counted, on maps of {} alone"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim on a task."""

    case: Case
    outcome: Outcome
    reason: str
    observed: float | None = None
    interval: tuple[float, float] | None = None
    band: tuple[float, float] | None = None
    measurements: tuple[Measurement, ...] = ()
    power: str = ""

    @property
    def remarks(self) -> list[str]:
        """What a reader must know beside the outcome: limited or unofficial data, constant predictors, reuse."""
        remarks: list[str] = []
        for found in self.measurements:
            limits = [f"{k} {found.provenance[k]}" for k in ("limit", "train_limit") if found.provenance.get(k)]
            if limits:
                remarks.append(", ".join(limits).replace("_", " "))
            if not found.provenance.get("official_data", True):
                remarks.append("unofficial data")
            if found.values.get("constant"):
                remarks.append(f"constant predictor ({found.subject.initialisation})")
            annotated = found.settings.get("annotated_models")
            if annotated and found.subject.model not in annotated:
                remarks.append(ONE_MODEL.format(", ".join(annotated)))
        if self.measurements and all(found.reused for found in self.measurements):
            remarks.append("stored")
        return list(dict.fromkeys(remarks))

    def as_json(self) -> dict[str, Any]:
        """The verdict as data, for `--benchmark-json`, reports and other programs."""
        claim = self.case.claim
        return {
            "id": str(self.case),
            "claim": claim.id,
            "task": self.case.task,
            "statement": claim.statement,
            "source": claim.source,
            "unit": claim.unit or (QUANTITIES[claim.quantity].unit if claim.quantity else ""),
            "published": self.case.figure.published,
            "published_constant_answer": self.case.figure.constant_answer,
            "band": [None if not np.isfinite(b) else b for b in self.band] if self.band else None,
            "observed": self.observed,
            "interval": list(self.interval) if self.interval else None,
            "verdict": self.outcome,
            "reason": self.reason,
            "power": self.power,
            "remarks": self.remarks,
            "models": sorted({found.subject.model for found in self.measurements}),
            "seeds": sorted({found.subject.seed for found in self.measurements}),
            "seconds": round(sum(found.provenance.get("seconds", 0) for found in self.measurements), 2),
        }

    def check(self) -> None:
        """Fail where the claim deviates.

        Raises:
            AssertionError: with claim, published figure, band and observation side by side.
        """
        __tracebackhide__ = True
        if self.outcome == "deviates":
            raise AssertionError(describe(self))


def describe(verdict: Verdict) -> str:
    """A verdict in a few lines: statement, published, band, observed."""
    data = verdict.as_json()
    lines = [
        f"{data['id']} {verdict.outcome}: {data['statement']} ({data['source']})",
        f"  published {show_published(verdict.case, data['unit'])}",
        f"  band      {show_band(verdict.band)}",
        f"  observed  {show(verdict.observed)} {show_band(verdict.interval)}",
        f"  because   {verdict.reason}",
    ]
    if verdict.power:
        lines.append(f"  power     {verdict.power}")
    if data["remarks"]:
        lines.append(f"  remarks   {'; '.join(data['remarks'])}")
    return "\n".join(lines)


def show(number: float | None) -> str:
    """A figure with the digits that matter."""
    if number is None:
        return "-"
    text = f"{number:.1f}" if abs(number) >= 10 else f"{number:.3g}"
    return "0" if float(text) == 0 else text


def show_published(case: Case, unit: str) -> str:
    """A published figure with its unit, and the mark of one that equals the score of a constant answer."""
    if case.figure.published is None:
        return "-"
    return f"{show(case.figure.published)} {unit}{' (a constant answer)' if case.figure.constant_answer else ''}"


def show_band(band: tuple[float, float] | None) -> str:
    """A band as `[low, high]`, `> low` or `< high`."""
    if band is None:
        return "-"
    low, high = band
    if high == np.inf:
        return f"> {show(low)}"
    if low == -np.inf:
        return f"< {show(high)}"
    return f"[{show(low)}, {show(high)}]"


def band(case: Case, confidence: float, sampling_error: float = 0.0) -> tuple[float, float]:
    """The band of a claim on a task, in the claim's unit.

    For `around`: published +- (z * sqrt(sampling**2 + seed**2) + rounding), where `seed` is the cited seed-to-seed
    standard deviation and `sampling` the standard error of the published score on the official dev set or, where the
    claim says `own`, that of the measurement at as many examples as the published figure has (`sampling_error`).
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
    """How many standard deviations to each side hold the central share of a normal distribution."""
    return float(stats.norm.ppf((1 + confidence) / 2))


def published_sampling(case: Case, own_error: float = 0.0) -> float:
    """The sampling error that goes into a band around a published figure, in the claim's unit."""
    expect, figure = case.claim.expect, case.figure
    assert expect is not None
    if expect.sampling == "score" and figure.published is not None:
        return 100 * score_error(TASKS[case.task], figure.published / 100)
    return own_error if expect.sampling == "own" else 0.0


def width_in_words(case: Case, confidence: float) -> str:
    """Where the width of a claim's band comes from."""
    expect, figure = case.claim.expect, case.figure
    assert expect is not None
    if expect.kind != "around":
        return f"{show_band(band(case, confidence))}, an order: decided by the share of resamples in which it holds"
    parts = []
    if expect.sampling == "score":
        parts.append(
            f"sampling error {show(published_sampling(case))} of the score on {TASKS[case.task].dev_rows} rows"
        )
    if expect.sampling == "own":
        parts.append("the sampling error of the measurement, at the published number of examples")
    if figure.seed_std is not None:
        parts.append(f"seed spread {figure.seed_std} ({figure.seed_source})")
    root = f"{z_of(confidence):.2f} x root of the squares of {' and '.join(parts)}" if parts else ""
    width = " + ".join(filter(None, (root, f"rounding {figure.rounding}")))
    known = f"{show_band(band(case, confidence))}: " if expect.sampling != "own" else ""
    warning = f"; {TOO_WIDE}" if too_wide(band(case, confidence)) else ""
    return f"{known}{figure.published} +- ({width}){warning}"


def too_wide(limits: tuple[float, float]) -> bool:
    """Whether a band around a figure could hardly be missed, so that nothing is decided by lying in it."""
    return bool(np.isfinite(limits).all() and limits[1] - limits[0] > WIDEST)


def at_published_size(case: Case, observed: Estimate, found: Sequence[Measurement]) -> float:
    """The sampling error of the observed quantity if it had as many examples as the published figure, in its unit."""
    assert case.claim.expect is not None
    most = case.claim.expect.examples or np.inf
    measured = {each.subject.task: each.examples for each in found}
    published = sum(min(most, TASKS[name].dev_rows if name in TASKS else np.inf) for name in measured)
    return observed.examples_error * float(np.sqrt(sum(measured.values()) / published))


def score_error(task: Task, score: float) -> float:
    """Standard error of a score (a fraction) on a task's official dev set.

    Binomial for accuracy, and for F1 as its usual approximation; for a correlation that of Pearson's r under normality,
    (1 - r**2) / sqrt(n - 1).
    """
    share = min(max(score, 0.0), 1.0)
    if task.regression:
        return (1 - share**2) / float(np.sqrt(task.dev_rows - 1))
    return float(np.sqrt(share * (1 - share) / task.dev_rows))


def judge(case: Case, found: Sequence[Sequence[Measurement]], settings: JudgeParams) -> Verdict:
    """Judge a claim on the measurements of each seed.

    Args:
        found: per seed, the measurements that the claim's quantity needs, in its order.
    """
    claim = case.claim
    assert claim.quantity is not None
    assert claim.expect is not None
    flat = tuple(measurement for seed in found for measurement in seed)
    problem = shape_problem(case, flat[0])
    try:
        read = QUANTITIES[claim.quantity].read
        readings = [] if problem else [read(seed, case.task, **claim.arguments) for seed in found]
    except NotApplicableError as error:
        problem = str(error)
    if problem:
        return Verdict(case, "not applicable", problem, measurements=flat)
    observed = estimate(readings, settings, case.figure.seed_std)
    limits = band(case, settings.confidence, at_published_size(case, observed, flat))
    outcome, reason = decide(observed, limits, settings.decided)
    if claim.quantity == "score-over-majority" and observed.value <= 0 and all(m.values.get("constant") for m in flat):
        outcome, reason = "deviates", "a constant answer is never above the majority class"
    least = fewest_that_decide(settings.decided)
    if observed.fewest < least and np.isfinite(observed.replicates).all():
        outcome, reason = "inconclusive", f"fewer than {least} examples decide nothing, whatever they say"
    if too_wide(limits):
        outcome, reason = "inconclusive", TOO_WIDE
    reason = "; ".join([reason, *_notes(readings)])
    if all(seedless(found.measure) for found in flat):
        doubt = "no seed plays a part: nothing is trained"
    elif too_wide(limits):
        doubt = "no number of seeds decides this"
    else:
        doubt = power(observed, limits, settings.decided)
    if not np.isfinite([observed.value, *observed.replicates]).all():
        return Verdict(case, outcome, reason, band=limits, measurements=flat, power=doubt)
    return Verdict(case, outcome, reason, observed.value, observed.interval(0.95), limits, flat, doubt)


def _notes(readings: Sequence[Reading]) -> list[str]:
    """What the readings say beside the outcome; by seed, where seeds differ."""
    of_each = [", ".join(reading.notes) for reading in readings]
    if len(set(of_each)) == 1:
        return [note for note in of_each[:1] if note]
    return [f"seed {place}: {note}" for place, note in enumerate(of_each, start=1) if note]


def fewest_that_decide(decided: float) -> int:
    """The least number of examples of which a sign test could reach this confidence, if all of them agreed."""
    return int(np.ceil(np.log(1 - decided) / np.log(0.5)))


def decide(observed: Estimate, limits: tuple[float, float], decided: float) -> tuple[Outcome, str]:
    """Outcome and reason of an estimate against a band.

    Args:
        decided: the share of resamples at which an order counts as decided; a figure is decided by the central
            interval that leaves 1 - `decided` on each side (two one-sided tests).
    """
    low, high = limits
    if not np.isfinite(observed.replicates).all():
        return "inconclusive", "the quantity cannot be computed on some of the resamples"
    if np.isinf(low) or np.isinf(high):
        inside = ((observed.replicates > low) & (observed.replicates < high)).mean()
        ties = ((observed.replicates == low) | (observed.replicates == high)).mean()
        if ties == 1:
            return "inconclusive", "every resample gives exactly the limit: no example speaks for or against"
        share = float(inside + ties / 2)  # a tie speaks for neither side
        reason = f"holds in {share:.1%} of the resamples"
        if share >= decided:
            return "reproduced", reason
        return ("deviates", reason) if share <= 1 - decided else ("inconclusive", reason + ", which decides nothing")
    tail = 1 - decided
    left, right = observed.interval(1 - 2 * tail)
    shown = f"the {1 - 2 * tail:.0%} interval [{show(left)}, {show(right)}]"
    if left >= low and right <= high:
        return "reproduced", f"{shown} lies inside the band"
    if right < low or left > high:
        return "deviates", f"{shown} lies outside the band"
    return "inconclusive", f"{shown} crosses the edge of the band"


def shape_problem(case: Case, found: Measurement) -> str | None:
    """Why a claim about single layers or heads does not fit the measured model; None where it does."""
    wanted = case.claim.needs_shape
    if wanted is None:
        return None
    grids = [np.shape(v) for v in found.values.values() if np.ndim(v) == 2]
    if grids and tuple(grids[0]) != tuple(wanted):
        return f"needs {wanted[0]} layers x {wanted[1]} heads; the model has {grids[0][0]} x {grids[0][1]}"
    return None
