"""Charts as data. The report draws each measurement's charts next to the corresponding figure of K19.

In captions, `{who}` is a placeholder for the measured subject.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bertsecrets.texts.published import published_figures
from bertsecrets.texts.tasks import TASKS, Task
from bertsecrets.types import Measurement

PerHead = Callable[[np.ndarray], np.ndarray]  # maps the column means of a block to one number per head or layer


@dataclass(frozen=True)
class HeadMap:
    """A heat map with one value per head. If `signed` is True, colours diverge around 0 to show gains and losses.

    If the rows are not layers, `rows` contains their names. The heads in `marked` are drawn with a dot.
    """

    caption: str
    values: Float[np.ndarray, "rows heads"]
    unit: str
    title: str = ""
    low: float = 0.0
    high: float = 1.0
    signed: bool = False
    rows: Sequence[str] = ()
    marked: Bool[np.ndarray, "rows heads"] | None = None


@dataclass(frozen=True)
class RankedHeads:
    """All heads, sorted by value, with 95 % intervals over examples. `heads` is the number of heads per layer."""

    caption: str
    block: Float[np.ndarray, "examples k"]
    statistic: PerHead
    heads: int
    unit: str


@dataclass(frozen=True)
class LayerBars:
    """One bar per layer, showing the gain or loss with its 95 % interval over examples."""

    caption: str
    block: Float[np.ndarray, "examples k"]
    statistic: PerHead
    unit: str
    title: str = ""


@dataclass(frozen=True)
class Lines:
    """A line plot with layers or another quantity on the horizontal axis.

    Attributes:
        lines: Mapping from each line's name to one value per layer, starting with layer 1, or to points (x, y).
        x: Title of the horizontal axis.
        from_zero: Whether the vertical axis starts at 0.
        baseline: Value marked by a dashed line.
    """

    caption: str
    lines: Mapping[str, Float[np.ndarray, " layers"] | Sequence[tuple[float, float]]]
    unit: str
    x: str = "layer"
    from_zero: bool = True
    baseline: float | None = None


@dataclass(frozen=True)
class Shares:
    """A chart of class shares in percent, with one stacked bar per row, such as a layer or a source."""

    caption: str
    shares: Mapping[str, Float[np.ndarray, " classes"]]
    names: Sequence[str]
    row: str = "source"


@dataclass(frozen=True)
class ClassMap:
    """A chart of all heads, coloured by most frequent class. The colour is paler if other classes are also frequent."""

    caption: str
    majority: Int[np.ndarray, "layers heads"]
    agreement: Float[np.ndarray, "layers heads"]
    names: Sequence[str]


@dataclass(frozen=True)
class HeadDistances:
    """A chart of all heads as points, with similar heads close together. `heads` is the number of heads per layer."""

    caption: str
    distances: Float[np.ndarray, "all_heads all_heads"]
    heads: int


Figure = HeadMap | RankedHeads | LayerBars | Lines | Shares | ClassMap | HeadDistances


# ---------------------------------------------------------------------- next to the paper's figures


@dataclass(frozen=True)
class PaperFigure:
    """The number, title and introduction of the figure in K19 that a measure replicates."""

    number: str
    title: str
    intro: str


@dataclass(frozen=True)
class Repeats:
    """Measurements that differ only in the seed, for one model and task."""

    measurements: Sequence[Measurement]

    @property
    def first(self) -> Measurement:
        """The measurement with the lowest seed."""
        return self.measurements[0]

    @property
    def task(self) -> Task:
        """The task."""
        return TASKS[self.first.subject.task]

    def mean(self, name: str) -> np.ndarray:
        """Return a value averaged across seeds."""
        values = [np.asarray(measurement.value(name), np.float64) for measurement in self.measurements]
        return np.asarray(np.mean(values, axis=0))

    def published(self, name: str) -> Any:
        """Return a value that K19 published for the task (`expected/figures.json`), or None if K19 omits the task."""
        return published_figures()[name].get(self.task.folder)


def published_and_measured(
    published: Any, measured: np.ndarray, unit: str, captions: tuple[str, str], rows: Sequence[str] = ()
) -> Iterator[HeadMap]:
    """Yield the published map, if there is one, and the measured map, both on one colour scale that starts at 0."""
    maps = [measured] if published is None else [np.array(published, dtype=np.float64), measured]
    high = max(float(np.nanmax(values)) for values in maps)
    for caption, values in zip(captions[-len(maps) :], maps, strict=True):
        yield HeadMap(caption, values, unit, high=high, rows=rows)
