"""The paper's figures and its table 1, each beside what was measured; means over seeds where there are several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.band import format_number
from bertsecrets.claims.schema import load_claims
from bertsecrets.measures.patterns import key, readings_in
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.published import published_figures
from bertsecrets.report.figures import (
    Chart,
    figure_2,
    figures_of,
    heat_map,
    layer_scores,
    shares_beside,
)
from bertsecrets.report.text import seeds_in_words, task_title
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

PAPER = "K19"
KINDS_OF_7 = {  # what K19's figure 7 calls the kinds of tokens that `features` measures
    "pronoun": "PRON",
    "noun": "NOUN",
    "verb": "VERB",
    "object": "OBJ",
    "subject": "SUBJ",
    "negation": "NEG",
    "cls": "CLS",
    "sep": "SEP",
}
COLUMNS = {  # of table 1, by initialisation
    "untrained": "not fine-tuned",
    "frozen": "frozen, classifier trained",
    "random": "fine-tuned from random weights",
    "pretrained": "fine-tuned",
}
METRICS = {"accuracy": "accuracy", "pearson": "Pearson", "f1": "F1"}


@dataclass(frozen=True)
class Beside:
    """One of the paper's figures on one task beside what was measured, and what else the same measurements show."""

    task: str
    panels: Sequence[Chart]
    more: Sequence[Chart]


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures, on every task that was measured."""

    number: str
    title: str
    words: str
    on_tasks: Sequence[Beside]


@dataclass(frozen=True)
class Score:
    """A score of table 1, in points: the published one or ours."""

    shown: str
    constant: bool = False


@dataclass(frozen=True)
class ScoreRow:
    """A row of table 1: a task's scores under one metric, by initialisation, published and ours."""

    task: str
    model: str
    metric: str
    scores: Mapping[str, tuple[Score | None, Score | None]]
    majority: str


@dataclass(frozen=True)
class Group:
    """The measurements of one model on one task that differ in their seeds alone."""

    measurements: Sequence[Measurement]

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.measurements[0].subject.task

    @property
    def who(self) -> str:
        """The model and its seeds, in words."""
        subject, count = self.measurements[0].subject, len(self.measurements)
        seeds = seeds_in_words(one.subject.seed for one in self.measurements)
        return f"{subject.model}, {f'mean of {seeds}' if count > 1 else seeds}"

    def mean(self, name: str) -> np.ndarray:
        """Return the mean of a value over seeds."""
        return np.asarray(np.mean([np.asarray(one.value(name), np.float64) for one in self.measurements], axis=0))


def paper_figures(measurements: Sequence[Measurement], settings: JudgeParams) -> list[PaperFigure]:
    """Return the paper's figures for which there is a measurement, each beside ours."""
    found = []
    for number, (measure, title, words, panels) in FIGURES.items():
        on_tasks = []
        groups = _groups(measurements, measure)
        for of_task in _by_task(groups):
            drawn = [panel for group in of_task for panel in panels(group)]
            panels_once = list({chart.caption: chart for chart in drawn}.values())  # the paper's, once for all models
            more = [chart for group in of_task for chart in _others(group, number, settings)]
            if panels_once:
                on_tasks.append(Beside(of_task[0].task, panels_once, more))
        if on_tasks:
            found.append(PaperFigure(number, title, words, on_tasks))
    return found


def other_figures(measurements: Sequence[Measurement], settings: JudgeParams) -> list[Chart]:
    """Return what measures show that none of the paper's figures does, such as somebody's own, of the first seed."""
    shown = {measure for measure, *_ in FIGURES.values()}
    others = dict.fromkeys(one.measure for one in measurements if one.measure not in shown)
    groups = [group for measure in others for group in _groups(measurements, measure)]
    return [chart for group in groups for chart in figures_of(group.measurements[0], settings)]


def _groups(measurements: Sequence[Measurement], measure: str) -> list[Group]:
    groups: dict[tuple, list[Measurement]] = {}
    for one in measurements:
        subject = one.subject
        if one.measure == measure and subject.initialisation == "pretrained":
            groups.setdefault((subject.model, subject.task, str(sorted(one.options.items()))), []).append(one)
    padded_first = sorted(groups.values(), key=lambda group: not group[0].options.get("padded_to"))  # as the paper's
    return [Group(group) for group in padded_first]


def _by_task(groups: Sequence[Group]) -> list[list[Group]]:
    names = [name for name in (ALL_TASKS, *TASKS) if any(group.task == name for group in groups)]
    return [[group for group in groups if group.task == name] for name in names]


def _others(group: Group, number: str, settings: JudgeParams) -> list[Chart]:
    """Return what else the first seed's measurement shows."""
    drawn = figures_of(group.measurements[0], settings)
    return drawn[1:] if number in ("2", "3") else [] if number == "5" else drawn


# ---------------------------------------------------------------------- figure by figure


def _published(name: str, task_name: str) -> Any:
    return published_figures()[name][TASKS[task_name].folder]


def _figure_2(group: Group) -> Iterator[Chart]:
    shares = {
        f"{group.measurements[0].subject.model}, reading {reading}": np.array(
            [100 * float(group.mean(f"{reading}_corrected_{key(name)}")) for name in CLASSES]
        )
        for reading in readings_in(group.measurements[0])
    }
    beside = {f"{PAPER}, figure 2": figure_2(group.task, CLASSES), **shares}
    yield shares_beside(beside, CLASSES, f"Classes of attention maps: {PAPER} above, {group.who} below")


def _figure_3(group: Group) -> Iterator[Chart]:
    yield from _maps(
        published_figures()["fig3_frame_notebook"], group.mean("max_weight"), group, "maximum weight", "figure 3"
    )


def _figure_5(group: Group) -> Iterator[Chart]:
    padded = group.measurements[0].options.get("padded_to")
    form = "cropped to the real tokens" if padded is None else f"padded to {padded} tokens"
    unit = "cosine similarity"
    yield heat_map(
        np.array(_published("fig5_cosine", group.task)),
        f"{PAPER}, figure 5: maps padded to 200 tokens",
        (0, 1),
        unit=unit,
    )
    yield heat_map(group.mean("cosine"), f"{group.who}: maps {form}", (0, 1), unit=unit)


def _figure_6(group: Group) -> Iterator[Chart]:
    for name in ("sep", "cls"):
        ours, token = group.mean(name), f"[{name.upper()}]"
        if not np.isnan(ours).all():
            theirs = _published(f"fig6_{name.upper()}", group.task)
            yield from _maps(theirs, ours, group, "attention received", f"figure 6, attention to {token}", token)


def _maps(theirs: Any, ours: np.ndarray, group: Group, unit: str, place: str, what: str = "") -> Iterator[Chart]:
    """Yield the paper's map and ours in the same colours."""
    published = np.array(theirs, dtype=np.float64)
    reach = (0.0, float(max(np.nanmax(published), np.nanmax(ours))))
    yield heat_map(published, f"{PAPER}, {place}", reach, unit=unit)
    yield heat_map(ours, f"{group.who}{f': attention to {what}' if what else ''}", reach, unit=unit)


def _figure_7(group: Group) -> Iterator[Chart]:
    kinds = {kind: name for kind, name in KINDS_OF_7.items() if f"cls_row_{kind}" in group.measurements[0].values}
    if not kinds:
        return
    theirs = _published("fig7_CLS_last_layer", group.task)
    published = np.array([theirs[name] for name in kinds.values()], dtype=np.float64)
    ours = np.array([group.mean(f"cls_row_{kind}") for kind in kinds])
    reach = (0.0, float(max(np.nanmax(published), np.nanmax(ours))))
    names = list(kinds)
    unit = "attention of [CLS]"
    yield heat_map(published, f"{PAPER}, figure 7: last layer", reach, unit=unit, rows=names)
    yield heat_map(ours, f"{group.who}: last layer", reach, unit=unit, rows=names)


def _figure_8(group: Group) -> Iterator[Chart]:
    ours = 100 * group.mean("score")
    if ours.ndim != 2:  # sets of heads that were named
        return
    unit = TASKS[group.task].metric
    theirs = 100 * np.array(_published("fig8_head", group.task))
    low, high = (100 * end for end in _published("fig8_colorbar", group.task))
    yield heat_map(
        theirs, f"{PAPER}, figure 8: score with each head off (its baseline is not given)", (low, high), unit=unit
    )
    baseline = format_number(100 * float(group.mean("baseline")))
    reach = (float(ours.min()), float(ours.max()))
    yield heat_map(ours, f"{group.who}: score with each head off (all heads on: {baseline})", reach, unit=unit)


def _figure_9(group: Group) -> Iterator[Chart]:
    unit = TASKS[group.task].metric
    theirs = 100 * np.array(_published("fig9_layer", group.task))
    yield layer_scores(theirs, f"{PAPER}, figure 9: score with each layer off (its baseline is not given)", unit=unit)
    baseline = 100 * float(group.mean("baseline"))
    yield layer_scores(
        100 * group.mean("score"),
        f"{group.who}: score with each layer off (dashed: all layers on, {format_number(baseline)})",
        unit=unit,
        baseline=baseline,
    )


FIGURES: dict[str, tuple[str, str, str, Callable[[Group], Iterator[Chart]]]] = {
    "2": (
        "patterns",
        "Classes of attention maps",
        "What share of all maps looks vertical, diagonal, both, blocked or like none of these, corrected for the "
        "classifier's known errors.",
        _figure_2,
    ),
    "3": (
        "frame-heads",
        "Heads that attend along semantic frames",
        "The largest weight between a frame's core element and its target, averaged over sentences.",
        _figure_3,
    ),
    "5": (
        "attention-change",
        "How much fine-tuning changes each head",
        "The similarity of each head's maps before and after fine-tuning: 1 is unchanged, dark is changed.",
        _figure_5,
    ),
    "6": (
        "special-tokens",
        "Attention to [SEP] and [CLS]",
        "How much attention the special tokens receive from each head, averaged over inputs.",
        _figure_6,
    ),
    "7": (
        "features",
        "What [CLS] attends to in the last layer",
        "The attention of [CLS] to each kind of token, by head of the last layer, averaged over inputs that have it.",
        _figure_7,
    ),
    "8": (
        "head-ablation",
        "Scores with one head switched off",
        "Each head is made to attend uniformly, one at a time. Mind that each map has its own colours.",
        _figure_8,
    ),
    "9": (
        "layer-ablation",
        "Scores with one layer switched off",
        "All heads of a layer are made to attend uniformly, layer by layer. Mind that each plot has its own axis.",
        _figure_9,
    ),
}


# ---------------------------------------------------------------------- table 1


def table_1(measurements: Sequence[Measurement]) -> list[ScoreRow]:
    """Return table 1 beside our scores, for every model and task with a score."""
    scores = [one for one in measurements if one.measure == "scores" and not one.options and one.subject.task in TASKS]
    rows = []
    for task_name in TASKS:
        for model in dict.fromkeys(one.subject.model for one in scores if one.subject.task == task_name):
            of_task = [one for one in scores if (one.subject.task, one.subject.model) == (task_name, model)]
            for metric, title in METRICS.items():
                if metric in of_task[0].values:
                    rows.append(_score_row(of_task, task_name, model, metric, title))
    return rows


def _score_row(scores: Sequence[Measurement], task_name: str, model: str, metric: str, title: str) -> ScoreRow:
    found = {}
    for initialisation in COLUMNS:
        ours = [one for one in scores if one.subject.initialisation == initialisation]
        found[initialisation] = (_published_score(task_name, initialisation, metric), _own_score(ours, metric))
    majority = scores[0].values.get("majority") if metric == "accuracy" else None
    return ScoreRow(task_title(task_name), model, title, found, "" if majority is None else f"{100 * majority:.1f}")


def _own_score(measurements: Sequence[Measurement], metric: str) -> Score | None:
    if not measurements:
        return None
    points: Float[np.ndarray, " seeds"] = 100 * np.array([float(one.value(metric)) for one in measurements])
    spread = f" ± {points.std(ddof=1):.1f}" if len(points) > 1 else ""
    return Score(f"{points.mean():.1f}{spread}", all(bool(one.values.get("constant")) for one in measurements))


def _published_score(task_name: str, initialisation: str, metric: str) -> Score | None:
    """Return K19's figure, from the claim D1; none for a frozen encoder, which the paper does not have."""
    if initialisation == "frozen":
        return None
    name = f"D1-{initialisation}{'-f1' if metric == 'f1' else ''}"
    figure = next(
        (claim.tasks[task_name] for claim in load_claims() if claim.name == name and task_name in claim.tasks), None
    )
    if figure is None or figure.published is None:
        return None
    return Score(f"{figure.published:.1f}", figure.constant_answer)
