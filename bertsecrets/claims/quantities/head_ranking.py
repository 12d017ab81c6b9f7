"""Functions that convert heads between numbers, places and text, or find the heads with the largest values.

A head is written as (layer, head), both counted from 1 as in K19. The place of a head is its index, from 0, in the
flattened array of all heads.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from bertsecrets.claims.quantity import OneOrMore
from bertsecrets.errors import NotApplicableError
from bertsecrets.types import Measurement

Heads = OneOrMore[Annotated[Sequence[PositiveInt], Field(min_length=2, max_length=2)]]


def place(measurement: Measurement, layer: int, head: int, name: str) -> int:
    """Return the index of a head in the measurement's flattened array `name`, whose axes are layer and head."""
    layers, heads = np.shape(measurement.value(name))
    if layer > layers or head > heads:
        raise NotApplicableError(f"the model has {layers} x {heads} heads, so it has no head {head} in layer {layer}")
    return (layer - 1) * heads + head - 1


def name_of(measurement: Measurement, place: int, name: str) -> str:
    """Return `layer L head H` for the index `place`, or `layer L` if the array `name` has only one value per layer."""
    layer, *head = np.unravel_index(place, np.shape(measurement.value(name)))
    return f"layer {int(layer) + 1}" + (f" head {int(head[0]) + 1}" if head else "")


def top(measurement: Measurement, count: int, name: str) -> list[tuple[int, int]]:
    """Return the heads with the largest values in the array `name`, as (layer, head)."""
    grid = np.asarray(measurement.value(name))
    layers, heads = np.unravel_index(np.argsort(-grid, axis=None, kind="stable")[:count], grid.shape)
    return list(zip((layers + 1).tolist(), (heads + 1).tolist(), strict=True))


def best_heads(measurement: Measurement, name: str) -> str:
    """Return a note that lists the three heads with the largest values in the array `name`."""
    grid = np.asarray(measurement.value(name))
    best = top(measurement, 3, name)
    return ", ".join(f"layer {layer} head {head} {grid[layer - 1, head - 1]:.3f}" for layer, head in best)
