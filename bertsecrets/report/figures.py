"""The report's figures as Vega-Lite charts, each with its numbers as a table.

Layers and heads count from 1. Colours are told apart by the colour-blind; text and lines take the page's own colour.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.estimate import with_interval
from bertsecrets.errors import UserError
from bertsecrets.extras import from_extra
from bertsecrets.measures.base.figures import (
    ClassMap,
    HeadDistances,
    HeadMap,
    LayerBars,
    LayerCurves,
    PruningCurves,
    RankedHeads,
    SharesBeside,
    StackedShares,
)
from bertsecrets.measures.base.figures import Figure as Shown
from bertsecrets.measures.registry import get_measure
from bertsecrets.published import published_figures
from bertsecrets.settings import JudgeParams
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

with from_extra("altair"):
    import altair as alt

FIGURE_2 = {  # what K19's figure 2 calls the classes
    "vertical": "Vertical",
    "diagonal": "Diagonal",
    "vertical-diagonal": "Vert+Diag",
    "block": "Block",
    "heterogeneous": "Heterogeneous",
}
KINDS = ("#4477aa", "#ee6677", "#aa3377", "#ccbb44", "#bbbbbb")  # of the five classes
INK = "currentColor"  # whatever the page writes in
ACCENT, GAIN, LOSS = "#3b7dd8", "#3b7dd8", "#d9822b"
CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "aria": False,  # the page says what each chart shows, and has its numbers as a table
    "view": {"stroke": None},
    "title": {"color": INK, "fontSize": 12, "fontWeight": 500, "anchor": "start"},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor", "tickColor", "domainColor", "gridColor"), INK),
        "tickOpacity": 0.3,
        "domainOpacity": 0.3,
        "gridOpacity": 0.12,
        "titleFontWeight": 400,
        "titleFontSize": 11,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "titleFontWeight": 400,
        "titleFontSize": 11,
        "gradientThickness": 9,
    },
    "text": {"color": INK},
    "rule": {"color": INK},
}
NAMED = re.compile(r"(?<=[\"#])(gradient|clip)_?\d+")  # what Vega counts on from picture to picture
CELL, BAR = 20, 26  # pixels: of a heat map's cells, of a layer in the other charts

Number = float | int | str | None


@dataclass(frozen=True)
class Chart:
    """A figure: its caption, its Vega-Lite specification, and its numbers as a table."""

    caption: str
    spec: dict[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[Number, ...], ...]


def figures_of(measurement: Measurement, settings: JudgeParams) -> list[Chart]:
    """Return a measurement's figures; only those that need no samples if it comes without them."""
    subject = measurement.subject
    title = subject.task if subject.task == ALL_TASKS else TASKS[subject.task].title
    who = f"{subject.model}, {title}, {subject.initialisation}, seed {subject.seed}"
    if subject.task == ALL_TASKS:
        who = f"{subject.model}, without a task"
    charts: list[Chart] = []
    try:
        for figure in get_measure(measurement.measure).figures(measurement):
            charts.append(draw(figure, settings, figure.caption.format(who=who)))
    except UserError:
        if measurement.samples:
            raise
    return charts


@functools.singledispatch
def draw(figure: Shown, settings: JudgeParams, caption: str) -> Chart:
    """Return a figure as a chart."""
    raise TypeError(f"cannot draw a {type(figure).__name__}: register a function for it with `draw.register`")


@draw.register
def _(figure: HeadMap, settings: JudgeParams, caption: str) -> Chart:
    reach = (figure.low, figure.high)
    return heat_map(figure.values, caption, reach, title=figure.title, unit=figure.unit, signed=figure.signed)


@draw.register
def _(figure: RankedHeads, settings: JudgeParams, caption: str) -> Chart:
    return ranked_heads(
        *with_interval(figure.block, figure.statistic, settings), caption, heads=figure.heads, unit=figure.unit
    )


@draw.register
def _(figure: LayerBars, settings: JudgeParams, caption: str) -> Chart:
    values, low, high = with_interval(figure.block, figure.statistic, settings)
    return layer_bars(values, caption, (low, high), title=figure.title, unit=figure.unit)


@draw.register
def _(figure: LayerCurves, settings: JudgeParams, caption: str) -> Chart:
    return layer_curves(figure.curves, caption, unit=figure.unit)


@draw.register
def _(figure: PruningCurves, settings: JudgeParams, caption: str) -> Chart:
    return pruning_curves(figure.curves, caption, pruned=figure.pruned, unit=figure.unit)


@draw.register
def _(figure: StackedShares, settings: JudgeParams, caption: str) -> Chart:
    return stacked_shares(figure.shares, caption)


@draw.register
def _(figure: SharesBeside, settings: JudgeParams, caption: str) -> Chart:
    published = figure_2(figure.task, figure.names)
    return shares_beside({"K19, figure 2": published, **figure.shares}, figure.names, caption)


@draw.register
def _(figure: ClassMap, settings: JudgeParams, caption: str) -> Chart:
    return class_map(figure.majority, figure.agreement, figure.names, caption)


@draw.register
def _(figure: HeadDistances, settings: JudgeParams, caption: str) -> Chart:
    return scattered_heads(figure.distances, caption, heads=figure.heads)


# ---------------------------------------------------------------------- charts


def heat_map(
    values: Float[np.ndarray, "rows heads"],
    caption: str,
    reach: tuple[float, float],
    *,
    unit: str,
    title: str = "",
    signed: bool = False,
    rows: Sequence[str] = (),
) -> Chart:
    """Return a heat map of all heads, layer 1 at the top.

    Args:
        reach: values at both ends of the colours.
        signed: whether 0 is in the middle, with losses and gains on its sides.
        rows: names of what is in the rows, if not layers.
    """
    side = "kind" if rows else "layer"
    names: Sequence[str | int] = rows or range(1, len(values) + 1)
    cells = [
        {side: name, "head": j + 1, "value": rounded(value)}
        for name, row in zip(names, values, strict=True)
        for j, value in enumerate(row)
    ]
    colours = alt.Scale(scheme="blueorange", reverse=True) if signed else alt.Scale(scheme="viridis")
    colours.domain = [float(reach[0]), float(reach[1])]
    chart = (
        alt.Chart(alt.InlineData(values=cells))
        .mark_rect()
        .encode(
            x=_axis("head:O", "head"),
            y=alt.Y(f"{side}:O", title=None if rows else "layer", sort=None),
            color=alt.Color(
                "value:Q",
                scale=colours,
                legend=alt.Legend(title=unit, gradientLength=min(160, CELL * len(values)), tickCount=4, format=".4~g"),
            ),
            tooltip=[alt.Tooltip(f"{side}:O"), alt.Tooltip("head:O"), alt.Tooltip("value:Q", title=unit)],
        )
        .properties(width=alt.Step(CELL), height=alt.Step(CELL), title=title)
    )
    heads = range(1, values.shape[1] + 1)
    table = [(name, *map(rounded, row)) for name, row in zip(names, values, strict=True)]
    return _chart(chart, caption, (side, *(f"head {head}" for head in heads)), table)


def ranked_heads(
    values: Float[np.ndarray, " heads"],
    low: Float[np.ndarray, " heads"],
    high: Float[np.ndarray, " heads"],
    caption: str,
    *,
    heads: int,
    unit: str,
) -> Chart:
    """Return every head's value with its interval, smallest first, with names (layer.head) at both ends.

    Args:
        heads: number of heads in a layer.
    """
    order = np.argsort(values, kind="stable")
    table = [
        (f"{i // heads + 1}.{i % heads + 1}", rounded(values[i]), rounded(low[i]), rounded(high[i])) for i in order
    ]
    points = [
        {"place": place, "head": name, "value": value, "low": below, "high": above}
        for place, (name, value, below, above) in enumerate(table)
    ]
    first, last = range(0, min(6, len(table)), 2), range(len(table) - 1, max(5, len(table) - 6), -2)
    ends = [*first, *last]  # every second one, since names are wider than the space between dots
    named = " : ".join(f"datum.value == {i} ? '{table[i][0]}'" for i in ends) + " : ''"
    base = alt.Chart(alt.InlineData(values=points)).encode(
        x=alt.X(
            "place:Q",
            title="head (layer.head)",
            axis=alt.Axis(
                values=ends, labelExpr=named, labelAngle=-90, labelFlush=False, labelOverlap=False, grid=False
            ),
            scale=alt.Scale(domain=[-1, len(table)], nice=False),
        ),
        tooltip=["head:N", *_interval_tooltip(unit)],
    )
    chart = alt.layer(
        base.mark_rule(opacity=0.35).encode(y=alt.Y("low:Q", title=unit), y2="high:Q"),
        base.mark_circle(size=18, opacity=1, color=ACCENT).encode(y="value:Q"),
        alt.Chart(alt.InlineData(values=[{}])).mark_rule(opacity=0.5).encode(y=alt.datum(0)),
    ).properties(width=max(240, 5 * len(table)), height=190)
    return _chart(chart, caption, ("head", unit, "from", "to"), table)


def layer_bars(
    values: Float[np.ndarray, " layers"],
    caption: str,
    bounds: tuple[Float[np.ndarray, " layers"], Float[np.ndarray, " layers"]],
    *,
    unit: str,
    title: str = "",
) -> Chart:
    """Return one bar per layer: up for a gain, down for a loss, with both ends of its interval."""
    table = [
        (i + 1, rounded(value), rounded(low), rounded(high))
        for i, (value, low, high) in enumerate(zip(values, *bounds, strict=True))
    ]
    bars = [{"layer": i, "value": value, "low": low, "high": high} for i, value, low, high in table]
    base = alt.Chart(alt.InlineData(values=bars)).encode(
        x=_axis("layer:O", "layer"), tooltip=["layer:O", *_interval_tooltip(unit)]
    )
    colour = alt.condition("datum.value > 0", alt.value(GAIN), alt.value(LOSS))
    chart = alt.layer(
        base.mark_bar().encode(y=alt.Y("value:Q", title=unit), color=colour),
        base.mark_rule().encode(y="low:Q", y2="high:Q"),
        alt.Chart(alt.InlineData(values=[{}])).mark_rule(opacity=0.5).encode(y=alt.datum(0)),
    ).properties(width=alt.Step(BAR), height=160, title=title)
    return _chart(chart, caption, ("layer", unit, "from", "to"), table)


def layer_scores(
    scores: Float[np.ndarray, " layers"], caption: str, *, unit: str, baseline: float | None = None, title: str = ""
) -> Chart:
    """Return one point per layer, with a dashed line at the baseline where there is one."""
    table = [(i + 1, rounded(score)) for i, score in enumerate(scores)]
    points = [{"layer": layer, "value": value} for layer, value in table]
    base = alt.Chart(alt.InlineData(values=points)).encode(
        x=_axis("layer:O", "layer"),
        y=alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False, nice=True)),
        tooltip=["layer:O", alt.Tooltip("value:Q", title=unit)],
    )
    layers: list[alt.Chart] = [
        base.mark_line(color=ACCENT, opacity=0.35),
        base.mark_point(color=ACCENT, filled=True, size=45),
    ]
    if baseline is not None:
        line = alt.Chart(alt.InlineData(values=[{"baseline": rounded(baseline)}]))
        layers.append(line.mark_rule(strokeDash=[4, 3], opacity=0.7).encode(y="baseline:Q", tooltip="baseline:Q"))
    chart = alt.layer(*layers).properties(width=alt.Step(BAR), height=160, title=title)
    return _chart(chart, caption, ("layer", unit), table)


def stacked_shares(shares: Mapping[str, Float[np.ndarray, " layers"]], caption: str) -> Chart:
    """Return one bar per layer, stacked from the share of each class, in percent."""
    parts = [
        {"layer": i + 1, "class": name, "order": place, "value": rounded(100 * value)}
        for place, (name, share) in enumerate(shares.items())
        for i, value in enumerate(share)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=parts))
        .mark_bar()
        .encode(
            x=_axis("layer:O", "layer"),
            y=alt.Y("value:Q", title="percent of maps", scale=alt.Scale(domain=[0, 100])),
            color=_classes(list(shares)),
            order="order:Q",
            tooltip=["layer:O", "class:N", alt.Tooltip("value:Q", title="percent of maps")],
        )
        .properties(width=alt.Step(BAR), height=180)
    )
    layers = len(next(iter(shares.values())))
    table = [(i + 1, *(rounded(100 * share[i]) for share in shares.values())) for i in range(layers)]
    return _chart(chart, caption, ("layer", *shares), table)


def figure_2(task_name: str, names: Sequence[str]) -> Float[np.ndarray, " classes"]:
    """Return the shares of classes in K19's figure 2, in percent, in the order of their names."""
    bars = published_figures()["fig2"]
    shares = dict(zip(bars["order"], bars[TASKS[task_name].folder], strict=True))
    return np.array([shares[FIGURE_2[name]] for name in names])


def shares_beside(shares: Mapping[str, Float[np.ndarray, " classes"]], names: Sequence[str], caption: str) -> Chart:
    """Return one bar per source, stacked from the shares of the classes, in percent, with their numbers."""
    parts = []
    for source, values in shares.items():
        begun = 0.0
        for name, value in zip(names, values, strict=True):
            said = f"{value:.0f}" if value >= 4 else ""
            parts.append(
                {
                    "source": source,
                    "class": name,
                    "from": begun,
                    "to": begun + value,
                    "value": rounded(value),
                    "said": said,
                }
            )
            begun += float(value)
    base = alt.Chart(alt.InlineData(values=parts)).encode(
        y=alt.Y("source:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=240)),
        tooltip=["source:N", "class:N", alt.Tooltip("value:Q", title="percent of maps")],
    )
    middle = base.transform_calculate(middle="(datum.from + datum.to) / 2")
    chart = alt.layer(
        base.mark_bar().encode(
            x=alt.X("from:Q", title="percent of maps", scale=alt.Scale(nice=False)), x2="to:Q", color=_classes(names)
        ),
        middle.mark_text(fontSize=11, color="#1b1d20").encode(x="middle:Q", text="said:N"),
    ).properties(width=380, height=alt.Step(28))
    table = [(source, *map(rounded, values)) for source, values in shares.items()]
    return _chart(chart, caption, ("source", *names), table)


def class_map(
    majority: Int[np.ndarray, "layers heads"],
    agreement: Float[np.ndarray, "layers heads"],
    names: Sequence[str],
    caption: str,
) -> Chart:
    """Return a map of all heads in the colour of their class, layer 1 at the top; paler where fewer maps agree."""
    layers, heads = majority.shape
    cells = [
        {"layer": i + 1, "head": j + 1, "class": names[majority[i, j]], "agreement": rounded(agreement[i, j])}
        for i in range(layers)
        for j in range(heads)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=cells))
        .mark_rect()
        .encode(
            x=_axis("head:O", "head"),
            y=alt.Y("layer:O", title="layer"),
            color=_classes(names),
            opacity=alt.Opacity("agreement:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
            tooltip=["layer:O", "head:O", "class:N", alt.Tooltip("agreement:Q", title="share of its maps")],
        )
        .properties(width=alt.Step(CELL), height=alt.Step(CELL))
    )
    table = [(i + 1, *(names[one] for one in row)) for i, row in enumerate(majority)]
    return _chart(chart, caption, ("layer", *(f"head {j + 1}" for j in range(heads))), table)


def scattered_heads(distances: Float[np.ndarray, "all_heads all_heads"], caption: str, *, heads: int) -> Chart:
    """Return every head as a point in the colour of its layer, placed by `scaled` (Clark et al. 2019, figure 6).

    Args:
        heads: number of heads in a layer.
    """
    places, share = scaled(distances)
    table = [
        (i // heads + 1, i % heads + 1, rounded(across), rounded(up)) for i, (across, up) in enumerate(places.tolist())
    ]
    points = [{"layer": layer, "head": head, "x": across, "y": up} for layer, head, across, up in table]
    chart = (
        alt.Chart(alt.InlineData(values=points))
        .mark_circle(size=60, opacity=0.85)
        .encode(
            x=alt.X(
                "x:Q", title=f"distance; both axes together show {100 * share:.0f} % of it", axis=alt.Axis(tickCount=5)
            ),
            y=alt.Y("y:Q", title="distance", axis=alt.Axis(tickCount=5)),
            color=alt.Color("layer:O", title="layer", scale=alt.Scale(scheme="viridis")),
            tooltip=["layer:O", "head:O"],
        )
        .properties(width=320, height=320)
    )
    return _chart(chart, caption, ("layer", "head", "x", "y"), table)


def scaled(distances: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n 2"], float]:
    """Return points on a plane whose distances are as much like these as possible, and the share that they show.

    This is classical multidimensional scaling (Torgerson 1952): the two largest eigenvectors of the centred squared
    distances, each pointing to its largest entry; the share is that of their eigenvalues among the positive.
    """
    squared = distances**2
    centred = -(squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean()) / 2
    values, vectors = np.linalg.eigh(centred)
    largest = np.clip(values[:-3:-1], 0, None)
    vectors = vectors[:, :-3:-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(0), range(len(largest))])
    total = float(values[values > 0].sum())
    places = np.zeros((len(distances), 2))  # a single point has no second eigenvector
    places[:, : len(largest)] = vectors * signs * np.sqrt(largest)
    return places, float(largest.sum()) / total if total else 0.0


def layer_curves(curves: Mapping[str, Float[np.ndarray, " layers"]], caption: str, *, unit: str) -> Chart:
    """Return one line per name over the layers."""
    points = [
        {"layer": i + 1, "name": name, "value": rounded(value)}
        for name, values in curves.items()
        for i, value in enumerate(values)
    ]
    deepest = max(len(values) for values in curves.values())
    lines = alt.Color(
        "name:N", title=None, sort=None, scale=alt.Scale(range=["#3b7dd8", "#d9822b", "#8a63c7", "#5b9a6f"])
    )
    chart = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line(point=True)
        .encode(
            x=_axis("layer:O", "layer"),
            y=alt.Y("value:Q", title=unit, scale=alt.Scale(domainMin=0)),
            color=lines,
            strokeDash=alt.StrokeDash("name:N", legend=None, sort=None),
            tooltip=["name:N", "layer:O", alt.Tooltip("value:Q", title=unit)],
        )
        .properties(width=alt.Step(BAR), height=180)
    )
    table = [
        (i + 1, *(rounded(values[i]) if i < len(values) else None for values in curves.values()))
        for i in range(deepest)
    ]
    return _chart(chart, caption, ("layer", *curves), table)


def pruning_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]], caption: str, *, pruned: str, unit: str
) -> Chart:
    """Return one line per name over how much is pruned.

    Args:
        curves: points (percent pruned, value).
        pruned: what is pruned, for the axis.
    """
    points = [
        {"pruned": rounded(share), "name": name, "value": rounded(value)}
        for name, line in curves.items()
        for share, value in line
    ]
    chart = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line(point=True)
        .encode(
            x=alt.X("pruned:Q", title=f"percent of {pruned} pruned"),
            y=alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False)),
            color=alt.Color("name:N", title=None, sort=None, scale=alt.Scale(range=[ACCENT, LOSS])),
            strokeDash=alt.StrokeDash("name:N", legend=None, sort=None),
            tooltip=["name:N", alt.Tooltip("pruned:Q", title="percent pruned"), alt.Tooltip("value:Q", title=unit)],
        )
        .properties(width=340, height=190)
    )
    table = [(name, rounded(share), rounded(value)) for name, line in curves.items() for share, value in line]
    return _chart(chart, caption, ("model", "percent pruned", unit), table)


# ---------------------------------------------------------------------- the claim on one axis


def strip_spec() -> dict[str, Any]:
    """Return the specification that draws any claim on one axis; `strip_rows` gives it its data.

    The band is a shade over all rows, the published figure a diamond, each observed value a dot with its interval, and
    each seed a ring.
    """
    y = alt.Y("row:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=160, labelPadding=8))
    x = alt.X("low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=6, format=".4~g"))
    told = [alt.Tooltip("said:N", title="value"), alt.Tooltip("row:N", title="what")]
    base = alt.Chart(alt.NamedData(name="rows"))

    def of(kind: str) -> alt.Chart:
        return base.transform_filter(f"datum.kind == '{kind}'")

    chart = alt.layer(
        of("extent").mark_point(opacity=0).encode(x=x, y=y),  # first: it says in which order rows stand
        of("band")
        .mark_rect(color=ACCENT, opacity=0.16)
        .encode(x=x, x2="high:Q", tooltip=alt.Tooltip("said:N", title="band")),
        of("limit").mark_rule(color=ACCENT, opacity=0.6).encode(x=x),
        of("interval").mark_rule(strokeWidth=2).encode(x=x, x2="high:Q", y=y, tooltip=told),
        of("seed").mark_point(size=36, color=INK, opacity=0.75, strokeWidth=1.2).encode(x=x, y=y, tooltip=told),
        of("observed").mark_circle(size=80, color=INK, opacity=1).encode(x=x, y=y, tooltip=told),
        of("published")
        .mark_point(size=90, shape="diamond", filled=True, color=ACCENT, opacity=1)
        .encode(x=x, y=y, tooltip=told),
    ).properties(width=440, height=alt.Step(24))
    return plain(chart)


def _axis(field: str, title: str) -> alt.X:
    return alt.X(field, title=title, axis=alt.Axis(labelAngle=0))


def _classes(names: Iterable[str]) -> alt.Color:
    return alt.Color("class:N", title=None, sort=None, scale=alt.Scale(domain=list(names), range=list(KINDS)))


def _interval_tooltip(unit: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("value:Q", title=unit), alt.Tooltip("low:Q", title="from"), alt.Tooltip("high:Q", title="to")]


def rounded(value: float | np.floating) -> float | None:
    """Return a number with four significant digits; None if it is none."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def _chart(chart: alt.TopLevelMixin, caption: str, header: tuple[str, ...], rows: Iterable) -> Chart:
    return Chart(caption, plain(chart), header, tuple(tuple(row) for row in rows))


def plain(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart as data, without what the page says once for all of them."""
    spec = chart.to_dict()
    return {name: part for name, part in spec.items() if name not in ("$schema", "config")}


# ---------------------------------------------------------------------- files


def svg(chart: Chart) -> str:
    """Return a chart as SVG text, the same for the same chart."""
    return svg_of(chart.spec)


def svg_of(spec: dict[str, Any]) -> str:
    """Return what a Vega-Lite specification draws, as SVG text in the colour of the text around it.

    Names inside it are its own, so that several pictures can stand on one page.
    """
    with from_extra("vl-convert-python"):
        import vl_convert

    own = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
    names: dict[str, str] = {}
    drawn = vl_convert.vegalite_to_svg({**spec, "config": CONFIG})
    return NAMED.sub(lambda found: names.setdefault(found[0], f"{found[1]}-{own}-{len(names)}"), drawn)
