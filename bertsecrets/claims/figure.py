"""Published figures of claims, which are given in `expected/` or taken by reference from P20, K19 or another claim.

A reference is the name of a claim (`D1-pretrained`), `P20`, `P20 mean`, `readers`, or `K19` (for gains in figures).
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from bertsecrets.claims.estimate import Spread
from bertsecrets.errors import near_matches
from bertsecrets.models.families import full_name
from bertsecrets.patterns.readings import READERS_OF_A_MAP
from bertsecrets.patterns.shares import reader_spread, shipped_reader_shares
from bertsecrets.settings import Section
from bertsecrets.texts.published import (
    FRAME_HEADS,
    P20_SEEDS,
    PAPERS_HEADS,
    SEVEN_TASKS,
    Setting,
    figure_2_share,
    p20_heads_left,
    p20_pruned_scores,
    p20_score,
    p20_share_changes,
    p20_shares,
    published_gains,
)
from bertsecrets.texts.tasks import ALL_TASKS, TASKS

P20 = "P20"  # mean over five seeds and, as a spread, their standard deviation
P20_MEAN = "P20 mean"  # the same mean and, as a spread, its standard error
K19 = "K19"  # gains in figures 8 and 9, relative to the published score with all heads
READERS = "readers"  # as a spread: disagreement of readers on class proportions, for the paper's maps and ours
F1_QUANTITIES = ("f1", "figure-8-score")
WITHOUT_ATTENTION = "score-without-attention"
SCORE_QUANTITIES = (
    *(*F1_QUANTITIES, WITHOUT_ATTENTION, "score", "score-difference", "mean-score-difference", "cased-loss"),
)


class SmallestEffect(Section):
    """The smallest effect of interest or the tolerance that a claim states, with a reason for it.

    The stated size replaces the default for the claim's unit.
    """

    size: PositiveFloat
    reason: str = Field(min_length=10)


class Known(Section):
    """A known outcome for a model on a task, with the evidence for it.

    A deviation that was observed (`deviates`) is an expected failure. If the claim does not deviate, the benchmark
    reports this as unexpected. A deviation that is only `expected`, for example because another study found it, may or
    may not occur. `version` is the version of the claim that was judged. If the claim now has a newer version, the
    outcome is treated as if it were only `expected`.
    """

    model: Annotated[str, AfterValidator(full_name)]
    task: str
    evidence: str = Field(min_length=10)
    status: Literal["deviates", "reproduces", "expected"] = "deviates"
    version: PositiveInt = 1


class TaskFigure(Section):
    """The published figure of a claim on one task.

    `published` is in the claim's unit, or None if the source gives only an order. `rounding` is half a unit of the last
    published digit. `seed_std` is the seed-to-seed standard deviation from `seed_source`, with `seed_degrees` degrees
    of freedom (4 for five seeds). `doubt` is the standard error of the published figure. If it is None, the published
    run counts as one more run of the same procedure. `second` is the figure from a second source, and `second_error`
    the standard error of its mean over five seeds. `constant_answer` marks figures that equal the score of a constant
    prediction. `band` shows the range in which the mean over many seeds must lie, as computed from the other numbers by
    `python -m instruments bands`.
    """

    published: float | None = None
    rounding: NonNegativeFloat = 0.0
    seed_std: NonNegativeFloat | None = None
    seed_degrees: PositiveFloat = 4
    seed_source: str | None = None
    doubt: NonNegativeFloat | None = None
    doubt_degrees: PositiveFloat = 4
    doubt_source: str | None = None
    second: str | None = None
    second_value: float | None = None
    second_error: float = 0.0
    note: str | None = None
    constant_answer: bool = False
    band: tuple[float, float] | Literal["from the measured seeds"] | None = None

    @model_validator(mode="after")
    def _sourced(self) -> "TaskFigure":
        for number, source in (("seed_std", "seed_source"), ("doubt", "doubt_source")):
            if getattr(self, number) is not None and not getattr(self, source):
                raise ValueError(f"{number} needs a source: name it in {source}")
        return self

    @property
    def cited_spread(self) -> Spread | None:
        """The seed-to-seed spread cited with the figure; None if none is cited."""
        return None if self.seed_std is None else Spread(self.seed_std, self.seed_degrees, self.seed_source or "")


class References(Section):
    """References to other sources for numbers that a claim does not state itself.

    `published` is the reference for the published figure, such as `P20`, `K19` or `D1-pretrained`, or the difference of
    two references. `seeds_of` names the sources of the seed-to-seed spread, and `doubt_of` names the sources of the
    published figure's uncertainty. `second` names a second source of the figure.
    """

    published: str | None = None
    seeds_of: tuple[str, ...] = ()
    doubt_of: tuple[str, ...] = ()
    second: Literal["P20"] | None = None


def source_names(names: Sequence[str]) -> str:
    """Return a string that names the sources of a spread.

    >>> source_names(["P20", "D1-untrained"])
    'P20, five seeds, and D1-untrained'
    """
    full = {P20: "P20, five seeds", P20_MEAN: "their mean", READERS: "readers of maps"}
    counted = {full.get(name, name): list(names).count(name) for name in names}
    return ", and ".join(f"{name}, for either side" if count == 2 else name for name, count in counted.items())


def published_gain(quantity: str, task_name: str, heads: Iterable[Sequence[int]] = FRAME_HEADS) -> float:
    """Return the gain, in points, that K19's figure 8 or 9 shows for a quantity.

    For the task `all`, the gain is averaged over the seven tasks. For `named-heads-gain`, it is the smallest gain of
    `heads`, which are pairs (layer, head), both counted from 1.

    Raises:
        ValueError: If the figures do not show a gain for the quantity.

    >>> round(published_gain("best-head-gain", "mrpc"), 2)
    1.19
    """
    name = quantity.removesuffix("-over-tasks").removesuffix("-in-sample")
    if name not in GAINS:
        raise ValueError(f"K19 has no {quantity}")
    tasks = SEVEN_TASKS if task_name == ALL_TASKS else (task_name,)
    by_task = [published_gains(task, "fig9_layer" if "layer" in name else "fig8_head") for task in tasks]
    return float(np.mean([GAINS[name](gains, heads) for gains in by_task], axis=0).min())


GAINS: dict[str, Callable[..., Any]] = {  # functions of a task's gains and the named heads
    "best-head-gain": lambda gains, heads: gains.max(),
    "worst-head-gain": lambda gains, heads: gains.min(),
    "mean-head-gain": lambda gains, heads: gains.mean(),
    "named-heads-gain": lambda gains, heads: [gains[layer - 1, head - 1] for layer, head in heads],
    "first-layer-gain": lambda gains, heads: gains[0],
    "best-layer-gain": lambda gains, heads: gains.max(),
}


@dataclass(frozen=True)
class Cited:
    """A resolver that looks up the numbers behind a claim's references.

    `figures` contains the figures that the files state for all claims, by claim name and then by task.
    """

    quantity: str
    arguments: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, TaskFigure]]

    def filled(self, figure: TaskFigure, task_name: str, claim: References) -> TaskFigure:
        """Return a copy of a task's figure with the numbers that the claim takes from its references."""
        more: dict[str, Any] = {}
        if claim.published is not None:
            more["published"], more["rounding"] = self.published(claim.published, task_name)
            more["rounding"] += figure.rounding
        for field, kind, names in (("seed_std", "seed", claim.seeds_of), ("doubt", "doubt", claim.doubt_of)):
            if names:
                more[field], more[f"{kind}_degrees"] = self.spread(names, task_name)
                more[f"{kind}_source"] = source_names(names)
        if claim.second:
            value, std = self.p20(task_name)
            more["second_value"], more["second_error"] = value, (std or 0.0) / float(np.sqrt(P20_SEEDS))
            more["second"] = "P20, five seeds: " + (f"{value:.1f}" if std is None else f"{value:.2f} +- {std:.2f}")
        twice = [name for name in more if name != "rounding" and name in figure.model_fields_set]
        if twice:
            raise ValueError(
                f"task {task_name} states {twice[0]} itself, but the claim also takes it from another source: "
                "remove one of the two"
            )
        return figure.model_copy(update=more)

    def p20(self, task_name: str) -> tuple[float, float | None]:
        """Return P20's value of the quantity, and the standard deviation across seeds if P20 gives it."""
        if self.quantity in ("class-share", "class-share-change"):
            by_class = p20_shares(task_name) if self.quantity == "class-share" else p20_share_changes(task_name)
            return round(sum(by_class[name] for name in self.arguments["classes"]), 1), None
        if self.quantity == "largest-share-change":
            return max(map(abs, p20_share_changes(task_name).values())), None
        if self.quantity == "heads-of-rarest-class":
            return round(PAPERS_HEADS * min(p20_shares(task_name).values()) / 100, 1), None
        if self.quantity == "heads-of-class":
            return round(PAPERS_HEADS * p20_shares(task_name)[self.arguments["class_name"]] / 100, 1), None
        if self.quantity == "class-share-gap":
            more, fewer = (p20_shares(name)["heterogeneous"] for name in ("qqp", "mrpc"))
            return round(more - fewer, 1), None
        if self.quantity == "figure-2-difference":
            classes = self.arguments["classes"]
            theirs = {name: sum(p20_shares(name)[class_name] for class_name in classes) for name in SEVEN_TASKS}
            differences = (abs(share - figure_2_share(name, classes)) for name, share in theirs.items())
            return round(statistics.mean(differences), 1), None
        if self.quantity == "heads-left":
            return p20_heads_left(task_name)
        if self.quantity == "pruned-score":
            share = self.arguments["share"]
            pruned = (p20_pruned_scores(task_name) or {}).get(share)
            if pruned is None:
                raise ValueError(f"P20 has no score on {task_name} with {share} of the weights pruned")
            return pruned, None
        kind = TASKS[task_name].metric if task_name in TASKS else ""
        setting: Setting = "scores_without_attention" if self.quantity == WITHOUT_ATTENTION else "scores"
        score = p20_score(task_name, "accuracy" if kind == "f1" and not self._f1 else kind, setting)
        if score is None or self.quantity not in SCORE_QUANTITIES:
            raise ValueError(f"P20 has no {self.quantity} on {task_name}")
        return score

    def published(self, reference: str, task_name: str) -> tuple[float, float]:
        """Return the figure that a reference (`A`) or a difference of references (`A - B`) gives, and its rounding."""
        (value, rounding), *rest = (self._value(name, task_name) for name in reference.split(" - "))
        for less, its_rounding in rest:
            value, rounding = value - less, rounding + its_rounding
        return round(value, 3), rounding

    def _value(self, name: str, task_name: str) -> tuple[float, float]:
        if name == P20:
            return self.p20(task_name)[0], 0.0
        if name == K19:
            return published_gain(self.quantity, task_name, **self.arguments), 0.0
        figure = self._figure(name, task_name, P20, K19)
        if figure.published is None:
            raise ValueError(f"{name} has no published figure on {task_name}")
        return figure.published, figure.rounding

    def spread(self, names: Sequence[str], task_name: str) -> tuple[float, float]:
        """Combine the named spreads: return the root of their sum of squares, and its degrees of freedom.

        For the task `all`, the result is the spread of the mean over tasks. Errors on different tasks are independent,
        except that readers of maps err in the same direction on every task. Spreads from the same source have the same
        degrees of freedom, and so does their sum. For several sources, the degrees of freedom follow from the
        Welch-Satterthwaite equation.
        """
        over_tasks = SEVEN_TASKS if task_name == ALL_TASKS and READERS not in names else (task_name,)
        by_source: dict[tuple[str, str], tuple[float, float]] = {}
        for each in over_tasks:
            for name in names:
                std, degrees = self._spread(name, each)
                source = (name.removesuffix(" mean"), each)
                by_source[source] = (by_source.get(source, (0.0, 0.0))[0] + std**2, degrees)
        total = sum(variance for variance, _ in by_source.values())
        doubt = sum(variance**2 / degrees for variance, degrees in by_source.values())
        return float(np.sqrt(total)) / len(over_tasks), total**2 / doubt if doubt else 1.0

    def _spread(self, name: str, task_name: str) -> tuple[float, float]:
        if name == READERS:
            shares = shipped_reader_shares(self.arguments["reading"])
            of_readers, degrees = reader_spread(shares, self.arguments["classes"])
            return 100 * of_readers * float(np.sqrt(1 + 1 / READERS_OF_A_MAP)), degrees
        if name in (P20, P20_MEAN):
            std = self.p20(task_name)[1]
            if std is None:
                raise ValueError(f"P20 gives no spread of {self.quantity}")
            return std / np.sqrt(P20_SEEDS) if name == P20_MEAN else std, P20_SEEDS - 1
        figure = self._figure(name, task_name, P20, P20_MEAN, READERS)
        if figure.seed_std is None:
            raise ValueError(f"{name} has no seed_std on {task_name}")
        return figure.seed_std, figure.seed_degrees

    def _figure(self, name: str, task_name: str, *others: str) -> TaskFigure:
        """Return a claim's figure. `others` are the references that could have been meant instead."""
        if name not in self.figures:
            raise ValueError(f"unknown reference {name!r}: {near_matches(name, (*others, *self.figures))}")
        with_f1 = self.figures.get(f"{name}-f1", {}) if self._f1 else {}
        if task_name not in with_f1 and task_name not in self.figures[name]:
            raise ValueError(f"{name} is not about {task_name}")
        return with_f1.get(task_name) or self.figures[name][task_name]

    @property
    def _f1(self) -> bool:
        return self.quantity in F1_QUANTITIES or bool(self.arguments.get("with_f1"))
