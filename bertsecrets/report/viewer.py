"""The page's attention viewer: one example, layer and head at a time, before and after fine-tuning.

Charts are specifications without data. A script on the page fills in the data of the selected example.
"""

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError, from_extra, one_line
from bertsecrets.measures.example_maps import LONGEST_PIECES, SHORTEST_PIECES, SIDES, TARGET_KINDS
from bertsecrets.measures.registry import get_measure
from bertsecrets.report.charts import ACCENT, CELL_PIXELS, INK, as_spec
from bertsecrets.report.text import task_title
from bertsecrets.types import Measurement, Subject

with from_extra("altair"):
    import altair as alt

WEIGHT_LEVELS = 127  # quantization levels of the square root of a weight
SIDE_TITLES = dict(zip(SIDES, ("pretrained", "fine-tuned"), strict=True))
EXAMPLES_RULE = f"the shortest inputs with {SHORTEST_PIECES} to {LONGEST_PIECES} word pieces, from each label in turn"


@dataclass(frozen=True)
class Examples:
    """The data of the viewer."""

    measurements: Sequence[Measurement] = ()  # of `example-maps`
    problems: Sequence[str] = ()  # a line for each checkpoint without maps
    rows: int = 0  # maximum number of examples per checkpoint


def find_examples(maps_of: Callable[[Subject], Measurement | None], verdicts: Iterable[Verdict], rows: int) -> Examples:
    """Return the viewer's data: the attention maps, and an error message for each checkpoint whose maps are missing.

    Subjects for which `maps_of` returns None are left out.
    """
    measurements, problems = [], []
    for subject in subjects_shown(verdicts):
        try:
            if (maps := maps_of(subject)) is not None:
                measurements.append(maps)
        except UserError as error:
            problems.append(f"{subject}: {one_line(error)}")
    return Examples(measurements, problems, rows)


def subjects_shown(verdicts: Iterable[Verdict]) -> list[Subject]:
    """Return the subjects to show: for each model and task, the fine-tuned checkpoint with the lowest seed."""
    every = (measurement for verdict in verdicts for measurement in verdict.measurements)
    measured = [measurement for measurement in every if get_measure(measurement.measure).on_task]
    subjects = {measurement.subject for measurement in measured}
    tuned = sorted((each for each in subjects if each.initialisation == "pretrained"), key=lambda each: each.seed)
    first: dict[tuple[str, str], Subject] = {}
    for subject in tuned:
        first.setdefault((subject.model, subject.task), subject)
    order = dict.fromkeys((measurement.subject.model, measurement.subject.task) for measurement in measured)
    return [first[name] for name in order if name in first]


def viewer_data(examples: Examples, space: int) -> list[dict[str, Any]]:
    """Return the viewer's data for each checkpoint. Examples are added in turn until `space` characters are used up."""
    several = len({measurement.subject.model for measurement in examples.measurements}) > 1
    shown = [_checkpoint(measurement, several=several) for measurement in examples.measurements]
    space -= sum(map(_size, shown))
    for place in range(examples.rows):
        for data, measurement in zip(shown, examples.measurements, strict=True):
            if place < len(measurement.sample("shown")):
                row = _example(measurement, place, [TARGET_KINDS.index(name) for name in data["kinds"]])
                space -= _size(row)
                if space >= 0:
                    data["rows"].append(row)
    return [data for data in shown if data["rows"]]


def _checkpoint(measurement: Measurement, *, several: bool) -> dict[str, Any]:
    subject, provenance = measurement.subject, measurement.provenance
    means = {side: np.asarray(measurement.value(f"to_{side}")) for side in SIDES}
    kinds = [i for i in range(len(TARGET_KINDS)) if any(mean[..., i].any() for mean in means.values())]
    cosine = np.asarray(measurement.value("cosine"))
    return {
        "title": f"{f'{subject.model}, ' if several else ''}{task_title(subject.task)}",
        "who": f"{subject.model} on {task_title(subject.task)}, seed {subject.seed}",
        "theirs": not provenance.made_up_data,
        "inputs": measurement.examples,
        "layers": cosine.shape[0],
        "heads": cosine.shape[1],
        "kinds": [TARGET_KINDS[i] for i in kinds],
        "cosine": _rounded(cosine, 5),
        "mean": {side: _rounded(mean[..., kinds]) for side, mean in means.items()},
        "rows": [],
    }


def _example(measurement: Measurement, place: int, kinds: Sequence[int]) -> dict[str, Any]:
    lengths = [int(length) for length in measurement.sample("lengths")]
    length, start, row = lengths[place], sum(lengths[:place]), int(measurement.sample("shown")[place])
    maps = [measurement.sample(f"maps_{side}")[place, ..., :length, :length] for side in SIDES]
    return {
        "text": measurement.value("texts")[place],
        "label": measurement.value("labels")[place],
        "words": list(measurement.value("tokens")[start : start + length]),
        "here": {side: _rounded(measurement.sample(f"to_{side}")[row][..., kinds]) for side in SIDES},
        "maps": packed(np.stack(maps).astype(np.float64)),
    }


def packed(weights: Float[np.ndarray, " sides *shape"]) -> str:
    """Encode weights from 0 to 1 as compressed text.

    The square root of each weight is rounded to a multiple of 1/127 and stored in one byte, so that steps between small
    weights are small, such as 0.003 near 0.04. The second side is stored as the difference from the first, modulo 256.
    Fine-tuning barely changes most maps, so this halves the size.
    """
    steps = np.rint(WEIGHT_LEVELS * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    changes = np.diff(steps, axis=0, prepend=np.zeros_like(steps[:1]))
    return base64.b64encode(gzip.compress(changes.tobytes(), 9, mtime=0)).decode()


def _size(data: dict[str, Any]) -> int:
    """Return an upper bound on the number of characters, including escapes, that the data takes up on the page."""
    return len(json.dumps(data, separators=(",", ":"))) + 6 * len(data.get("text", ""))


def _rounded(values: np.ndarray, digits: int = 3) -> list[Any]:
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


# ---------------------------------------------------------------------- the charts


def viewer_specs() -> dict[str, Any]:
    """Return the specifications of the viewer's charts, by name. Each chart reads its data from `data`."""
    return {"heads": as_spec(_heads()), "map": as_spec(_map()), "targets": as_spec(_targets())}


def _heads() -> alt.TopLevelMixin:
    base = alt.Chart(alt.NamedData(name="heads")).encode(
        x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0)), y=alt.Y("layer:O", title="layer")
    )
    cells = base.mark_rect(cursor="pointer").encode(
        color=alt.Color(
            "value:Q",
            scale=alt.Scale(scheme="viridis", zero=False, nice=False),
            legend=alt.Legend(title="similarity", gradientLength=120, tickCount=4, format=".3~g"),
        ),
        tooltip=["layer:O", "head:O", alt.Tooltip("value:Q", title="similarity")],
    )
    chosen = base.transform_filter("datum.chosen").mark_rect(
        fill=None, stroke="#fff", strokeWidth=2.5, tooltip=None, cursor="pointer"
    )
    edge = base.transform_filter("datum.chosen").mark_rect(fill=None, stroke="#000", strokeWidth=1, tooltip=None)
    return alt.layer(cells, chosen, edge).properties(width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS))


def _map() -> alt.TopLevelMixin:
    """Return an attention map. Token names start with a two-digit index and a space; axis labels omit these."""
    words: dict[str, Any] = {
        "labelExpr": "slice(datum.label, 3)",
        "labelLimit": 90,
        "labelOverlap": False,
        "labelPadding": 3,
        "domain": False,
        "ticks": False,
    }
    return (
        alt.Chart(alt.NamedData(name="weights"))
        .mark_rect()
        .encode(
            x=alt.X("to:O", title="to", axis=alt.Axis(orient="top", labelAngle=-60, **words)),
            y=alt.Y("from:O", title="from", axis=alt.Axis(**words)),
            color=alt.Color(
                "weight:Q",
                scale=alt.Scale(scheme="viridis"),
                legend=alt.Legend(title="weight", orient="bottom", gradientLength=160, tickCount=4, format=".2~g"),
            ),
            tooltip=[
                alt.Tooltip("source:N", title="from"),
                alt.Tooltip("target:N", title="to"),
                alt.Tooltip("weight:Q", format=".2~r"),
            ],
        )
    )


def _targets() -> alt.TopLevelMixin:
    """Return the chart of attention targets. Bars show the mean over inputs; ticks show the selected example."""
    sides = list(SIDE_TITLES.values())
    base = alt.Chart(alt.NamedData(name="targets")).encode(
        y=alt.Y("kind:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=130)),
        yOffset=alt.YOffset("side:N", sort=sides),
        tooltip=[
            alt.Tooltip("kind:N", title="to"),
            alt.Tooltip("side:N", title="model"),
            alt.Tooltip("mean:Q", title="mean over inputs", format=".3f"),
            alt.Tooltip("here:Q", title="this example", format=".3f"),
        ],
    )
    colour = alt.Color(
        "side:N", title=None, sort=sides, scale=alt.Scale(domain=sides, range=["#9aa3ad", ACCENT]),
        legend=alt.Legend(orient="bottom"),
    )  # fmt: skip
    share = alt.Scale(domain=[0, 1])
    return alt.layer(
        base.mark_bar().encode(x=alt.X("mean:Q", title="share of attention", scale=share), color=colour),
        base.mark_tick(color=INK, thickness=2).encode(x=alt.X("here:Q", scale=share)),
    ).properties(width=220, height=alt.Step(13))
