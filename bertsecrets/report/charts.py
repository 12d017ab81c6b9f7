"""Vega-Lite charts of measurements, each with a table of the plotted numbers.

Layers and heads are numbered from 1. The palette is safe for colour-blind readers. Text and lines inherit the page's
text colour.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimate import with_interval
from bertsecrets.errors import from_extra
from bertsecrets.measures.base import figures
from bertsecrets.settings import JudgeParams

with from_extra("altair"):
    import altair as alt

CLASS_COLOURS = ("#4477aa", "#ee6677", "#aa3377", "#ccbb44", "#bbbbbb")
LINE_COLOURS = ("#3b7dd8", "#d9822b", "#8a63c7", "#5b9a6f")
INK = "currentColor"  # the text colour of the page
ACCENT, GAIN_COLOUR, LOSS_COLOUR = "#3b7dd8", "#3b7dd8", "#d9822b"
AXIS_COLOURS = dict.fromkeys(("labelColor", "titleColor", "tickColor", "domainColor", "gridColor"), INK)
TITLE_FONT = {"titleFontWeight": 400, "titleFontSize": 11}
CHART_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "aria": False,  # the page has a description and a data table for each chart
    "view": {"stroke": None},
    "title": {"color": INK, "fontSize": 12, "fontWeight": 500, "anchor": "start"},
    "axis": {**AXIS_COLOURS, **TITLE_FONT, "tickOpacity": 0.3, "domainOpacity": 0.3, "gridOpacity": 0.12},
    "legend": {**TITLE_FONT, "labelColor": INK, "titleColor": INK, "gradientThickness": 9},
    "header": {"labelColor": INK},
    "text": {"color": INK},
    "rule": {"color": INK},
}
TILE_PIXELS, TILE_COLUMNS = 12, 4  # for a layer's attention maps: pixels per cell, maps per row
NUMBERED_IDS = re.compile(r"(?<=[\"#])(gradient|clip)_?\d+")  # Vega numbers these across all charts
CELL_PIXELS, BAR_PIXELS = 20, 26  # pixels per cell of a heat map, and per layer in other charts

Number = float | int | str | None


@dataclass(frozen=True)
class Chart:
    """A drawn figure: its caption, its Vega-Lite specification and its data table."""

    caption: str
    spec: dict[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[Number, ...], ...]


@functools.singledispatch
def draw(figure: figures.Figure, settings: JudgeParams, caption: str) -> Chart:
    """Return a figure as a chart."""
    raise TypeError(f"cannot draw a {type(figure).__name__}: register a function for it with `draw.register`")


@draw.register
def _(figure: figures.HeadMap, settings: JudgeParams, caption: str) -> Chart:
    side, names = ("kind", figure.rows) if figure.rows else ("layer", range(1, len(figure.values) + 1))
    table = [(name, *map(rounded, row)) for name, row in zip(names, figure.values, strict=True)]
    scale = alt.Scale(scheme="blueorange", reverse=True) if figure.signed else alt.Scale(scheme="viridis")
    scale.domain = [float(figure.low), float(figure.high)]
    length = min(160, CELL_PIXELS * len(table))
    marks = np.zeros(figure.values.shape, bool) if figure.marked is None else figure.marked
    base = _data(
        {side: name, "head": j + 1, "value": value, "marked": bool(marks[i, j])}
        for i, (name, *row) in enumerate(table)
        for j, value in enumerate(row)
    ).encode(x=_ordinal("head"), y=alt.Y(f"{side}:O", title=None if figure.rows else "layer", sort=None))
    chart = base.mark_rect().encode(
        color=alt.Color(
            "value:Q",
            scale=scale,
            legend=alt.Legend(title=figure.unit, gradientLength=length, tickCount=4, format=".4~g"),
        ),
        tooltip=[f"{side}:O", "head:O", alt.Tooltip("value:Q", title=figure.unit)],
    )
    if figure.marked is not None:
        dots = base.transform_filter("datum.marked").mark_point(filled=True, size=16, color="#1b1d20", opacity=1)
        chart = alt.layer(chart, dots)
    chart = chart.properties(width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS), title=figure.title)
    return _chart(chart, caption, (side, *_heads(figure.values.shape[1])), table)


@draw.register
def _(figure: figures.RankedHeads, settings: JudgeParams, caption: str) -> Chart:
    numbers = np.stack(with_interval(figure.block, figure.statistic, settings), axis=1)
    table = [
        (f"{i // figure.heads + 1}.{i % figure.heads + 1}", *map(rounded, numbers[i]))
        for i in np.argsort(numbers[:, 0], kind="stable")
    ]
    first, last = range(0, min(6, len(table)), 2), range(len(table) - 1, max(5, len(table) - 6), -2)
    ends = [*first, *last]  # every second head, because names are wider than the gap between dots
    named = " : ".join(f"datum.value == {i} ? '{table[i][0]}'" for i in ends) + " : ''"
    names = alt.Axis(values=ends, labelExpr=named, labelAngle=-90, labelFlush=False, labelOverlap=False, grid=False)
    base = _intervals(["place", "head"], [(i, *row) for i, row in enumerate(table)]).encode(
        x=alt.X("place:Q", title="head (layer.head)", axis=names, scale=alt.Scale(domain=[-1, len(table)], nice=False)),
        tooltip=["head:N", *_interval_tooltip(figure.unit)],
    )
    chart = alt.layer(
        base.mark_rule(opacity=0.35).encode(y=alt.Y("low:Q", title=figure.unit), y2="high:Q"),
        base.mark_circle(size=18, opacity=1, color=ACCENT).encode(y="value:Q"),
        _data([{}]).mark_rule(opacity=0.5).encode(y=alt.datum(0)),
    ).properties(width=max(240, 5 * len(table)), height=190)
    return _chart(chart, caption, ("head", figure.unit, "from", "to"), table)


@draw.register
def _(figure: figures.LayerBars, settings: JudgeParams, caption: str) -> Chart:
    numbers = zip(*with_interval(figure.block, figure.statistic, settings), strict=True)
    table = [(i + 1, *map(rounded, row)) for i, row in enumerate(numbers)]
    base = _intervals(["layer"], table).encode(
        x=_ordinal("layer"), tooltip=["layer:O", *_interval_tooltip(figure.unit)]
    )
    colour = alt.condition("datum.value > 0", alt.value(GAIN_COLOUR), alt.value(LOSS_COLOUR))
    chart = alt.layer(
        base.mark_bar().encode(y=alt.Y("value:Q", title=figure.unit), color=colour),
        base.mark_rule().encode(y="low:Q", y2="high:Q"),
        _data([{}]).mark_rule(opacity=0.5).encode(y=alt.datum(0)),
    ).properties(width=alt.Step(BAR_PIXELS), height=160, title=figure.title)
    return _chart(chart, caption, ("layer", figure.unit, "from", "to"), table)


@draw.register
def _(figure: figures.Lines, settings: JudgeParams, caption: str) -> Chart:
    by_layer = figure.x == "layer"
    lines = {
        name: dict(enumerate(values, start=1)) if by_layer else dict(values) for name, values in figure.lines.items()
    }
    points = [{"x": x, "name": name, "value": rounded(y)} for name, line in lines.items() for x, y in line.items()]
    scale = alt.Scale(domainMin=0) if figure.from_zero else alt.Scale(zero=False, nice=True)
    several = {} if len(lines) == 1 else {"strokeDash": alt.StrokeDash("name:N", legend=None, sort=None)}
    colours = alt.Scale(domain=list(lines), range=list(LINE_COLOURS[: len(lines)]))
    legend = alt.Undefined if several else None
    chart = (
        _data(points)
        .mark_line(point=True)
        .encode(
            x=_ordinal("x", "layer") if by_layer else alt.X("x:Q", title=figure.x),
            y=alt.Y("value:Q", title=figure.unit, scale=scale),
            color=alt.Color("name:N", title=None, sort=None, scale=colours, legend=legend),
            tooltip=["name:N", alt.Tooltip("x:Q", title=figure.x), alt.Tooltip("value:Q", title=figure.unit)],
            **several,
        )
    )
    if figure.baseline is not None:
        dashes = _data([{"baseline": rounded(figure.baseline)}]).mark_rule(strokeDash=[4, 3], opacity=0.7)
        chart = alt.layer(chart, dashes.encode(y="baseline:Q", tooltip="baseline:Q"))
    chart = chart.properties(width=alt.Step(BAR_PIXELS) if by_layer else 340, height=180)
    places = sorted({x for line in lines.values() for x in line})
    table = [(x, *(rounded(line[x]) if x in line else None for line in lines.values())) for x in places]
    return _chart(chart, caption, (figure.x, *lines), table)


@draw.register
def _(figure: figures.Shares, settings: JudgeParams, caption: str) -> Chart:
    parts = []
    for name, shares in figure.shares.items():
        ends = np.cumsum(shares)
        for kind, value, end in zip(figure.names, map(float, shares), map(float, ends), strict=True):
            label = f"{value:.0f}" if value >= 4 else ""
            place = {"row": name, "class": kind, "value": rounded(value), "label": label}
            parts.append({**place, "from": end - value, "middle": end - value / 2, "to": end})
    title = None if figure.row == "source" else figure.row
    base = _data(parts).encode(
        y=alt.Y("row:N", title=title, sort=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=240)),
        tooltip=[alt.Tooltip("row:N", title=figure.row), "class:N", alt.Tooltip("value:Q", title="percent of maps")],
    )
    extent = alt.X("from:Q", title="percent of maps", scale=alt.Scale(nice=False))
    chart = alt.layer(
        base.mark_bar().encode(x=extent, x2="to:Q", color=_classes(figure.names)),
        base.mark_text(fontSize=11, color="#1b1d20").encode(x="middle:Q", text="label:N"),
    ).properties(width=380, height=alt.Step(28 if figure.row == "source" else CELL_PIXELS))
    table = [(name, *map(rounded, shares)) for name, shares in figure.shares.items()]
    return _chart(chart, caption, (figure.row, *figure.names), table)


@draw.register
def _(figure: figures.ClassMap, settings: JudgeParams, caption: str) -> Chart:
    cells = [
        {
            "layer": i + 1,
            "head": j + 1,
            "class": figure.names[kind],
            "agreement": rounded(float(figure.agreement[i, j])),
        }
        for (i, j), kind in np.ndenumerate(figure.majority)
    ]
    chart = (
        _data(cells)
        .mark_rect()
        .encode(
            x=_ordinal("head"),
            y=alt.Y("layer:O", title="layer"),
            color=_classes(figure.names),
            opacity=alt.Opacity("agreement:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
            tooltip=["layer:O", "head:O", "class:N", alt.Tooltip("agreement:Q", title="share of its maps")],
        )
        .properties(width=alt.Step(CELL_PIXELS), height=alt.Step(CELL_PIXELS))
    )
    table = [(i + 1, *(figure.names[kind] for kind in row)) for i, row in enumerate(figure.majority)]
    return _chart(chart, caption, ("layer", *_heads(figure.majority.shape[1])), table)


@draw.register
def _(figure: figures.HeadDistances, settings: JudgeParams, caption: str) -> Chart:
    """Plot each head as a point, as in figure 6 of Clark et al. (2019). The points are computed by `scaled`."""
    places, share = scaled(figure.distances)
    header = ("layer", "head", "x", "y")
    numbers = (divmod(i, figure.heads) for i in range(len(places)))
    table = [(i + 1, j + 1, *map(rounded, place)) for (i, j), place in zip(numbers, places.tolist(), strict=True)]
    few = alt.Axis(tickCount=5)
    chart = (
        _data(dict(zip(header, row, strict=True)) for row in table)
        .mark_circle(size=60, opacity=0.85)
        .encode(
            x=alt.X("x:Q", title=f"distance (both axes together explain {100 * share:.0f} %)", axis=few),
            y=alt.Y("y:Q", title="distance", axis=few),
            color=alt.Color("layer:O", title="layer", scale=alt.Scale(scheme="viridis")),
            tooltip=["layer:O", "head:O"],
        )
        .properties(width=320, height=320)
    )
    return _chart(chart, caption, header, table)


def scaled(distances: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n 2"], float]:
    """Return 2-D points whose distances approximate the given ones, and the fraction of the distances explained.

    This is classical multidimensional scaling (Torgerson 1952): the top two eigenvectors of the double-centred squared
    distances, signed so that the largest entry is positive. The explained fraction is the sum of the top two
    eigenvalues divided by the sum of all positive eigenvalues.
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


# ---------------------------------------------------------------------- for notebooks


def attention_maps(
    tokens: Sequence[str], maps: Mapping[int, Float[np.ndarray, "n n"]], title: str
) -> alt.TopLevelMixin:
    """Return a chart of attention maps by head number (from 1), with the tokens on both axes."""
    names = [f"{place:03d} {token}" for place, token in enumerate(tokens)]  # tokens may repeat
    rows = [
        {"head": f"head {head}", "from": names[i], "to": names[j], "weight": float(weight)}
        for head, weights in maps.items()
        for (i, j), weight in np.ndenumerate(weights)
    ]
    words: dict[str, Any] = dict.fromkeys(("labelOverlap", "domain", "ticks"), False)
    words["labelExpr"] = "slice(datum.label, 4)"
    several = len(maps) > 1
    cell = TILE_PIXELS if several else CELL_PIXELS
    chart = (
        _data(rows)
        .mark_rect()
        .encode(
            x=alt.X("to:O", title="to", axis=alt.Axis(orient="top", labelAngle=-60, **words)),
            y=alt.Y("from:O", title="from", axis=alt.Axis(**words)),
            color=alt.Color("weight:Q", scale=alt.Scale(scheme="viridis")),
            tooltip=["head:N", "from:O", "to:O", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(width=alt.Step(cell), height=alt.Step(cell))
    )
    if several:
        heads = alt.Facet("head:N", title=None, sort=[f"head {head}" for head in maps])
        chart = chart.facet(heads, columns=TILE_COLUMNS)
    return inline(chart.properties(title=title))


def as_altair(chart: Chart) -> alt.TopLevelMixin:
    """Return a figure as an Altair chart titled with its caption."""
    return inline(alt.Chart.from_dict({**chart.spec, "title": chart.caption}))


class InlineChart:
    """An Altair chart that notebooks show as SVG, because Altair's own output loads scripts from the network."""

    def _repr_mimebundle_(self, *_: object, **__: object) -> dict[str, str]:
        return {"text/plain": "<chart>", "text/html": svg(self.to_dict())}  # type: ignore[attr-defined]


def inline(chart: alt.TopLevelMixin) -> alt.TopLevelMixin:
    """Change a chart so that notebooks can show it and its copies without a network connection. Return the chart."""
    kind = type(chart)
    object.__setattr__(chart, "__class__", type(kind.__name__, (InlineChart, kind), {}))
    return chart


# ---------------------------------------------------------------------- the claim on one axis


def strip_spec() -> dict[str, Any]:
    """Return the specification of the chart that shows a verdict on one axis. Its data come from `cards.strip_rows`.

    The band is shaded across all rows. The published value is a diamond, observed values are dots with their
    intervals, and seeds are rings.
    """
    y = alt.Y("row:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=160, labelPadding=8))
    x = alt.X("low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=6, format=".4~g"))
    tooltip = [alt.Tooltip("label:N", title="value"), alt.Tooltip("row:N", title="what")]
    base = alt.Chart(alt.NamedData(name="rows"))

    def of_kind(kind: str) -> alt.Chart:
        return base.transform_filter(f"datum.kind == '{kind}'")

    chart = alt.layer(
        of_kind("extent").mark_point(opacity=0).encode(x=x, y=y),  # comes first, to set the order of the rows
        of_kind("band")
        .mark_rect(color=ACCENT, opacity=0.16)
        .encode(x=x, x2="high:Q", tooltip=alt.Tooltip("label:N", title="band")),
        of_kind("limit").mark_rule(color=ACCENT, opacity=0.6).encode(x=x),
        of_kind("interval").mark_rule(strokeWidth=2).encode(x=x, x2="high:Q", y=y, tooltip=tooltip),
        of_kind("seed").mark_point(size=36, color=INK, opacity=0.75, strokeWidth=1.2).encode(x=x, y=y, tooltip=tooltip),
        of_kind("observed").mark_circle(size=80, color=INK, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        of_kind("published")
        .mark_point(size=90, shape="diamond", filled=True, color=ACCENT, opacity=1)
        .encode(x=x, y=y, tooltip=tooltip),
    ).properties(width=440, height=alt.Step(24))
    return as_spec(chart)


# ---------------------------------------------------------------------- parts


def _data(rows: Iterable[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=list(rows)))


def _intervals(names: Sequence[str], table: Sequence[Sequence[Number]]) -> alt.Chart:
    """Return chart data for rows that consist of entries with these names, a value, and both ends of its interval."""
    return _data(dict(zip((*names, "value", "low", "high"), row, strict=True)) for row in table)


def _ordinal(field: str, title: str = "") -> alt.X:
    return alt.X(f"{field}:O", title=title or field, axis=alt.Axis(labelAngle=0))


def _classes(names: Iterable[str]) -> alt.Color:
    return alt.Color("class:N", title=None, sort=None, scale=alt.Scale(domain=list(names), range=list(CLASS_COLOURS)))


def _interval_tooltip(unit: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("value:Q", title=unit), alt.Tooltip("low:Q", title="from"), alt.Tooltip("high:Q", title="to")]


def _heads(count: int) -> list[str]:
    return [f"head {head + 1}" for head in range(count)]


def rounded(value: float | np.floating) -> float | None:
    """Return a number rounded to four significant digits, or None if it is not finite."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def _chart(chart: alt.TopLevelMixin, caption: str, header: tuple[str, ...], rows: Iterable) -> Chart:
    return Chart(caption, as_spec(chart), header, tuple(tuple(row) for row in rows))


def as_spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart as a dict without the configuration that all charts of the page share."""
    return {name: part for name, part in chart.to_dict().items() if name not in ("$schema", "config")}


def svg(spec: dict[str, Any]) -> str:
    """Render a specification as reproducible SVG with ids that are unique to the chart.

    A configuration in the specification overrides `CHART_CONFIG`.
    """
    with from_extra("vl-convert-python"):
        import vl_convert

    own = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
    names: dict[str, str] = {}
    given = spec.get("config", {})
    config = {**CHART_CONFIG, **given}
    config |= {name: {**part, **given.get(name, {})} for name, part in CHART_CONFIG.items() if isinstance(part, dict)}
    drawn = vl_convert.vegalite_to_svg({**spec, "config": config})
    unclipped = drawn.replace("<svg ", '<svg style="overflow: visible" ', 1)  # the reader's fonts may be wider
    return NUMBERED_IDS.sub(lambda match: names.setdefault(match[0], f"{match[1]}-{own}-{len(names)}"), unclipped)
