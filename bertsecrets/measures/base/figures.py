"""Figures as data, which the report draws: what a measurement shows, and the figure of K19 next to it.

`{who}` in a caption stands for the measured subject.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.texts.published import published_figures
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

PerHead = Callable[[np.ndarray], np.ndarray]  # from the means of a block to one number per head or layer


@dataclass(frozen=True)
class HeadMap:
    """A number for every head, as a heat map; `signed` ones are coloured by gain and loss around 0.

    `rows` are the names of the rows if they are not layers.
    """

    caption: str
    values: Float[np.ndarray, "rows heads"]
    unit: str
    title: str = ""
    low: float = 0.0
    high: float = 1.0
    signed: bool = False
    rows: Sequence[str] = ()


@dataclass(frozen=True)
class RankedHeads:
    """Every head's number with its 95 % interval over examples, the smallest first; `heads` are those of a layer."""

    caption: str
    block: Float[np.ndarray, "examples k"]
    statistic: PerHead
    heads: int
    unit: str


@dataclass(frozen=True)
class LayerBars:
    """One bar per layer, up for a gain and down for a loss, with its 95 % interval over examples."""

    caption: str
    block: Float[np.ndarray, "examples k"]
    statistic: PerHead
    unit: str
    title: str = ""


@dataclass(frozen=True)
class Lines:
    """One line per name: a number for each layer, or points over another axis.

    Attributes:
        lines: by name, a number per layer (from 1), or points (x, y).
        x: title of the horizontal axis.
        from_zero: whether the vertical axis begins at 0.
        baseline: a number that a dashed line marks.
    """

    caption: str
    lines: Mapping[str, Float[np.ndarray, " layers"] | Sequence[tuple[float, float]]]
    unit: str
    x: str = "layer"
    from_zero: bool = True
    baseline: float | None = None


@dataclass(frozen=True)
class Shares:
    """One bar per row, such as a layer or a source, stacked from the shares of the classes, in percent."""

    caption: str
    shares: Mapping[str, Float[np.ndarray, " classes"]]
    names: Sequence[str]
    row: str = "source"


@dataclass(frozen=True)
class ClassMap:
    """Every head in the colour of its most frequent class; paler where fewer of its maps have that class."""

    caption: str
    majority: Int[np.ndarray, "layers heads"]
    agreement: Float[np.ndarray, "layers heads"]
    names: Sequence[str]


@dataclass(frozen=True)
class HeadDistances:
    """Every head as a point, close to the heads that attend similarly; `heads` are those of a layer."""

    caption: str
    distances: Float[np.ndarray, "all_heads all_heads"]
    heads: int


Figure = HeadMap | RankedHeads | LayerBars | Lines | Shares | ClassMap | HeadDistances


# ---------------------------------------------------------------------- next to the paper's


@dataclass(frozen=True)
class PaperFigure:
    """A figure of K19 that a measure replicates: its number, a title, and what it shows."""

    number: str
    title: str
    intro: str


@dataclass(frozen=True)
class Repeats:
    """Measurements of one model on one task that differ only in their seeds."""

    measurements: Sequence[Measurement]

    @property
    def first(self) -> Measurement:
        """The measurement of the lowest seed."""
        return self.measurements[0]

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.first.subject.task

    @property
    def metric(self) -> str:
        """The metric of the task."""
        return TASKS[self.task].metric

    def mean(self, name: str) -> np.ndarray:
        """Return the mean of a value over seeds."""
        return np.asarray(np.mean([np.asarray(one.value(name), np.float64) for one in self.measurements], axis=0))

    def published(self, name: str) -> Any:
        """Return one of K19's figures (`expected/figures.json`) on the task."""
        return published_figures()[name][TASKS[self.task].folder]


def pair(
    theirs: Any, ours: np.ndarray, unit: str, captions: tuple[str, str], rows: Sequence[str] = ()
) -> Iterator[HeadMap]:
    """Yield the paper's map and ours on one colour scale from 0.

    Args:
        captions: of the paper's map and of this suite's.
    """
    published = np.array(theirs, dtype=np.float64)
    high = float(max(np.nanmax(published), np.nanmax(ours)))
    for caption, values in zip(captions, (published, ours), strict=True):
        yield HeadMap(caption, values, unit, high=high, rows=rows)
