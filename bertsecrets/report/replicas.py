"""The charts of a report: the paper's figures next to ours, charts of other measurements, and table 1."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from bertsecrets.claims.loading import load_claims
from bertsecrets.errors import UserError, from_extra
from bertsecrets.measures.base.figures import Figure, PaperFigure, Repeats
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.report.charts import Chart, draw
from bertsecrets.report.text import seeds_text, task_title
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

with from_extra("jinja2"):
    from markupsafe import Markup

TABLE_1_COLUMNS = {name: get_initialisation(name).label for name in ("untrained", "frozen", "random", "pretrained")}
METRIC_TITLES = {"accuracy": "accuracy", "pearson": "Pearson", "f1": "F1"}


# For one task: its name, the paper's figure next to our version, and more charts of the same measurements.
OnTask = tuple[str, list[Chart], list[Chart]]


def figures_of(measurements: Sequence[Measurement], settings: JudgeParams) -> list[Chart]:
    """Return all charts of the measurements: the paper's figures (each only once), our versions, and other charts.

    Measurements that differ only in the seed form a group. Our version of a figure is averaged over the group.
    """
    groups = _groups(measurements)
    return _by_caption(chart for group in groups for chart in [*_beside(group, settings), *_own(group, settings)])


def main_figure(measurement: Measurement, settings: JudgeParams) -> Chart | None:
    """Return the main chart of a measurement, if any. For most measures, it is our version of a figure of the paper."""
    measure = get_measure(measurement.measure)
    figures = [*measure.beside_paper(Repeats([measurement])), *measure.figures(measurement)]
    own = (figure for figure in figures if "{who}" in figure.caption)  # the others are the paper's
    return next(iter(_drawn(islice(own, 1), [measurement], settings)), None)


def paper_figures(measurements: Sequence[Measurement], settings: JudgeParams) -> dict[PaperFigure, list[OnTask]]:
    """Return the paper's figures for which we have measurements. Our version of each figure averages over seeds."""
    replicas: dict[PaperFigure, list[OnTask]] = {}
    for measure in dict.fromkeys(measurement.measure for measurement in measurements):
        if (paper := get_measure(measure).paper) is None:
            continue
        repeats, on_tasks = _repeats(measurements, measure), []
        for name in (ALL_TASKS, *TASKS):
            on_task = [group for group in repeats if group.first.subject.task == name]
            panels = [chart for group in on_task for chart in _beside(group, settings)]
            more = [chart for group in on_task for chart in _own(group, settings)]
            if panels:  # the paper's figure is shown once for all models
                on_tasks.append((name, _by_caption(panels), more))
        if on_tasks:
            replicas[paper] = on_tasks
    return dict(sorted(replicas.items(), key=lambda replica: int(replica[0].number)))


def _by_caption(charts: Iterable[Chart]) -> list[Chart]:
    return list({chart.caption: chart for chart in charts}.values())


def other_figures(measurements: Sequence[Measurement], settings: JudgeParams) -> list[Chart]:
    """Return charts of the first seed for all measures that do not replicate a figure of the paper."""
    measures = dict.fromkeys(measurement.measure for measurement in measurements)
    others = [name for name in measures if get_measure(name).paper is None]
    return [chart for name in others for repeats in _repeats(measurements, name) for chart in _own(repeats, settings)]


def _repeats(measurements: Sequence[Measurement], measure: str) -> list[Repeats]:
    """Return a measure's measurements of fine-tuned models, grouped by everything but the seed."""
    return _groups(
        [each for each in measurements if each.measure == measure and each.subject.initialisation == "pretrained"]
    )


def _groups(measurements: Sequence[Measurement]) -> list[Repeats]:
    """Group measurements by everything but the seed. Groups with inputs padded as in the paper come first."""
    groups: dict[tuple, list[Measurement]] = {}
    for measurement in measurements:
        key = (measurement.measure, replace(measurement.subject, seed=1), str(sorted(measurement.options.items())))
        groups.setdefault(key, []).append(measurement)
    return [
        Repeats(group) for group in sorted(groups.values(), key=lambda group: not group[0].options.get("padded_to"))
    ]


def _beside(repeats: Repeats, settings: JudgeParams) -> list[Chart]:
    return _drawn(get_measure(repeats.first.measure).beside_paper(repeats), repeats.measurements, settings)


def _own(repeats: Repeats, settings: JudgeParams) -> list[Chart]:
    first = repeats.first
    return _drawn(get_measure(first.measure).figures(first), [first], settings)


def _drawn(figures: Iterable[Figure], shown: Sequence[Measurement], settings: JudgeParams) -> list[Chart]:
    """Return figures as charts. If the measurements have no samples, figures that need samples are left out."""
    who, charts = _who(shown), []
    try:
        for figure in figures:
            charts.append(draw(figure, settings, figure.caption.format(who=who)))
    except UserError:
        if shown[0].samples:
            raise
    return charts


def _who(shown: Sequence[Measurement]) -> str:
    subject = shown[0].subject
    if subject.task == ALL_TASKS:
        return f"{subject.model}, without a task"
    seeds = seeds_text(measurement.subject.seed for measurement in shown)
    parts = [subject.model, task_title(subject.task), f"mean of {seeds}" if len(shown) > 1 else seeds]
    return ", ".join(parts if subject.initialisation == "pretrained" else [*parts, subject.initialisation])


# ---------------------------------------------------------------------- table 1


def table_1(measurements: Sequence[Measurement]) -> tuple[list[str], list[list[Any]]]:
    """Return the header and rows of table 1: the paper's scores and ours, for each model and task with a score.

    Scores of a constant answer are highlighted.
    """
    scores = [each for each in measurements if each.measure == "scores" and not each.options]
    scores = [each for each in scores if each.subject.task in TASKS]
    models = list(dict.fromkeys(measurement.subject.model for measurement in scores))
    sources = dict.fromkeys(TABLE_1_COLUMNS, (", K19", ", ours")) | {"frozen": ("",)}  # K19 has no frozen encoders
    columns = [f"{title}{source}" for name, title in TABLE_1_COLUMNS.items() for source in sources[name]]
    rows = []
    for task_name in TASKS:
        for model in models:
            ours = [each for each in scores if (each.subject.task, each.subject.model) == (task_name, model)]
            for metric, title in METRIC_TITLES.items():
                if ours and metric in ours[0].values:
                    name = task_title(task_name) + (f", {model}" if len(models) > 1 else "")
                    majority = ours[0].values.get("majority") if metric == "accuracy" else None
                    last = "–" if majority is None else f"{100 * majority:.1f}"
                    cells = [cell for column in TABLE_1_COLUMNS for cell in _scores(ours, task_name, column, metric)]
                    rows.append([name, title, *cells, last])
    return ["task", "metric", *columns, "majority class"], rows


def _scores(scores: Sequence[Measurement], task_name: str, initialisation: str, metric: str) -> list[str]:
    """Return the paper's score and ours for one initialisation, in points."""
    ours = [measurement for measurement in scores if measurement.subject.initialisation == initialisation]
    shown = "–"
    if ours:
        points = 100 * np.array([float(measurement.value(metric)) for measurement in ours])
        spread = f" ± {points.std(ddof=1):.1f}" if len(points) > 1 else ""
        constant = all(bool(measurement.values.get("constant")) for measurement in ours)
        shown = _score(f"{points.mean():.1f}{spread}", constant)
    if initialisation == "frozen":
        return [shown]
    name = f"D1-{initialisation}{'-f1' if metric == 'f1' else ''}"
    figures = [claim.tasks[task_name] for claim in load_claims() if claim.name == name and task_name in claim.tasks]
    published = next((figure for figure in figures if figure.published is not None), None)
    return ["–" if published is None else _score(f"{published.published:.1f}", published.constant_answer), shown]


def _score(shown: str, constant: bool) -> str:
    if not constant:
        return shown
    return Markup(
        '<span class="constant" title="the score of a constant answer">{}</span>'
        '<span class="unseen"> (a constant answer)</span>'
    ).format(shown)
