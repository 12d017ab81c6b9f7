"""How the cost of disabling every head grows with layers, heads, rows and sequence length.

At every point, results must equal those of plain passes before times are compared. The times are processor times,
because other programs disturb them least.
"""

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from plain import engine_count, of_one_length, plain_count, plain_passes
from tabulate import tabulate
from transformers import BertConfig, BertForSequenceClassification

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.head_sets import single_heads
from bertsecrets.models.encoding import Encoded
from bertsecrets.models.opening import OpenModel

BASE = {"layers": 6, "heads": 6, "rows": 32, "tokens": 64}
GROWTH = {"layers": [2, 4, 8, 12], "heads": [2, 4, 8, 12], "rows": [8, 16, 32, 64], "tokens": [16, 32, 64, 128]}
HEAD_SIZE = 32
HEADINGS = ["sets", "ours s", "plain s", "ratio", "counted ratio", "G multiply-adds", "G multiply-adds/s"]


@dataclass(frozen=True)
class Point:
    """One size along one axis, with the processor seconds and multiply-adds of the engine and of plain passes."""

    value: int
    sets: int
    ours: float
    plain: float
    counted: float
    plain_counted: float

    def row(self) -> list[float]:
        """Return the cells of the point's row in the table with the columns `HEADINGS`."""
        ratio, allowed = self.plain / self.ours, self.plain_counted / self.counted
        gain = [self.ours, self.plain, ratio, allowed, self.counted / 1e9, self.counted / self.ours / 1e9]
        return [self.value, self.sets, *gain]


def grow(axis: str) -> Iterator[Point]:
    """Yield the points along one axis, with all other sizes fixed."""
    for value in GROWTH[axis]:
        yield point(value, {**BASE, axis: value})


def point(value: int, size: dict[str, int]) -> Point:
    """Time the ablation of all heads of a random BERT model, with the engine and with plain passes.

    Raises:
        AssertionError: If the logits differ by more than 1e-5.
    """
    width = HEAD_SIZE * size["heads"]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
    )
    classifier = OpenModel(BertForSequenceClassification(config).eval(), None, "random")
    ids = np.random.default_rng(0).integers(5, 1000, (size["rows"], size["tokens"])).tolist()
    encoded, sets = Encoded(ids, None, 0), single_heads(size["layers"], size["heads"])
    engine, batches = Engine.open(classifier), of_one_length(encoded)
    ablate(engine, encoded, sets[:1])
    logits, ours = seconds(lambda: ablate(engine, encoded, sets))
    expected, plain = seconds(lambda: plain_passes(classifier.model, batches, sets))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    counted = engine_count(config, encoded, sets)
    return Point(value, len(sets), ours, plain, counted, plain_count(config, batches) * len(sets))


def seconds(function: Callable) -> tuple:
    """Return a function's result and its processor time in seconds."""
    began = time.process_time()
    result = function()
    return result, time.process_time() - began


def table(axis: str, points: list[Point]) -> str:
    """Return the points of an axis as a table."""
    return tabulate([measured.row() for measured in points], [axis, *HEADINGS], floatfmt=".2f")


def at_rest(axis: str) -> str:
    """Return the fixed sizes of the other axes as text."""
    return ", ".join(f"{value} {name}" for name, value in BASE.items() if name != axis)


def draw(measured: dict[str, list[Point]]) -> str:
    """Return a log-log plot, as SVG text, of the times of the engine and of plain passes along each axis."""
    mpl.rcParams["svg.hashsalt"] = "bertsecrets"
    figure = Figure(figsize=(11, 3), layout="constrained")
    for axes, (axis, points) in zip(figure.subplots(1, len(measured), sharey=True), measured.items(), strict=True):
        sizes = [point.value for point in points]
        axes.plot(sizes, [point.plain for point in points], marker="s", label="a plain pass per head")
        axes.plot(sizes, [point.ours for point in points], marker="o", label="the engine")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel(axis)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("processor seconds")
    figure.axes[0].legend(fontsize=8)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
