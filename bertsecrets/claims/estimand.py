"""Estimands: the numbers that claims are about, as functions of means over examples.

An estimand consists of blocks of per-example values and a statistic of the block means. This form allows the bootstrap
to be computed as a matrix product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.metrics import Number
from bertsecrets.types import Measurement

Statistic = Callable[..., Number]  # maps block means to one value per resample, or to a single value
Extreme = Literal["least", "most"]
Clusters = Int[np.ndarray, " _"] | None  # the number of each row's cluster, from 0


@dataclass(frozen=True)
class Estimand:
    """A scalar that can be resampled.

    Args:
        blocks: Arrays with one row per example. Different blocks are independent samples, such as one per task. The
            bootstrap draws whole rows. NaN marks a missing value and is excluded from the column mean.
        statistic: Function that takes the mean of each block ([..., k]) and returns the quantity ([...]).
        notes: Notes shown next to the outcome.
        slow_note: Slow function that computes an additional note, if any.
        sampled: Whether to resample the examples. False if they are the whole population, such as the paper's own
            sentences.
        drawn: For each block, the number of rows that a resample draws, or None for all rows. If `drawn` is empty, all
            rows of every block are drawn.
        clusters: For each block, the cluster index of each row, or None if the rows are independent. Rows of the same
            cluster are resampled together. If `clusters` is empty, all rows are independent.
        extreme: Whether the claim is about the smallest or the largest part of a statistic that returns several parts
            ([..., parts]). Each part is judged separately, because the extreme of several noisy estimates is biased.
        published: Number of published runs (such as panels of a figure) that the quantity compares the model with. Each
            published run adds the variance of one more seed.
        map: The model's mean map, if the quantity correlates it with a published map across heads. This correlation is
            then the first part (see `likeness.with_ceiling`).
        of_ceiling: The first part must exceed this fraction of the correlation between two seeds' maps.
        average: Functions that compute the parts from the mean of all seeds' maps, if this mean is judged (see
            `likeness.averaged`).
        nothing: Value that the interval must exclude before a claim can be `compatible` with a published figure. This
            is usually the value of a model that has learned nothing, such as the score of a constant answer.
            `nothing_is` describes the value.
        constant: Whether the measured model gives the same answer to every example.
        refuted: Reason why no resample could support the claim, if any. The claim then deviates whenever the value lies
            outside the band.
        unmet: Reason why the value says nothing about the claim, if any; for example, fine-tuning changed nothing.
        selection: The selection of columns on which the estimand is based, if any (see `with_same_selection`).
    """

    blocks: tuple[Float[np.ndarray, "_ _"], ...]
    statistic: Statistic
    notes: tuple[str, ...] = ()
    slow_note: Callable[[], str] | None = None
    sampled: bool = True
    drawn: tuple[int | None, ...] = ()
    clusters: tuple[Clusters, ...] = ()
    extreme: Extreme | None = None
    published: int = 0
    map: Float[np.ndarray, " heads"] | None = None
    of_ceiling: float = 0.5
    average: "OfMap | None" = None
    nothing: float | None = None
    nothing_is: str = "the value of a model that has learned nothing"
    constant: bool = False
    refuted: str = ""
    unmet: str = ""
    selection: "ColumnSelection | None" = None

    @classmethod
    def from_block(
        cls, block: Float[np.ndarray, "_ _"], statistic: Statistic, *notes: str, clusters: Clusters = None, **more: Any
    ) -> "Estimand":
        """Return an estimand of a single block; `more` sets other fields, such as `extreme`."""
        return cls((block,), statistic, notes, clusters=(clusters,), **more)

    @property
    def parts(self) -> Float[np.ndarray, " parts"]:
        """The statistic on the original examples, as an array; a scalar becomes an array with a single element."""
        return np.atleast_1d(np.asarray(self.statistic(*(column_means(b)[0] for b in self.blocks)), dtype=np.float64))

    @property
    def value(self) -> float:
        """The point estimate, computed on the original examples."""
        return float(self.parts[decisive(self.parts, self.extreme)])


@dataclass(frozen=True)
class OfMap:
    """Functions that compute the parts of an estimand from a map.

    Args:
        to_map: Function that computes the map from the mean of the block.
        parts: Function that computes reference values from a measured map, and returns a function that computes the
            parts of any map relative to these reference values.
    """

    to_map: Callable[[np.ndarray], np.ndarray]
    parts: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]


@dataclass(frozen=True)
class ColumnSelection:
    """Columns (such as heads) that are selected on some of the rows and judged on the other rows.

    Args:
        means: For each column to select, the means of all candidates. The candidate with the largest mean is selected.
        build: Function that takes the indices of the selected columns and returns the estimand for these columns.
    """

    means: tuple[Float[np.ndarray, " candidates"], ...]
    build: Callable[[Sequence[int]], Estimand]

    @property
    def estimand(self) -> Estimand:
        """The estimand for the selected columns."""
        return replace(self.build([best_index(means) for means in self.means]), selection=self)

    @classmethod
    def joined(cls, estimands: Sequence[Estimand], join: Callable[[list[Estimand]], Estimand]) -> Estimand:
        """Combine several estimands into one. The result has a `selection` only if all of them have one."""
        selections = [estimand.selection for estimand in estimands if estimand.selection is not None]
        if len(selections) < len(estimands):
            return join(list(estimands))

        def build(chosen: Sequence[int]) -> Estimand:
            rest = iter(chosen)
            return join([part.build([next(rest) for _ in part.means]) for part in selections])

        return cls(tuple(means for part in selections for means in part.means), build).estimand


def with_same_selection(estimands: Sequence[Estimand]) -> list[Estimand]:
    """Return the estimands for the same columns in every seed: those with the largest mean across seeds.

    If an estimand has no selection, return all estimands unchanged.
    """
    selections = [estimand.selection for estimand in estimands if estimand.selection is not None]
    if len(selections) < len(estimands):
        return list(estimands)
    by_column = zip(*(selection.means for selection in selections), strict=True)
    chosen = [best_index(np.mean(of_seeds, axis=0)) for of_seeds in by_column]
    return [selection.build(chosen) for selection in selections]


def decisive(parts: Float[np.ndarray, " parts"], extreme: Extreme | None) -> int:
    """Return the index of the part that is the quantity's value: the largest, the smallest or the only part."""
    return int(parts.argmax() if extreme == "most" else parts.argmin())


def flat(measurement: Measurement, name: str) -> Float[np.ndarray, "examples heads"]:
    """Return a sample [example, layer, head], flattened to one row of heads per example."""
    sample = measurement.sample(name)
    return sample.reshape(len(sample), -1).astype(np.float64)


def by_layer(measurement: Measurement, name: str) -> Float[np.ndarray, "examples layers"]:
    """Return a sample [example, layer, head], averaged over the heads of each layer."""
    return measurement.sample(name).mean(2, dtype=np.float64)


def lower_minus_upper(measurement: Measurement, name: str) -> Estimand:
    """Return a sample's mean over the lower half of the layers minus its mean over the upper half."""
    layers = by_layer(measurement, name)
    half = layers.shape[1] // 2
    if not half:
        raise NotApplicableError("a model with only one layer cannot be split into halves")
    note = "from layer 1: " + ", ".join(f"{value:.2f}" for value in layers.mean(0))
    difference = lambda mean: mean[..., :half].mean(-1) - mean[..., -half:].mean(-1)  # noqa: E731
    return Estimand.from_block(layers, difference, note, clusters=clusters_of(measurement))


def clusters_of(measurement: Measurement) -> Clusters:
    """Return the cluster index of each row, from 0, or None if no rows share a text.

    Rows that share a text belong to the same cluster.
    """
    return measurement.samples.get("cluster")


def halves(rows: int, clusters: Clusters = None) -> Bool[np.ndarray, " rows"]:
    """Split rows in half for cross-fitting without splitting clusters, and return the mask of the first half.

    Clusters are taken in the order of their first rows. Each cluster goes to the half that has fewer rows so far, so
    independent rows alternate between the halves.

    >>> halves(4).tolist(), halves(5, np.array([0, 0, 1, 2, 3])).tolist()
    ([True, False, True, False], [True, True, False, False, True])
    """
    numbers = np.arange(rows) if clusters is None else clusters
    sizes, lead = np.bincount(numbers), 0  # the lead is the number of rows by which the first half is larger
    in_first = np.zeros(len(sizes), dtype=bool)
    for number in dict.fromkeys(numbers.tolist()):
        in_first[number] = lead <= 0
        lead += sizes[number] if lead <= 0 else -sizes[number]
    return in_first[numbers]


def each_pair(operation: np.ufunc, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Apply an operation such as `np.subtract` to each pair of a number in `first` [..., n] and one in `second`."""
    return operation(first[..., :, None], second[..., None, :]).reshape(*first.shape[:-1], -1)


def cross_fitted(
    sample: Float[np.ndarray, "examples k"], first: Bool[np.ndarray, " examples"]
) -> Float[np.ndarray, " examples"]:
    """Return each half's values in the column that has the largest mean on the other half.

    Noise biases the mean of a selected column upwards on the half that selected it, but not on the other half.

    Args:
        first: Mask of the examples in the first half (`halves`).
    """
    return of_other_half(sample, first, *map(best_index, half_means(sample, first)))


def half_means(
    sample: Float[np.ndarray, "examples k"], first: Bool[np.ndarray, " examples"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return the column means of each half. If a half is empty, its means are 0."""
    halved = (column_means(sample[half])[0] if half.any() else np.zeros(sample.shape[1]) for half in (first, ~first))
    return next(halved), next(halved)


def of_other_half(
    sample: Float[np.ndarray, "examples k"], first: Bool[np.ndarray, " examples"], by_first: int, by_second: int
) -> Float[np.ndarray, " examples"]:
    """Return each half's values in the column that was selected on the other half."""
    return np.where(first, sample[:, by_second], sample[:, by_first])


def best_index(means: Float[np.ndarray, " k"]) -> int:
    """Return the index of the largest mean, ignoring NaN."""
    return int(np.where(np.isnan(means), -np.inf, means).argmax())


def both(choices: Sequence[str]) -> str:
    """Return the selections of the two halves as text. Equal selections are named only once.

    >>> both(["layer 1", "layer 1"]), both(["layer 1", "layer 2"])
    ('layer 1', 'layer 1 and layer 2')
    """
    return " and ".join(dict.fromkeys(choices))
