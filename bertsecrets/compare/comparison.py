"""The judgement of drift: which numbers of two sides surely differ, and which are surely the same, cell by cell.

Both sides have seen the same examples. Where a side has several seeds, these are the replications: a difference is
drift if it is larger than seeds explain. Between two single checkpoints the examples are, since nothing says how far
other seeds would differ; then it is about these checkpoints alone.

A difference is drift if it is surely larger than the smallest effect of interest (`claims.units`), and a cell is the
same if it is surely smaller (two one-sided tests). Among all heads of all measures, the false discovery rate is held.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from bertsecrets.bootstrap import resampled_means
from bertsecrets.claims.spread import pooled
from bertsecrets.claims.units import smallest
from bertsecrets.compare.sides import Part, Side, Values, Wanted
from bertsecrets.errors import UserError
from bertsecrets.settings import JudgeParams

Outcome = Literal["drift", "same", "open", "not comparable"]
Cells = Float[np.ndarray, " cells"]


@dataclass(frozen=True)
class Difference:
    """How far one quantity differs between both sides, cell by cell.

    Args:
        before, after: the mean over seeds of either side.
        deviations: the difference in standard deviations of the seeds, or in standard errors where the examples are
            the replications.
        p_drift: of the hypothesis that the difference is not larger than the smallest effect of interest.
        p_same: of the hypothesis that it is not smaller.
        drifted: which cells differ, the false discovery rate held.
        shown_same: which cells are the same, each on its own.
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
        """The places of the cells that have drifted (or, where none has, of all), the largest deviation first."""
        places = np.flatnonzero(self.drifted) if self.drifted.any() else np.arange(len(self.before))
        size = np.nan_to_num(abs(self.deviations[places]), nan=-1.0, posinf=np.inf)
        return [int(place) for place in places[np.argsort(-size, kind="stable")]]

    @property
    def data(self) -> dict[str, Any]:
        """The same as data; arrays in the shape of layers and heads."""

        def shaped(cells: np.ndarray) -> Any:
            return np.round(cells, 6).reshape(self.shape).tolist() if cells.dtype.kind == "f" else _plain(cells)

        def _plain(cells: np.ndarray) -> Any:
            return cells.reshape(self.shape).tolist()

        names = ("before", "after", "deviations", "p_drift", "p_same", "drifted", "shown_same")
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "smallest_effect": smallest(self.unit)[0],
            **{name: shaped(getattr(self, name)) for name in names},
        }


@dataclass(frozen=True)
class Compared:
    """One measure on one task, compared.

    Args:
        basis: what the judgement rests on, in words.
        reason: why a model has collapsed, or the sides cannot be compared.
        counted: `seeds` or `examples`, whichever are the replications.
    """

    wanted: Wanted
    outcome: Outcome
    differences: tuple[Difference, ...] = ()
    basis: str = ""
    reason: str = ""
    counted: Literal["seeds", "examples"] = "seeds"

    @property
    def cells(self) -> int:
        """How many numbers were compared."""
        return sum(len(difference.before) for difference in self.differences)

    @property
    def equal(self) -> bool:
        """Whether no number differs at all."""
        return self.outcome == "same" and all(
            np.array_equal(one.before, one.after, equal_nan=True) for one in self.differences
        )

    @property
    def data(self) -> dict[str, Any]:
        """The same as data."""
        return {
            "measure": self.wanted.measure,
            "task": self.wanted.task,
            "initialisation": self.wanted.initialisation,
            "options": dict(self.wanted.options),
            "outcome": self.outcome,
            "basis": self.basis,
            "reason": self.reason,
            "quantities": [difference.data for difference in self.differences],
        }


@dataclass(frozen=True)
class Comparison:
    """Two sides, compared measure by measure.

    Args:
        rate: the false discovery rate, and the error rate of each equivalence.
    """

    before: Side
    after: Side
    rate: float
    measures: tuple[Compared, ...]

    @property
    def drifted(self) -> bool:
        """Whether any measure has drifted."""
        return any(one.outcome == "drift" for one in self.measures)

    @property
    def data(self) -> dict[str, Any]:
        """The same as data, for `--json`."""
        return {
            "format": "bertsecrets-comparison",
            "format_version": "1.0",
            "before": {"name": self.before.name, "kind": self.before.kind, "left_out": dict(self.before.left_out)},
            "after": {"name": self.after.name, "kind": self.after.kind, "left_out": dict(self.after.left_out)},
            "false_discovery_rate": round(self.rate, 6),
            "drift": self.drifted,
            "measures": [one.data for one in self.measures],
        }


def compare(before: Side, after: Side, settings: JudgeParams) -> Comparison:
    """Return how far a side has drifted from another.

    Raises:
        UserError: the sides have no measure in common that can be compared.
    """
    rate = 1 - settings.confidence
    measures = [_compared(part, after, settings) for part in before.parts]
    if all(one.outcome == "not comparable" for one in measures):
        reasons = dict.fromkeys(one.reason for one in measures)
        why = "; ".join(reasons) or f"{before.name} holds no measurements"
        raise UserError(f"{before.name} and {after.name} cannot be compared: {why}")
    return Comparison(before, after, rate, tuple(_decided(measures, rate)))


def _compared(part: Part, after: Side, settings: JudgeParams) -> Compared:
    """Return one measure with the tests of all cells, not yet decided among all of them."""
    wanted, other = part.wanted, after.part(part.wanted)
    if other is None:
        return Compared(wanted, "not comparable", reason=after.left_out.get(str(wanted), f"{after.name} lacks it"))
    if other.collapsed and not (part.collapsed and other.values):
        return Compared(wanted, "drift", reason=other.collapsed)
    if problem := _unlike(part, other):
        return Compared(wanted, "not comparable", reason=problem)
    degrees = len(part.seeds) - 1 + len(other.seeds) - 1
    names = [name for name in part.values if name in other.values]
    pairs = [(name, part.values[name], other.values[name]) for name in names]
    shapes = {(one.shape, two.shape) for _, one, two in pairs if one.shape != two.shape}
    if shapes or not pairs:
        said = " and ".join(" x ".join(map(str, shape)) for shape in sorted(shapes)[0]) if shapes else ""
        reason = f"heads cannot be matched: {said}" if shapes else "measured in another form: measure or pin it again"
        return Compared(wanted, "not comparable", reason=reason)
    if degrees == 0 and not all(one.by_seed and two.by_seed for _, one, two in pairs):
        return Compared(wanted, "not comparable", reason="one seed a side, and no examples: measure more seeds")
    judge = _by_seeds if degrees else _by_examples
    differences = tuple(judge(name, one, two, (part, other), settings) for name, one, two in pairs)
    seeds = f"{_counted(len(part.seeds))} against {_counted(len(other.seeds))}"
    return Compared(
        wanted,
        "open",
        differences,
        basis=f"{seeds}, {part.examples} examples" if degrees else f"{part.examples} examples, one seed each",
        counted="seeds" if degrees else "examples",
    )


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds != 1 else ''}"


def _unlike(part: Part, other: Part) -> str:
    """Return why two parts were not measured alike; empty if they were."""
    if part.data != other.data or part.examples != other.examples:
        limits = " and ".join("all rows" if one.limit is None else f"limit {one.limit}" for one in (part, other))
        return f"not the same examples ({part.examples} and {other.examples}; {limits}): give the same rows and limits"
    if part.train_limit != other.train_limit:
        limits = " and ".join(str(one.train_limit or "all rows") for one in (part, other))
        return f"not trained on as many rows ({limits}): give the same --train-limit"
    unlike = [name for name in part.settings if part.settings[name] != other.settings.get(name)]
    return f"measured with another {', '.join(unlike)}: measure or pin it again" if unlike else ""


def _by_seeds(name: str, one: Values, two: Values, parts: tuple[Part, Part], settings: JudgeParams) -> Difference:
    """Return how far a quantity differs beyond what seeds explain, by Student's t.

    A few seeds may lie close together by chance, most of all in one of a hundred heads. So no head's standard deviation
    counts as less than that of the heads together (Smyth 2004), nor as less than half of what a single example can
    change. The heads share their seeds, and so they add no degrees of freedom.
    """
    counts = [len(part.seeds) for part in parts]
    degrees = sum(counts) - 2
    std = np.sqrt(((counts[0] - 1) * one.std**2 + (counts[1] - 1) * two.std**2) / degrees)
    finite = std[np.isfinite(std)]
    typical = pooled([(float(value), degrees) for value in finite], "all heads") if len(finite) > 1 else None
    if typical is not None:
        shrunk = (typical.degrees * typical.std**2 + degrees * std**2) / (typical.degrees + degrees)
        std = np.maximum(std, np.sqrt(shrunk))
    std = np.maximum(std, max(one.step, two.step) / 2)
    return _tested(name, one, two, std, std * np.sqrt(1 / counts[0] + 1 / counts[1]), degrees)


def _by_examples(name: str, one: Values, two: Values, parts: tuple[Part, Part], settings: JudgeParams) -> Difference:
    """Return how far a quantity of two checkpoints differs on examples like these, by the paired bootstrap.

    Accuracies are compared by McNemar's exact test.
    """
    first, second = one.by_seed[0], two.by_seed[0]
    width = first.block.shape[1]
    rng = np.random.default_rng(settings.seed)
    together = np.hstack([first.block, second.block])
    means = resampled_means(together, rng, settings.resamples, clusters=first.clusters)
    replicates = np.asarray(second.statistic(means[:, width:])) - np.asarray(first.statistic(means[:, :width]))
    error = replicates.std(0)
    units = len(first.block) if first.clusters is None else int(first.clusters.max()) + 1
    tested = _tested(name, one, two, error, error, max(units - 1, 1))
    if first.right is None or second.right is None:
        return tested
    beyond = abs(one.mean - two.mean) > smallest(one.unit)[0]
    p = np.where(beyond, mcnemar(first.right, second.right), 1.0)
    return Difference(**{**_fields(tested), "p_drift": p})


def mcnemar(one: Bool[np.ndarray, " examples"], two: Bool[np.ndarray, " examples"]) -> float:
    """Return the p-value of McNemar's exact test: whether one of two classifiers answers more examples rightly.

    >>> mcnemar(np.array([True] * 6 + [False]), np.array([False] * 6 + [False]))
    0.03125
    """
    from scipy.stats import binomtest

    gained, lost = int((two & ~one).sum()), int((one & ~two).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def _tested(name: str, one: Values, two: Values, scale: Cells, error: Cells, degrees: float) -> Difference:
    """Return the tests of every cell.

    Args:
        scale: in which differences are told.
        error: the standard error of the difference, of so many degrees of freedom.
    """
    from scipy.special import stdtr  # scipy.stats would take five times as long to import

    apart, least = two.mean - one.mean, smallest(one.unit)[0]
    size = abs(apart)
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond, sum_of_both = (size - least) / error, (size + least) / error
        deviations = np.where(apart == 0, 0.0, apart / scale)
    beyond = np.where(error > 0, beyond, np.where(size > least, np.inf, -np.inf))
    sum_of_both = np.where(error > 0, sum_of_both, np.inf)
    p_drift = stdtr(degrees, -beyond) + stdtr(degrees, -sum_of_both)
    p_same = stdtr(degrees, beyond)
    p_drift, p_same = np.where(apart == 0, 1.0, p_drift), np.where(apart == 0, 0.0, p_same)
    without = np.isnan(one.mean).astype(int) + np.isnan(two.mean)  # of none, one or both sides there is no number
    none = np.zeros(len(apart), dtype=bool)
    return Difference(
        name,
        one.what,
        one.unit,
        one.shape,
        before=one.mean,
        after=two.mean,
        deviations=np.select([without == 2, without == 1], [0.0, np.inf], deviations),
        p_drift=np.select([without == 2, without == 1], [1.0, 0.0], np.minimum(p_drift, 1.0)),
        p_same=np.select([without == 2, without == 1], [0.0, 1.0], p_same),
        drifted=none,
        shown_same=none,
    )


def _fields(difference: Difference) -> dict[str, Any]:
    return {name: getattr(difference, name) for name in Difference.__dataclass_fields__}


# ---------------------------------------------------------------------- among all heads


def _decided(measures: Sequence[Compared], rate: float) -> list[Compared]:
    """Return the measures with their outcomes, the false discovery rate held among all cells of all measures."""
    tested = [one for one in measures if one.differences]
    chosen = iter(discoveries([np.concatenate([d.p_drift for d in one.differences]) for one in tested], rate))
    decided = []
    for one in measures:
        if not one.differences:
            decided.append(one)
            continue
        flags, differences = next(chosen), []
        for difference in one.differences:
            own, flags = flags[: len(difference.before)], flags[len(difference.before) :]
            same = (difference.p_same <= rate) & ~own
            differences.append(Difference(**{**_fields(difference), "drifted": own, "shown_same": same}))
        drift, same = any(d.drifted.any() for d in differences), all(d.shown_same.all() for d in differences)
        outcome: Outcome = "drift" if drift else "same" if same else "open"
        decided.append(
            Compared(one.wanted, outcome, tuple(differences), basis=one.basis, reason=one.reason, counted=one.counted)
        )
    return decided


def discoveries(families: Sequence[Float[np.ndarray, " _cells"]], rate: float) -> list[Bool[np.ndarray, " _cells"]]:
    """Return which hypotheses are rejected, the false discovery rate held within the families and among them.

    A family, such as all heads of a measure, is chosen by Simes' p-value among the families, and its hypotheses by a
    rate that is smaller by the share of families chosen, both by Benjamini and Hochberg's rule (Benjamini and Bogomolov
    2014). A single number, such as a score, is so not lost among hundreds of heads, and if nothing differs, anything is
    rejected at most at this rate. The rule holds for p-values that are independent or depend positively, as those of
    heads that share model, seeds and examples do.

    >>> [flags.tolist() for flags in discoveries([np.array([0.001, 0.6]), np.array([0.04])], 0.05)]
    [[True, False], [True]]
    >>> [flags.tolist() for flags in discoveries([np.array([0.3, 0.6]), np.array([0.04])], 0.05)]
    [[False, False], [False]]
    """
    from scipy.stats import false_discovery_control

    if not families:
        return []
    adjusted = [false_discovery_control(family) for family in families]
    chosen = false_discovery_control([float(one.min()) for one in adjusted]) <= rate
    return [(one <= rate * chosen.mean()) & of for one, of in zip(adjusted, chosen, strict=True)]
