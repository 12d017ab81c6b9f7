"""Estimands: the one number that a claim is about, as a function of means over examples.

An estimand has blocks of per-example numbers, and a statistic of the blocks' means. That one form is all that
resampling needs, and resampling is then a matrix product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.bootstrap import column_means
from bertsecrets.texts.metrics import Number
from bertsecrets.types import Measurement

CHOOSING, JUDGING = slice(0, None, 2), slice(1, None, 2)  # two halves of the examples, one to pick by, one to judge by
Statistic = Callable[..., Number]  # means of blocks to one value per resample, or to a single one


@dataclass(frozen=True)
class Estimand:
    """One scalar, ready to be resampled.

    Args:
        blocks: independent samples, such as one per task. The rows of a block are examples and are resampled together;
            blocks are resampled independently. NaN means that an example lacks this column; its mean leaves it out.
        statistic: takes the mean of each block ([..., k]) and returns [...].
        notes: shown beside the outcome.
        sampled: False where the examples are not a sample of anything larger, such as the paper's one sentence.
        drawn: for each block, how many of its rows a resample draws; None, or an empty tuple, for all.
        clusters: for each block, the number of each row's cluster; rows of a cluster are resampled together. None, or
            an empty tuple, where every row stands for itself.
        extreme: the statistic returns [..., parts], and the claim is about the least or the most of them. Parts are
            judged one by one, since the extreme of several noisy numbers is biased.
        nothing: the value that a published figure must exclude, and `nothing_is` what it is: by default that of a model
            that has learned nothing, such as the score of a constant answer.
        constant: the measured model gives the same answer to every example.
        refuted: why no resampling can speak for the claim, if so; a value outside the band then deviates.
    """

    blocks: tuple[Float[np.ndarray, "_ _"], ...]
    statistic: Statistic
    notes: tuple[str, ...] = ()
    sampled: bool = True
    drawn: tuple[int | None, ...] = ()
    clusters: tuple[Int[np.ndarray, " rows"] | None, ...] = ()
    extreme: Literal["least", "most"] | None = None
    nothing: float | None = None
    nothing_is: str = "that of a model that has learned nothing"
    constant: bool = False
    refuted: str = ""

    @classmethod
    def of(cls, block: Float[np.ndarray, "_ _"], statistic: Statistic, *notes: str) -> "Estimand":
        """Return an estimand of a single block."""
        return cls((block,), statistic, notes)

    @property
    def parts(self) -> Float[np.ndarray, " parts"]:
        """The statistic on the examples themselves, without resampling; a single part where it is one number."""
        return np.atleast_1d(np.asarray(self.statistic(*(column_means(b)[0] for b in self.blocks)), dtype=np.float64))

    @property
    def value(self) -> float:
        """The number on the examples themselves, without resampling."""
        return float(self.parts.max() if self.extreme == "most" else self.parts.min())


def flat(measurement: Measurement, name: str) -> Float[np.ndarray, "examples heads"]:
    """Return a sample [example, layer, head] with the heads of all layers in one row."""
    sample = measurement.sample(name)
    return sample.reshape(len(sample), -1).astype(np.float64)


def by_layer(measurement: Measurement, name: str) -> Float[np.ndarray, "examples layers"]:
    """Return a sample [example, layer, head], averaged over the heads of each layer."""
    return measurement.sample(name).mean(2, dtype=np.float64)
