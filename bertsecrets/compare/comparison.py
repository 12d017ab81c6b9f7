"""Comparison of two sides, head by head: which numbers differ, and which are equivalent.

Both sides are measured on the same examples. If either side has several seeds, seeds are the units of replication, and
drift is a difference beyond the seed variance. If both sides are single checkpoints, examples are the units, and the
result applies only to these checkpoints.

A cell is a head, a layer, or the whole model. A cell has drifted if its difference is significantly larger than the
smallest effect of interest (see `claims.band`). A cell is equivalent on both sides if its difference is significantly
smaller than that effect, according to two one-sided tests. The false discovery rate of drift is controlled over all
cells of all measures.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from bertsecrets.claims.band import smallest
from bertsecrets.claims.bootstrap import resampled_means
from bertsecrets.compare.sides import (
    DECIMALS,
    MeasureOnTask,
    Part,
    Side,
    Values,
    examples_difference,
    training_difference,
)
from bertsecrets.errors import UserError
from bertsecrets.progress import counted
from bertsecrets.settings import JudgeParams

Outcome = Literal["drift", "same", "open", "not comparable"]
Cells = Float[np.ndarray, " cells"]

MIN_DEGREES, MAX_DEGREES = 2.0, 8.0  # range for the degrees of freedom of the typical spread


@dataclass(frozen=True)
class CellDifferences:
    """The differences between two sides in one quantity. Each cell has one difference, averaged across seeds.

    Args:
        shape: Shape of the cells: (layers, heads), (layers,), or () for a scalar.
        deviations: Differences divided by the standard deviation across seeds or, if examples are the units, by the
            standard error over examples.
        p_drift: p-values for the null hypothesis that the difference is at most the smallest effect of interest.
        p_same: p-values for the null hypothesis that the difference is at least the smallest effect of interest.
        drifted: Mask of the cells that have drifted. The false discovery rate is controlled.
        shown_same: Mask of the equivalent cells. Each cell is tested alone, without correction for multiple testing.
    """

    name: str
    what: str
    unit: str
    shape: tuple[int, ...]
    before: Cells
    after: Cells
    deviations: Cells
    p_drift: Cells
    p_same: Cells
    drifted: Bool[np.ndarray, " cells"]
    shown_same: Bool[np.ndarray, " cells"]

    @property
    def largest(self) -> list[int]:
        """The drifted cells or, if no cell has drifted, all cells, sorted by deviation, then by change, largest first.

        Cells with a value on only one side come first.
        """
        cells = np.flatnonzero(self.drifted) if self.drifted.any() else np.arange(len(self.before))
        deviation = np.nan_to_num(abs(self.deviations[cells]), nan=-1.0, posinf=np.inf)
        change = np.nan_to_num(abs(self.after - self.before)[cells], nan=np.inf)
        return [int(cell) for cell in cells[np.lexsort((-change, -deviation))]]

    @property
    def drifted_by_layer(self) -> list[int]:
        """The number of drifted heads in each layer; empty if the cells are not heads."""
        return self.drifted.reshape(self.shape).sum(1).tolist() if len(self.shape) == 2 else []

    @property
    def data(self) -> dict[str, Any]:
        """The differences as JSON data, nested by layer and head."""

        def shaped(cells: np.ndarray) -> Any:
            return (np.round(cells, 6) if cells.dtype.kind == "f" else cells).reshape(self.shape).tolist()

        about = {"name": self.name, "what": self.what, "unit": self.unit, "smallest_effect": smallest(self.unit)[0]}
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return about | {name: shaped(cells) for name, cells in arrays.items()}


@dataclass(frozen=True)
class Compared:
    """The comparison of two sides by one measure on one task.

    Args:
        reason: Why a model counts as collapsed, or why the sides cannot be compared; otherwise "".
        basis: The numbers of seeds and examples that were compared, as text.
        counted: Units of replication.
    """

    wanted: MeasureOnTask
    outcome: Outcome
    reason: str = ""
    differences: tuple[CellDifferences, ...] = ()
    basis: str = ""
    counted: Literal["seeds", "examples"] = "seeds"

    @property
    def equal(self) -> bool:
        """Whether all numbers are exactly equal on both sides."""
        pairs = [(difference.before, difference.after) for difference in self.differences]
        return self.outcome == "same" and all(np.array_equal(*pair, equal_nan=True) for pair in pairs)

    @property
    def data(self) -> dict[str, Any]:
        """This comparison as JSON data."""
        return {
            **asdict(self.wanted),
            "outcome": self.outcome,
            "basis": self.basis,
            "reason": self.reason,
            "quantities": [difference.data for difference in self.differences],
        }


@dataclass(frozen=True)
class Comparison:
    """Comparison of two sides, measure by measure."""

    before: Side
    after: Side
    rate: float  # the false discovery rate of drift, and the error rate of each equivalence test
    measures: tuple[Compared, ...]

    @property
    def drifted(self) -> bool:
        """Whether any measure has drifted."""
        return any(measure.outcome == "drift" for measure in self.measures)

    @property
    def data(self) -> dict[str, Any]:
        """The comparison as JSON data."""
        sides = {
            name: {"name": side.name, "kind": side.kind, "left_out": dict(side.left_out)}
            for name, side in {"before": self.before, "after": self.after}.items()
        }
        return {
            "format": "bertsecrets-comparison",
            "format_version": "1.0",
            **sides,
            "false_discovery_rate": round(self.rate, 6),
            "drift": self.drifted,
            "measures": [measure.data for measure in self.measures],
        }


def compare(before: Side, after: Side, settings: JudgeParams) -> Comparison:
    """Compare two sides."""
    rate = 1 - settings.confidence
    others = {part.wanted.key: part for part in after.parts}
    measures = [_tested_measure(part, others.get(part.wanted.key), after, settings) for part in before.parts]
    if all(measure.outcome == "not comparable" for measure in measures):
        reasons = dict.fromkeys(measure.reason for measure in measures)
        reason = "; ".join(reasons) or f"{before.name} has no measurements"
        raise UserError(f"{before.name} and {after.name} cannot be compared: {reason}")
    return Comparison(before, after, rate, tuple(_decided(measures, rate)))


def _tested_measure(part: Part, other: Part | None, after: Side, settings: JudgeParams) -> Compared:
    wanted = part.wanted
    if other is None:
        return Compared(wanted, "not comparable", after.left_out.get(str(wanted), f"{after.name} lacks this measure"))
    if part.collapsed and not part.quantities:
        return Compared(wanted, "not comparable", part.collapsed)
    if other.collapsed and not (part.collapsed and other.quantities):
        return Compared(wanted, "drift", other.collapsed)
    if problem := _mismatch(part, other):
        return Compared(wanted, "not comparable", problem)
    replicated = len(part.seeds) + len(other.seeds) > 2
    differences = tuple(
        _by_seeds(name, values, other.quantities[name], (len(part.seeds), len(other.seeds)))
        if replicated
        else _by_examples(name, values, other.quantities[name], settings)
        if values.by_seed and other.quantities[name].by_seed
        else _by_errors(name, part, other, settings)
        for name, values in part.quantities.items()
        if name in other.quantities
    )
    seeds = " against ".join(counted(len(side.seeds), "seed") for side in (part, other))
    basis = (
        f"{seeds}, {counted(part.examples, 'example')}"
        if replicated
        else f"{counted(part.examples, 'example')}, one seed each"
    )
    return Compared(wanted, "open", "", differences, basis, "seeds" if replicated else "examples")


def _mismatch(part: Part, other: Part) -> str:
    """Return why two parts cannot be compared, or "" if they can."""
    sides = (part, other)
    if problem := examples_difference(*((side.data, side.examples, side.limit) for side in sides)):
        return problem
    if problem := training_difference(part.trained_on, other.trained_on):
        return problem
    if changed := [name for name in part.settings if part.settings[name] != other.settings.get(name)]:
        return f"measured with different settings ({', '.join(changed)}): measure or pin one of the sides again"
    pairs = [(values, other.quantities[name]) for name, values in part.quantities.items() if name in other.quantities]
    if not pairs:
        return "the two sides have no quantities in common: measure or pin one of them again"
    for before, after in pairs:
        if before.mean.shape != after.mean.shape:
            shapes = " and ".join(" x ".join(map(str, values.mean.shape)) for values in (before, after))
            return f"different numbers of layers or heads: {shapes}"
    known = all(side.errors or values.by_seed for side in sides for values in side.quantities.values())
    if len(part.seeds) + len(other.seeds) == 2 and not known:
        return "each side has only one seed, and at least one side has no per-example data: measure more seeds"
    return ""


def _by_seeds(name: str, before: Values, after: Values, counts: tuple[int, int]) -> CellDifferences:
    """Test the differences in a quantity with t-tests, with seeds as the units.

    A few seeds may agree closely by chance, so each head's variance is raised towards the pooled variance of all heads
    (Smyth 2004), but never lowered. In addition, no standard deviation is less than half the smallest change that a
    single example can cause. All heads share the same seeds, so pooling the heads adds no degrees of freedom.
    """
    degrees = sum(counts) - 2
    spreads = [values.std.ravel() for values in (before, after)]
    std = np.sqrt(((counts[0] - 1) * spreads[0] ** 2 + (counts[1] - 1) * spreads[1] ** 2) / degrees)
    finite = std[np.isfinite(std)]
    if len(finite) > 1 and (finite > 0).any():
        typical, prior = typical_spread(finite[finite > 0], degrees)
        std = np.maximum(std, np.sqrt((prior * typical**2 + degrees * std**2) / (prior + degrees)))
    std = np.maximum(std, max(before.step, after.step) / 2)
    return _tested(name, before, after, std, std * np.sqrt(1 / counts[0] + 1 / counts[1]), degrees)


def typical_spread(stds: Cells, degrees: int) -> tuple[float, float]:
    """Return the standard deviation of a typical cell, and its degrees of freedom (Smyth 2004, section 6).

    If the standard deviations of the cells differ by more than sampling error, fewer degrees of freedom are returned.
    """
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    logs = np.log(stds**2) - digamma(degrees / 2) + np.log(degrees / 2)
    beyond = float(logs.var(ddof=1) - polygamma(1, degrees / 2)) if len(stds) > 1 else 0.0
    beyond = float(np.clip(beyond, polygamma(1, MAX_DEGREES / 2), polygamma(1, MIN_DEGREES / 2)))
    prior = 2 * float(brentq(lambda half: polygamma(1, half) - beyond, MIN_DEGREES / 2, MAX_DEGREES / 2))
    prior = min(prior, degrees * len(stds))
    variance = np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))
    return float(np.sqrt(variance)), prior


def _by_examples(name: str, before: Values, after: Values, settings: JudgeParams) -> CellDifferences:
    """Compare two checkpoints with a paired bootstrap over examples, or accuracies with McNemar's exact test."""
    first, second = before.by_seed[0], after.by_seed[0]
    width = first.block.shape[1]
    rng = np.random.default_rng(settings.seed)
    together = np.hstack([first.block, second.block])
    means = resampled_means(together, rng, settings.resamples, clusters=first.clusters)
    replicates = np.asarray(second.statistic(means[:, width:])) - np.asarray(first.statistic(means[:, :width]))
    error = replicates.std(0)
    units = len(first.block) if first.clusters is None else int(first.clusters.max()) + 1
    tested = _tested(name, before, after, error, error, max(units - 1, 1))
    if first.right is None or second.right is None:
        return tested
    beyond = abs(before.mean - after.mean).ravel() > smallest(before.unit)[0]
    return replace(tested, p_drift=np.where(beyond, mcnemar(first.right, second.right), 1.0))


def _by_errors(name: str, part: Part, other: Part, settings: JudgeParams) -> CellDifferences:
    """Compare two checkpoints by their standard errors over examples, because pins contain no per-example data.

    Errors on the same examples are usually positively correlated, so treating them as independent is conservative.
    """
    errors = [side.errors or errors_over_examples(side, settings) for side in (part, other)]
    error = np.hypot(*(of_side[name].ravel() for of_side in errors))
    return _tested(name, part.quantities[name], other.quantities[name], error, error, degrees=max(part.examples - 1, 1))


def errors_over_examples(part: Part, settings: JudgeParams) -> dict[str, Float[np.ndarray, "..."]]:
    """Return each quantity's standard errors for a single checkpoint, computed with a bootstrap over examples."""
    errors = {}
    for name, values in part.quantities.items():
        [cells] = values.by_seed
        rng = np.random.default_rng(settings.seed)
        means = resampled_means(cells.block, rng, settings.resamples, clusters=cells.clusters)
        errors[name] = np.asarray(cells.statistic(means)).std(0).reshape(cells.shape).round(DECIMALS)
    return errors


def mcnemar(before: Bool[np.ndarray, " examples"], after: Bool[np.ndarray, " examples"]) -> float:
    """Return the p-value of McNemar's exact test for equal accuracy of two models.

    `before` and `after` are masks of correct predictions, one for each model.

    >>> mcnemar(np.array([True] * 6 + [False]), np.array([False] * 6 + [False]))
    0.03125
    """
    from scipy.stats import binomtest

    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def _tested(name: str, before: Values, after: Values, scale: Cells, error: Cells, degrees: float) -> CellDifferences:
    """Test the difference in every cell, given its standard `error`. Deviations are in units of `scale`."""
    from scipy.special import stdtr  # scipy.stats would take five times as long to import

    old, new = before.mean.ravel(), after.mean.ravel()
    change, least = new - old, smallest(before.unit)[0]
    size = abs(change)
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond, sum_of_both = (size - least) / error, (size + least) / error
        deviations = np.where(change == 0, 0.0, change / scale)
    beyond = np.where(error > 0, beyond, np.where(size > least, np.inf, -np.inf))
    sum_of_both = np.where(error > 0, sum_of_both, np.inf)
    p_drift = np.where(change == 0, 1.0, stdtr(degrees, -beyond) + stdtr(degrees, -sum_of_both))
    p_same = np.where(change == 0, 0.0, stdtr(degrees, beyond))
    missing = np.isnan(old).astype(int) + np.isnan(new)  # number of sides that are NaN
    undecided = np.zeros(len(change), dtype=bool)
    return CellDifferences(
        name,
        before.what,
        before.unit,
        before.mean.shape,
        before=old,
        after=new,
        deviations=np.select([missing == 2, missing == 1], [0.0, np.inf], deviations),
        p_drift=np.select([missing == 2, missing == 1], [1.0, 0.0], np.minimum(p_drift, 1.0)),
        p_same=np.select([missing == 2, missing == 1], [0.0, 1.0], p_same),
        drifted=undecided,
        shown_same=undecided,
    )


# ---------------------------------------------------------------------- over all cells


def _decided(measures: Sequence[Compared], rate: float) -> list[Compared]:
    """Return the measures with their outcomes. The false discovery rate is controlled over all cells."""
    tested = [measure.differences for measure in measures if measure.differences]
    families = [np.concatenate([difference.p_drift for difference in differences]) for differences in tested]
    drifted = iter(discoveries(families, rate))
    return [_decide(measure, next(drifted), rate) if measure.differences else measure for measure in measures]


def _decide(measure: Compared, drifted: Bool[np.ndarray, " cells"], rate: float) -> Compared:
    ends = np.cumsum([len(difference.before) for difference in measure.differences])
    differences = tuple(
        replace(difference, drifted=flags, shown_same=(difference.p_same <= rate) & ~flags)
        for difference, flags in zip(measure.differences, np.split(drifted, ends[:-1]), strict=True)
    )
    drift = any(difference.drifted.any() for difference in differences)
    same = all(difference.shown_same.all() for difference in differences)
    return replace(measure, outcome="drift" if drift else "same" if same else "open", differences=differences)


def discoveries(families: Sequence[Float[np.ndarray, " _cells"]], rate: float) -> list[Bool[np.ndarray, " _cells"]]:
    """Return which hypotheses are rejected. The false discovery rate is controlled within and among families.

    A family contains the hypotheses about the cells of one measure. First, families are selected by their Simes
    p-values. Then, hypotheses are tested within the selected families, at `rate` times the proportion of families that
    were selected. Both steps use the Benjamini-Hochberg procedure (Benjamini and Bogomolov 2014). Therefore, a drift in
    the score can still be found when hundreds of heads are tested as well. If nothing differs, the probability of any
    rejection is at most `rate`. The method is valid for independent p-values, and for positively dependent p-values
    such as those of heads that share a model, seeds and examples.

    >>> [flags.tolist() for flags in discoveries([np.array([0.001, 0.6]), np.array([0.04])], 0.05)]
    [[True, False], [True]]
    >>> [flags.tolist() for flags in discoveries([np.array([0.3, 0.6]), np.array([0.04])], 0.05)]
    [[False, False], [False]]
    """
    from scipy.stats import false_discovery_control

    if not families:
        return []
    adjusted = [false_discovery_control(family) for family in families]
    chosen = false_discovery_control([float(p.min()) for p in adjusted]) <= rate
    return [(p <= rate * chosen.mean()) & selected for p, selected in zip(adjusted, chosen, strict=True)]
