"""Heads by number, place and rank.

A head is written as (layer, head), both counted from 1 as in K19. Its place is its index, from 0, in the flattened
array of all heads.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.types import Measurement


@dataclass(frozen=True)
class Ranked:
    """A head with its value. Layer and head are counted from 1, and rank 1 is the largest value."""

    layer: int
    head: int
    value: float
    rank: int


def ranking(grid: Float[np.ndarray, "layers heads"]) -> list[Ranked]:
    """Return all heads, sorted by decreasing value.

    >>> ranking(np.array([[0.1, 0.4], [0.3, 0.2]]))[0]
    Ranked(layer=1, head=2, value=0.4, rank=1)
    """
    order = np.argsort(-grid, axis=None, kind="stable")
    places = zip(*np.unravel_index(order, grid.shape), strict=True)
    return [
        Ranked(int(layer) + 1, int(head) + 1, float(grid[layer, head]), rank)
        for rank, (layer, head) in enumerate(places, start=1)
    ]


def place(measurement: Measurement, layer: int, head: int, name: str) -> int:
    """Return the place of a head in the measurement's value of this name, [layer, head]."""
    return int(np.ravel_multi_index((layer - 1, head - 1), np.shape(measurement.value(name))))


def name_of(measurement: Measurement, place: int, name: str) -> str:
    """Return the head at a place as text, or the layer if the value has one entry per layer."""
    layer, *head = np.unravel_index(place, np.shape(measurement.value(name)))
    return f"layer {int(layer) + 1}" + (f" head {int(head[0]) + 1}" if head else "")


def top(measurement: Measurement, count: int, name: str) -> list[tuple[int, int]]:
    """Return (layer, head) of the largest values of this name."""
    return [(ranked.layer, ranked.head) for ranked in ranking(np.asarray(measurement.value(name)))[:count]]


def best_heads(measurement: Measurement, name: str, count: int = 3) -> str:
    """Return the heads with the largest values of this name as text, for a note."""
    best = ranking(np.asarray(measurement.value(name)))[:count]
    return ", ".join(f"layer {ranked.layer} head {ranked.head} {ranked.value:.3f}" for ranked in best)
