"""Estimands: the one number that a claim is about, as a function of means over examples.

An estimand has blocks of per-example numbers, and a statistic of the blocks' means. That one form is all that
resampling needs, and resampling is then a matrix product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.texts.metrics import Number
from bertsecrets.types import Measurement

FEWEST = 30  # examples; with fewer, bootstrap intervals miss the truth too often
Statistic = Callable[..., Number]  # means of blocks to one value per resample, or to a single one
Extreme = Literal["least", "most"]
Clusters = Int[np.ndarray, " rows"] | None  # the number of each row's cluster, from 0


@dataclass(frozen=True)
class Estimand:
    """One scalar, ready to be resampled.

    Args:
        blocks: independent samples, such as one per task. The rows of a block are examples and are resampled together;
            blocks are resampled independently. NaN means that an example lacks this column; its mean leaves it out.
        statistic: takes the mean of each block ([..., k]) and returns [...].
        notes: shown with the outcome.
        sampled: False where the examples are not a sample of anything larger, such as the paper's own sentences; they
            are then not resampled.
        drawn: for each block, how many of its rows a resample draws; None, or an empty tuple, for all.
        clusters: for each block, the number of each row's cluster; rows of a cluster are resampled together. None, or
            an empty tuple, where every row stands for itself.
        extreme: the statistic returns [..., parts], and the claim is about the least or the most of them. Parts are
            judged one by one, since the extreme of several noisy numbers is biased.
        published: with how many published runs, such as panels of a figure, the quantity compares what was measured;
            each of them brings the spread of one more seed.
        map: the mean map that the quantity compares with a published one, head by head; the first part is then their
            correlation (see `likeness.with_ceiling`).
        of_ceiling: the share of the correlation between the seeds' own maps that the first part must reach.
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
    clusters: tuple[Clusters, ...] = ()
    extreme: Extreme | None = None
    published: int = 0
    map: Float[np.ndarray, " heads"] | None = None
    of_ceiling: float = 0.5
    nothing: float | None = None
    nothing_is: str = "that of a model that has learned nothing"
    constant: bool = False
    refuted: str = ""

    @classmethod
    def of(
        cls, block: Float[np.ndarray, "_ _"], statistic: Statistic, *notes: str, clusters: Clusters = None
    ) -> "Estimand":
        """Return an estimand of a single block."""
        return cls((block,), statistic, notes, clusters=(clusters,))

    @property
    def parts(self) -> Float[np.ndarray, " parts"]:
        """The statistic on the examples themselves, without resampling; a single part where it is one number."""
        return np.atleast_1d(np.asarray(self.statistic(*(column_means(b)[0] for b in self.blocks)), dtype=np.float64))

    @property
    def value(self) -> float:
        """The number on the examples themselves, without resampling."""
        return float(self.parts[decisive(self.parts, self.extreme)])


def decisive(parts: Float[np.ndarray, " parts"], extreme: Extreme | None) -> int:
    """Return the place of the part that decides: the most of them or the least, or the only one."""
    return int(parts.argmax() if extreme == "most" else parts.argmin())


def flat(measurement: Measurement, name: str) -> Float[np.ndarray, "examples heads"]:
    """Return a sample [example, layer, head] with the heads of all layers in one row."""
    sample = measurement.sample(name)
    return sample.reshape(len(sample), -1).astype(np.float64)


def by_layer(measurement: Measurement, name: str) -> Float[np.ndarray, "examples layers"]:
    """Return a sample [example, layer, head], averaged over the heads of each layer."""
    return measurement.sample(name).mean(2, dtype=np.float64)


def clusters_of(measurement: Measurement) -> Clusters:
    """Return the number of each row's cluster, from 0; None where every row stands for itself.

    Rows of a cluster share a text, directly or through others.
    """
    return measurement.samples.get("cluster")


def halves(rows: int, clusters: Clusters = None) -> Bool[np.ndarray, " rows"]:
    """Return which rows belong to the first of two halves that share no cluster: one to choose by, one to judge by.

    Each cluster, in the order of first rows, goes to the smaller half; so single rows alternate.

    >>> halves(4).tolist(), halves(5, np.array([0, 0, 1, 2, 3])).tolist()
    ([True, False, True, False], [True, True, False, False, True])
    """
    numbers = np.arange(rows) if clusters is None else clusters
    _, at, sizes = np.unique(numbers, return_index=True, return_counts=True)
    size = dict(zip(numbers[at].tolist(), sizes.tolist(), strict=True))
    of_cluster: dict[int, bool] = {}
    lead = 0  # of the first half, in rows
    for number in numbers[np.sort(at)].tolist():
        of_cluster[number] = lead <= 0
        lead += size[number] if lead <= 0 else -size[number]
    return np.array([of_cluster[number] for number in numbers.tolist()], dtype=bool)


def cross_fitted(
    sample: Float[np.ndarray, "examples k"], first: Bool[np.ndarray, " examples"]
) -> tuple[Float[np.ndarray, " examples"], tuple[int, int]]:
    """Return each example's number in the column that is largest on the half it is not in, and both columns.

    The largest of many noisy columns is so by luck too; on examples that had no part in the choice it is not.

    Args:
        first: which examples belong to the first half (`halves`).
    """
    by_first, by_second = (largest(column_means(sample[half])[0]) if half.any() else 0 for half in (first, ~first))
    return np.where(first, sample[:, by_second], sample[:, by_first]), (by_first, by_second)


def largest(means: Float[np.ndarray, " k"]) -> int:
    """Return the place of the largest mean; NaN never is."""
    return int(np.where(np.isnan(means), -np.inf, means).argmax())


def both(choices: Sequence[str]) -> str:
    """Return the choices of two halves as text, once if they agree.

    >>> both(["layer 1", "layer 1"]), both(["layer 1", "layer 2"])
    ('layer 1', 'layer 1 and layer 2')
    """
    return " and ".join(dict.fromkeys(choices))
