"""Does a measurement agree with a claim? Bands from sampling error and seed spread, intervals by resampling.

An order (`above`, `below`) is decided by the share of bootstrap resamples in which it holds. A figure (`around`) is
decided by equivalence: the observed interval lies inside the band (reproduced), wholly outside (deviates), or across
its edge (inconclusive), so that too little data can never pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from bertsecrets.claims import Case, Outcome
from bertsecrets.core import Measurement
from bertsecrets.params import JudgeParams
from bertsecrets.quantities import QUANTITIES, NotApplicableError, Reading
from bertsecrets.tasks import TASKS, Task

WIDEST = 50.0  # points: a band around a published score that is wider than half the scale decides nothing


@dataclass(frozen=True)
class Estimate:
    """An observed quantity: its mean over seeds, bootstrap replicates of it, and how many examples and seeds it has."""

    value: float
    replicates: Float[np.ndarray, " resamples"]
    seeds: int
    examples: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """The central bootstrap interval."""
        tail = (1 - confidence) / 2
        low, high = np.quantile(self.replicates, [tail, 1 - tail])
        return float(low), float(high)


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
        if self.measurements and all(found.reused for found in self.measurements):
            remarks.append("stored")
        return list(dict.fromkeys(remarks))

    @property
    def partial(self) -> bool:
        """Whether the data were cut or are not the official ones, so that the outcome is not the claim's last word."""
        return any(
            found.provenance.get("limit")
            or found.provenance.get("train_limit")
            or not found.provenance.get("official_data", True)
            for found in self.measurements
        )

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
            "band": [None if not np.isfinite(b) else b for b in self.band] if self.band else None,
            "observed": self.observed,
            "interval": list(self.interval) if self.interval else None,
            "verdict": self.outcome,
            "reason": self.reason,
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
        f"  published {show(data['published'])} {data['unit']}",
        f"  band      {show_band(verdict.band)}",
        f"  observed  {show(verdict.observed)} {show_band(verdict.interval)}",
        f"  because   {verdict.reason}",
    ]
    if data["remarks"]:
        lines.append(f"  remarks   {'; '.join(data['remarks'])}")
    return "\n".join(lines)


def show(number: float | None) -> str:
    """A figure with the digits that matter."""
    if number is None:
        return "-"
    text = f"{number:.1f}" if abs(number) >= 10 else f"{number:.3g}"
    return "0" if float(text) == 0 else text


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


def band(case: Case, confidence: float) -> tuple[float, float]:
    """The band of a claim on a task, in the claim's unit.

    For `around`: published +- (z * sqrt(sampling**2 + seed**2) + rounding), where `sampling` is the standard error of
    the published score on the official dev set and `seed` the cited seed-to-seed standard deviation.
    """
    expect, figure = case.claim.expect, case.figure
    assert expect is not None
    if expect.kind == "above":
        return expect.value, float("inf")
    if expect.kind == "below":
        return float("-inf"), expect.value
    assert figure.published is not None
    sampling = 0.0
    if expect.sampling == "score":
        sampling = 100 * score_error(TASKS[case.task], figure.published / 100)
    z = float(stats.norm.ppf((1 + confidence) / 2))
    half = z * float(np.hypot(sampling, figure.seed_std or 0.0)) + figure.rounding
    return figure.published - half, figure.published + half


def score_error(task: Task, score: float) -> float:
    """Standard error of a score (a fraction) on a task's official dev set.

    Binomial for accuracy, and for F1 as its usual approximation; for a correlation that of Pearson's r under normality,
    (1 - r**2) / sqrt(n - 1).
    """
    share = min(max(score, 0.0), 1.0)
    if task.regression:
        return (1 - share**2) / float(np.sqrt(task.dev_rows - 1))
    return float(np.sqrt(share * (1 - share) / task.dev_rows))


def estimate(readings: Sequence[Reading], settings: JudgeParams, seed_std: float | None = None) -> Estimate:
    """A quantity from one reading per seed, with a two-level bootstrap over seeds and examples.

    The examples are resampled alike for every seed, since all seeds saw the same ones. With a single seed the cited
    seed-to-seed spread, where there is one, is added to the resamples.
    """
    rng = np.random.default_rng(settings.seed)
    resamples, examples = settings.resamples, len(readings[0][0])
    values = np.array([float(statistic(samples.mean(0))) for samples, statistic in readings])
    by_seed = np.empty((len(readings), resamples))
    for start in range(0, resamples, 100):
        stop = min(start + 100, resamples)
        counts = rng.multinomial(examples, np.full(examples, 1 / examples), size=stop - start) / examples
        for row, (samples, statistic) in enumerate(readings):
            by_seed[row, start:stop] = statistic(counts @ samples)
    if len(readings) == 1:
        replicates = by_seed[0] + rng.normal(0, seed_std or 0.0, resamples)
    else:
        drawn = rng.integers(len(readings), size=(resamples, len(readings)))
        replicates = by_seed[drawn, np.arange(resamples)[:, None]].mean(1)
    return Estimate(float(values.mean()), replicates, len(readings), examples)


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
        readings = [] if problem else [QUANTITIES[claim.quantity].read(seed, case.task) for seed in found]
    except NotApplicableError as error:
        problem = str(error)
    if problem:
        return Verdict(case, "not applicable", problem, measurements=flat)
    observed = estimate(readings, settings, case.figure.seed_std)
    limits = band(case, settings.confidence)
    outcome, reason = decide(observed, limits, settings.decided)
    if claim.quantity == "score-over-majority" and observed.value <= 0 and all(m.values.get("constant") for m in flat):
        outcome, reason = "deviates", "a constant answer is never above the majority class"
    if claim.expect.kind == "around" and limits[1] - limits[0] > WIDEST:
        outcome, reason = "inconclusive", f"a band of more than {WIDEST:.0f} points could hardly be missed"
    return Verdict(case, outcome, reason, observed.value, observed.interval(0.95), limits, flat)


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
