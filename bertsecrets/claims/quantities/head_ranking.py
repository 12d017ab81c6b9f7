"""Heads by number, place and rank.

A head is written as (layer, head), both counted from 1 as in K19. Its place is its index, from 0, in the flattened
array of all heads.
"""

import numpy as np

from bertsecrets.types import Measurement


def place(measurement: Measurement, layer: int, head: int, name: str) -> int:
    """Return the place of a head in the measurement's value with this name, [layer, head]."""
    return int(np.ravel_multi_index((layer - 1, head - 1), np.shape(measurement.value(name))))


def name_of(measurement: Measurement, place: int, name: str) -> str:
    """Return the head at a place as text, or the layer if the value has one entry per layer."""
    layer, *head = np.unravel_index(place, np.shape(measurement.value(name)))
    return f"layer {int(layer) + 1}" + (f" head {int(head[0]) + 1}" if head else "")


def top(measurement: Measurement, count: int, name: str) -> list[tuple[int, int]]:
    """Return (layer, head) of the largest entries of the value with this name."""
    grid = np.asarray(measurement.value(name))
    layers, heads = np.unravel_index(np.argsort(-grid, axis=None, kind="stable")[:count], grid.shape)
    return list(zip((layers + 1).tolist(), (heads + 1).tolist(), strict=True))


def best_heads(measurement: Measurement, name: str) -> str:
    """Return the three heads with the largest entries of the value with this name as text, for a note."""
    grid = np.asarray(measurement.value(name))
    best = top(measurement, 3, name)
    return ", ".join(f"layer {layer} head {head} {grid[layer - 1, head - 1]:.3f}" for layer, head in best)
