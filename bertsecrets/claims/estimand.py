"""What a quantity is: which measurements it reads, and how one scalar follows from them.

Everything is a function of means over examples: blocks of per-example numbers, and a statistic of the blocks' means.
That one form is all that resampling needs, and resampling is then a matrix product.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from bertsecrets.types import Initialisation, Measurement

Number = np.ndarray | np.floating  # one value per resample, or a single one
Statistic = Callable[..., Number]


class NotApplicableError(Exception):
    """The model cannot have this quantity; the message says why."""


@dataclass(frozen=True)
class Reading:
    """One scalar, ready to be resampled.

    `blocks` are independent samples, such as one per task: rows of a block are examples and are drawn together, blocks
    apart from one another. NaN says that an example has nothing to give to a column, and is left out of its mean.
    `statistic` takes the mean of each block ([..., k]) and gives [...]. `notes` stand beside the outcome. `sampled` is
    False where the examples stand for nothing but themselves, as the paper's one sentence does. `drawn` says of each
    block how many of its rows a resample draws; as many as it has, where None or nothing is said.
    """

    blocks: tuple[Float[np.ndarray, "_ _"], ...]
    statistic: Statistic
    notes: tuple[str, ...] = ()
    sampled: bool = True
    drawn: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, block: Float[np.ndarray, "_ _"], statistic: Statistic, *notes: str) -> "Reading":
        """A reading of a single block."""
        return cls((block,), statistic, notes)

    @property
    def value(self) -> float:
        """The scalar on the examples as they are."""
        return float(self.statistic(*(column_means(block, np.ones((1, len(block))))[0] for block in self.blocks)))


def column_means(
    block: Float[np.ndarray, "examples k"], weights: Float[np.ndarray, "draws examples"]
) -> Float[np.ndarray, "draws k"]:
    """The weighted mean of each column over the examples that are not NaN there; NaN where none is."""
    present = ~np.isnan(block)
    if present.all():
        return weights @ block / weights.sum(1, keepdims=True)
    total, count = weights @ np.where(present, block, 0), weights @ present.astype(float)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


@dataclass(frozen=True)
class Need:
    """A measurement that a quantity reads, on one task or several.

    `whose` is the initialisation: the claim's `own`, the one it is held `against`, or a fixed one. `options` are the
    measure's, besides those of the claim. Without `tasks` it is the claim's own task; with them, each of these; with
    `least` too, those of them whose data are there, if they are at least so many.
    """

    measure: str
    whose: Literal["own", "against"] | Initialisation = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    least: int = 0


@dataclass(frozen=True)
class Quantity:
    """A named way to read a scalar.

    `read` takes the measurements of `needs` in their order (and, of each, in the order of its tasks), the claim's task,
    and the claim's `arguments` by name.
    """

    name: str
    unit: str
    needs: tuple[Need, ...]
    read: Callable[..., Reading]


def flat(found: Measurement, name: str) -> Float[np.ndarray, "examples heads"]:
    """A sample [example, layer, head] with the heads of all layers side by side."""
    return found.samples[name].reshape(len(found.samples[name]), -1).astype(np.float64)


def by_layer(found: Measurement, name: str) -> Float[np.ndarray, "examples layers"]:
    """A sample [example, layer, head], averaged over the heads of each layer."""
    return found.samples[name].mean(2, dtype=np.float64)
