"""The report's figures as SVG text: a [layer, head] map as a heat map, curves and bars by layer, heads in order."""

import functools
import io
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.estimate import with_interval
from bertsecrets.extras import from_extra
from bertsecrets.measures.base.figures import (
    ClassMap,
    HeadMap,
    LayerBars,
    LayerCurves,
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

with from_extra("matplotlib"):
    import matplotlib as mpl
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

mpl.rcParams["svg.hashsalt"] = "bertsecrets"  # the same figure gives the same file
mpl.rcParams["text.parse_math"] = False  # a $ in a title or unit is a dollar sign
FIGURE_2 = {  # what K19's figure 2 calls the classes
    "vertical": "Vertical",
    "diagonal": "Diagonal",
    "vertical-diagonal": "Vert+Diag",
    "block": "Block",
    "heterogeneous": "Heterogeneous",
}
KINDS = ("#4477aa", "#ee6677", "#aa3377", "#ccbb44", "#bbbbbb")  # of the five classes; safe for the colour-blind


def figures_of(measurement: Measurement, settings: JudgeParams) -> list[tuple[str, str]]:
    """Return a measurement's figures as pairs of caption and SVG text."""
    subject = measurement.subject
    title = subject.task if subject.task == ALL_TASKS else TASKS[subject.task].title
    who = f"{subject.model}, {title}, {subject.initialisation}, seed {subject.seed}"
    if subject.task == ALL_TASKS:
        who = f"{subject.model}, without a task"
    shown = get_measure(measurement.measure).figures(measurement)
    return [(figure.caption.format(who=who), draw(figure, settings)) for figure in shown]


@functools.singledispatch
def draw(figure: Shown, settings: JudgeParams) -> str:
    """Return a figure as SVG text."""
    raise TypeError(f"cannot draw a {type(figure).__name__}: register a function for it with `draw.register`")


@draw.register
def _(figure: HeadMap, settings: JudgeParams) -> str:
    colours = "RdBu" if figure.signed else "viridis"
    return heat_map(figure.values, figure.title, figure.low, figure.high, unit=figure.unit, colours=colours)


@draw.register
def _(figure: RankedHeads, settings: JudgeParams) -> str:
    values, low, high = with_interval(figure.block, figure.statistic, settings)
    return ranked_heads(values, low, high, heads=figure.heads, unit=figure.unit)


@draw.register
def _(figure: LayerBars, settings: JudgeParams) -> str:
    values, low, high = with_interval(figure.block, figure.statistic, settings)
    return gain_bars(values, (low, high), figure.title, figure.unit)


@draw.register
def _(figure: LayerCurves, settings: JudgeParams) -> str:
    return layer_curves(figure.curves, figure.unit)


@draw.register
def _(figure: StackedShares, settings: JudgeParams) -> str:
    return stacked_shares(figure.shares)


@draw.register
def _(figure: SharesBeside, settings: JudgeParams) -> str:
    published = figure_2(figure.task, figure.names)
    return shares_beside({"K19, figure 2": published, **figure.shares}, figure.names)


@draw.register
def _(figure: ClassMap, settings: JudgeParams) -> str:
    return class_map(figure.majority, figure.agreement, figure.names)


def heat_map(
    values: Float[np.ndarray, "layers heads"],
    title: str,
    low: float,
    high: float,
    *,
    unit: str,
    colours: str = "viridis",
) -> str:
    """Return a heat map of all heads, layer 1 at the top; layers and heads count from 1."""
    layers, heads = values.shape
    figure = Figure(figsize=(1.6 + 0.34 * heads, 1.2 + 0.3 * layers), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(heads), [str(h + 1) for h in range(heads)], fontsize=8)
    axes.set_yticks(range(layers), [str(i + 1) for i in range(layers)], fontsize=8)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, label=unit)
    return svg(figure)


def ranked_heads(
    values: Float[np.ndarray, " heads"],
    low: Float[np.ndarray, " heads"],
    high: Float[np.ndarray, " heads"],
    *,
    heads: int,
    unit: str,
) -> str:
    """Return a plot of every head's value with its interval, smallest first, with names (layer.head) at both ends.

    Args:
        heads: number of heads in a layer.
    """
    order = np.argsort(values, kind="stable")
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(values))
    axes.vlines(places, low[order], high[order], color="#9aa5b1", linewidth=1)
    axes.scatter(places, values[order], s=8, color="#22303c", zorder=3)
    axes.axhline(0, color="black", linewidth=0.8)
    ends = [*range(min(5, len(values))), *range(max(5, len(values) - 5), len(values))]
    names = [f"{order[i] // heads + 1}.{order[i] % heads + 1}" for i in ends]
    axes.set_xticks(ends, names, fontsize=7, rotation=90)
    axes.set_xlabel("head (layer.head)")
    axes.set_ylabel(unit)
    return svg(figure)


def gain_bars(
    gains: Float[np.ndarray, " layers"],
    bounds: tuple[Float[np.ndarray, " layers"], Float[np.ndarray, " layers"]],
    title: str,
    unit: str,
) -> str:
    """Return a plot with one bar per layer: up for a gain, down for a loss.

    Args:
        bounds: both ends of each bar's interval.
    """
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(1, len(gains) + 1), gains, color=["#2166ac" if gain > 0 else "#b2182b" for gain in gains])
    axes.vlines(range(1, len(gains) + 1), *bounds, color="black", linewidth=1)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(1, len(gains) + 1))
    axes.set_xlabel("layer")
    axes.set_ylabel(unit)
    axes.set_title(title, fontsize=10)
    return svg(figure)


def stacked_shares(shares: Mapping[str, Float[np.ndarray, " layers"]]) -> str:
    """Return a plot with one bar per layer, stacked from the share of each class, in percent."""
    figure = Figure(figsize=(6.4, 3), layout="constrained")
    axes = figure.subplots()
    below = np.zeros(len(next(iter(shares.values()))))
    places = range(1, len(below) + 1)
    for (name, share), colour in zip(shares.items(), KINDS, strict=True):
        axes.bar(places, 100 * share, bottom=100 * below, color=colour, label=name)
        below = below + share
    axes.set_xticks(places)
    axes.set_xlabel("layer")
    axes.set_ylabel("percent of maps")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(figure)


def figure_2(task_name: str, names: Sequence[str]) -> Float[np.ndarray, " classes"]:
    """Return the shares of classes in K19's figure 2, in percent, in the order of their names."""
    bars = published_figures()["fig2"]
    shares = dict(zip(bars["order"], bars[TASKS[task_name].title], strict=True))
    return np.array([shares[FIGURE_2[name]] for name in names])


def shares_beside(shares: Mapping[str, Float[np.ndarray, " classes"]], names: Sequence[str]) -> str:
    """Return a plot with one bar per source, stacked from the shares of the classes, in percent, with their numbers."""
    figure = Figure(figsize=(7.4, 1 + 0.5 * len(shares)), layout="constrained")
    axes = figure.subplots()
    sources = list(shares)
    begun = np.zeros(len(sources))
    for place, (name, colour) in enumerate(zip(names, KINDS, strict=True)):
        part = np.array([shares[source][place] for source in sources])
        bars = axes.barh(range(len(sources)), part, left=begun, color=colour, label=name)
        axes.bar_label(bars, [f"{one:.0f}" if one >= 2 else "" for one in part], label_type="center", fontsize=8)
        begun = begun + part
    axes.set_yticks(range(len(sources)), sources)
    axes.invert_yaxis()
    axes.set_xlabel("percent of maps")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(figure)


def class_map(
    majority: Int[np.ndarray, "layers heads"], agreement: Float[np.ndarray, "layers heads"], names: Sequence[str]
) -> str:
    """Return a map of all heads in the colour of their class, layer 1 at the top; paler where fewer maps agree."""
    layers, heads = majority.shape
    full = np.array([to_rgb(colour) for colour in KINDS])[majority]
    figure = Figure(figsize=(3 + 0.34 * heads, 1.2 + 0.3 * layers), layout="constrained")
    axes = figure.subplots()
    axes.imshow(1 - (1 - full) * agreement[:, :, None], aspect="auto")
    axes.set_xticks(range(heads), [str(h + 1) for h in range(heads)], fontsize=8)
    axes.set_yticks(range(layers), [str(i + 1) for i in range(layers)], fontsize=8)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    keys = [Patch(color=colour, label=name) for colour, name in zip(KINDS, names, strict=True)]
    axes.legend(handles=keys, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(figure)


def layer_curves(curves: Mapping[str, Float[np.ndarray, " layers"]], unit: str) -> str:
    """Return a plot with one line per name over the layers."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=name)
    axes.set_xlabel("layer")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    return svg(figure)


def svg(figure: Figure) -> str:
    """Return a figure as SVG text, the same for the same figure."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
