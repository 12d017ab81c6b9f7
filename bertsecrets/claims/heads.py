"""Heads by number, place and rank. A head is (layer, head), both from 1, as K19 counts; its place is that in a row."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.types import Measurement


@dataclass(frozen=True)
class Ranked:
    """One head among all: layer and head from 1; `rank` from 1 for the largest value."""

    layer: int
    head: int
    value: float
    rank: int


def ranking(grid: Float[np.ndarray, "layers heads"]) -> list[Ranked]:
    """Return all heads, the largest value first."""
    order = np.argsort(-grid, axis=None, kind="stable")
    places = zip(*np.unravel_index(order, grid.shape), strict=True)
    return [
        Ranked(int(layer) + 1, int(head) + 1, float(grid[layer, head]), rank)
        for rank, (layer, head) in enumerate(places, start=1)
    ]


def place(measurement: Measurement, layer: int, head: int, name: str) -> int:
    """Return where a head stands among the heads of all layers side by side, in the value of this name."""
    return int(np.ravel_multi_index((layer - 1, head - 1), np.shape(measurement.value(name))))


def name_of(measurement: Measurement, place: int, name: str) -> str:
    """Return a head in words by its place, or a whole layer where the value of this name has one entry per layer."""
    layer, *head = np.unravel_index(place, np.shape(measurement.value(name)))
    return f"layer {int(layer) + 1}" + (f" head {int(head[0]) + 1}" if head else "")


def top(measurement: Measurement, count: int, name: str) -> list[tuple[int, int]]:
    """Return the heads of the largest values."""
    return [(ranked.layer, ranked.head) for ranked in ranking(np.asarray(measurement.value(name)))[:count]]


def best_heads(measurement: Measurement, name: str, count: int = 3) -> str:
    """Return the heads of the largest values in words, for a note."""
    best = ranking(np.asarray(measurement.value(name)))[:count]
    return ", ".join(f"layer {ranked.layer} head {ranked.head} {ranked.value:.3f}" for ranked in best)
