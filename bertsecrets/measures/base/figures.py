"""Figures as data, which the report draws. `{who}` in a caption stands for the measured subject."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

PerHead = Callable[[np.ndarray], np.ndarray]  # from the means of a block to one number per head or layer


@dataclass(frozen=True)
class HeadMap:
    """A number for every head, as a heat map; `signed` ones are coloured by gain and loss around 0."""

    caption: str
    values: Float[np.ndarray, "layers heads"]
    unit: str
    title: str = ""
    low: float = 0.0
    high: float = 1.0
    signed: bool = False


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
class LayerCurves:
    """One line per name over the layers."""

    caption: str
    curves: Mapping[str, Float[np.ndarray, " layers"]]
    unit: str


@dataclass(frozen=True)
class PruningCurves:
    """One line per name over how much is pruned, in percent: points (percent, value)."""

    caption: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    pruned: str
    unit: str


@dataclass(frozen=True)
class StackedShares:
    """One bar per layer, made up of the shares of each class."""

    caption: str
    shares: Mapping[str, Float[np.ndarray, " layers"]]


@dataclass(frozen=True)
class SharesBeside:
    """One bar for K19's figure 2 and one per reading of it, made up of the shares of each class, in percent."""

    caption: str
    shares: Mapping[str, Float[np.ndarray, " classes"]]
    names: Sequence[str]
    task: str


@dataclass(frozen=True)
class ClassMap:
    """Every head in the colour of its most frequent class; the stronger, the more of its maps have that class."""

    caption: str
    majority: Int[np.ndarray, "layers heads"]
    agreement: Float[np.ndarray, "layers heads"]
    names: Sequence[str]


@dataclass(frozen=True)
class HeadDistances:
    """Every head as a point, heads that attend alike close to each other; `heads` are those of a layer."""

    caption: str
    distances: Float[np.ndarray, "all_heads all_heads"]
    heads: int


Figure = (
    HeadMap
    | RankedHeads
    | LayerBars
    | LayerCurves
    | PruningCurves
    | StackedShares
    | SharesBeside
    | ClassMap
    | HeadDistances
)
