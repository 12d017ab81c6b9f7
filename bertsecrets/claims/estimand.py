"""What a claim is about: one scalar, as a function of means over examples.

An estimand has blocks of per-example numbers, and a statistic of the blocks' means. That one form is all that
resampling needs, and resampling is then a matrix product.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import column_means
from bertsecrets.texts.metrics import Number
from bertsecrets.types import Measurement

CHOOSING, JUDGING = slice(0, None, 2), slice(1, None, 2)  # two halves of the examples, one to pick by, one to judge by
Statistic = Callable[..., Number]  # means of blocks to one value per resample, or to a single one


class NotApplicableError(Exception):
    """The model cannot have this quantity; the message says why."""


@dataclass(frozen=True)
class Estimand:
    """One scalar, ready to be resampled.

    `blocks` are independent samples, such as one per task: rows of a block are examples and are drawn together, blocks
    apart from one another. NaN says that an example has nothing to give to a column, and is left out of its mean.
    `statistic` takes the mean of each block ([..., k]) and gives [...]. `notes` stand beside the outcome. `sampled` is
    False where the examples stand for nothing but themselves, as the paper's one sentence does. `drawn` says of each
    block how many of its rows a resample draws; as many as it has, where None or nothing is said. `refuted` is the
    reason why nothing that resampling says can speak for the claim; a value outside the band then deviates.
    """

    blocks: tuple[Float[np.ndarray, "_ _"], ...]
    statistic: Statistic
    notes: tuple[str, ...] = ()
    sampled: bool = True
    drawn: tuple[int | None, ...] = ()
    refuted: str = ""

    @classmethod
    def of(cls, block: Float[np.ndarray, "_ _"], statistic: Statistic, *notes: str) -> "Estimand":
        """Return an estimand of a single block."""
        return cls((block,), statistic, notes)

    @property
    def value(self) -> float:
        """The scalar on the examples as they are."""
        return float(self.statistic(*(column_means(block)[0] for block in self.blocks)))


def flat(measurement: Measurement, name: str) -> Float[np.ndarray, "examples heads"]:
    """Return a sample [example, layer, head] with the heads of all layers side by side."""
    sample = measurement.sample(name)
    return sample.reshape(len(sample), -1).astype(np.float64)


def by_layer(measurement: Measurement, name: str) -> Float[np.ndarray, "examples layers"]:
    """Return a sample [example, layer, head], averaged over the heads of each layer."""
    return measurement.sample(name).mean(2, dtype=np.float64)
