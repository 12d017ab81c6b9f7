"""Notations of heads (numbers, place and text), and the heads with the largest values in a measurement.

A head is written as (layer, head), both counted from 1 as in K19. The place of a head is its index, from 0, in the
flattened array of all heads.
"""

import numpy as np

from bertsecrets.types import Measurement


def place(measurement: Measurement, layer: int, head: int, name: str) -> int:
    """Return the place of a head in the array [layer, head] that the measurement stores as the value `name`."""
    return int(np.ravel_multi_index((layer - 1, head - 1), np.shape(measurement.value(name))))


def name_of(measurement: Measurement, place: int, name: str) -> str:
    """Return the head at this place as text. If the value `name` has one entry per layer, return the layer."""
    layer, *head = np.unravel_index(place, np.shape(measurement.value(name)))
    return f"layer {int(layer) + 1}" + (f" head {int(head[0]) + 1}" if head else "")


def top(measurement: Measurement, count: int, name: str) -> list[tuple[int, int]]:
    """Return the heads with the largest entries of the value `name`, as (layer, head)."""
    grid = np.asarray(measurement.value(name))
    layers, heads = np.unravel_index(np.argsort(-grid, axis=None, kind="stable")[:count], grid.shape)
    return list(zip((layers + 1).tolist(), (heads + 1).tolist(), strict=True))


def best_heads(measurement: Measurement, name: str) -> str:
    """Return, as text for a note, the three heads with the largest entries of the value `name`."""
    grid = np.asarray(measurement.value(name))
    best = top(measurement, 3, name)
    return ", ".join(f"layer {layer} head {head} {grid[layer - 1, head - 1]:.3f}" for layer, head in best)
