"""The report's pictures: a [layer, head] map as a heat map, a [layer] curve of several measures, as SVG text."""

import io

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

mpl.rcParams["svg.hashsalt"] = "bertsecrets"  # the same figure gives the same file


def heat_map(
    values: Float[np.ndarray, "layers heads"], title: str, low: float, high: float, unit: str, colours: str = "viridis"
) -> str:
    """A map of all heads, layer 1 at the top, both counted from 1."""
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
    return _svg(figure)


def gain_map(gains: Float[np.ndarray, "layers heads"], title: str, unit: str) -> str:
    """A map of gains and losses: white is none, blue a gain, red a loss."""
    reach = max(float(np.abs(gains).max(initial=0)), 1e-9)
    return heat_map(gains, title, -reach, reach, unit, "RdBu")


def gain_bars(gains: Float[np.ndarray, " layers"], title: str, unit: str) -> str:
    """One bar per layer, counted from 1: up for a gain, down for a loss."""
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(1, len(gains) + 1), gains, color=["#2166ac" if gain > 0 else "#b2182b" for gain in gains])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(1, len(gains) + 1))
    axes.set_xlabel("layer")
    axes.set_ylabel(unit)
    axes.set_title(title, fontsize=10)
    return _svg(figure)


def layer_curves(curves: dict[str, Float[np.ndarray, " layers"]], title: str, unit: str) -> str:
    """One line per name over the layers, counted from 1."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=name)
    axes.set_xlabel("layer")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
