"""Classes of attention maps from a file, with class probabilities under each reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.errors import UserError, excerpt
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, read_report, readings_of
from bertsecrets.patterns.readings import READINGS
from bertsecrets.reading import read_npy
from instruments.annotation.map_set import MapSet
from instruments.archives import read_members, unpacking
from instruments.classifiers.map_features import feature_table

ARRAYS = ("maps", "lengths", "boundary")
LIMIT = 8 * 2**30  # maximum size of an array in bytes
SUM_TOLERANCE = 0.01  # tolerance of row sums; half precision stays within 0.005
SHORTEST = 2  # minimum number of tokens, because a single token can only attend to itself
ADVICE = (
    "give an .npz file with maps [n, L, L], padded with zeros, lengths [n] and boundary [n], "
    "the position of the second text's first token, or the length if there is one text"
)
Classes = dict[str, dict[str, object]]  # keyed by reading, each with `class`, and `probabilities` by class


@dataclass(frozen=True)
class GivenMaps:
    """Attention maps from a file. Rows are queries, columns are keys, and `boundary` is as in `MapStack`."""

    maps: Float[np.ndarray, "maps tokens tokens"]
    lengths: Int[np.ndarray, " maps"]
    boundary: Int[np.ndarray, " maps"]

    @classmethod
    def read(cls, path: Path) -> "GivenMaps":
        """Return the maps in an .npz file.

        Raises:
            UserError: If the file cannot be read, lacks an array, or does not contain attention maps. Messages number
                maps and rows from 0.
        """
        with unpacking(path, ADVICE):
            if not path.exists():
                raise UserError(f"{path} does not exist: {ADVICE}")
            wanted = {f"{name}.npy": name for name in ARRAYS}
            members = dict(read_members(path, wanted.__contains__, LIMIT))
        arrays = {}
        for file, name in wanted.items():
            if file not in members:
                raise UserError(f"{path} has no array {name!r}: {ADVICE}")
            try:
                arrays[name] = read_npy(members[file])
            except ValueError as error:
                raise UserError(f"{path}: {name} cannot be read ({excerpt(error, 150)}): {ADVICE}") from error
        problem = _shape_problem(arrays)
        if not problem:
            given = cls(
                arrays["maps"].astype(np.float32),
                arrays["lengths"].astype(np.int64),
                arrays["boundary"].astype(np.int64),
            )
            problem = given._length_problem() or given._value_problem()
        if problem:
            raise UserError(f"{path}: {problem}")
        return given

    def __len__(self) -> int:
        return len(self.maps)

    def values_of(self, place: int) -> Float[np.ndarray, "length length"]:
        """Return a map without its padding."""
        length = self.lengths[place]
        return self.maps[place, :length, :length]

    @property
    def causal(self) -> int:
        """The number of causal maps, in which no token attends to a later token."""
        return sum(not np.triu(self.values_of(place), 1).any() for place in range(len(self)))

    def _length_problem(self) -> str | None:
        """Return a message if a length or boundary is out of range, or None."""
        tokens, lengths, boundary = self.maps.shape[1], self.lengths, self.boundary
        for place in np.flatnonzero((lengths < SHORTEST) | (lengths > tokens)):
            return f"map {place} has the length {lengths[place]}: give {SHORTEST} to {tokens}, the size of the maps"
        for place in np.flatnonzero((boundary < 1) | (boundary > lengths)):
            return f"map {place} has the boundary {boundary[place]}: give 1 to {lengths[place]}, the map's length"
        return None

    def _value_problem(self) -> str | None:
        """Return a message if any values are not attention weights, or None."""
        for place in range(len(self)):
            values = self.values_of(place).astype(np.float64)
            infinite, negative = ~np.isfinite(values).all(1), (values < 0).any(1)
            if infinite.any():
                return f"map {place} has a weight that is not a number in row {infinite.argmax()}: measure it again"
            if negative.any():
                return f"map {place} has a negative weight in row {negative.argmax()}: give weights after the softmax"
            sums = values.sum(1)
            for row in np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE):
                total = f"row {row} sums to {sums[row]:.3g} instead of 1"
                return f"map {place}: {total}: give weights after the softmax"
            if np.count_nonzero(self.maps[place]) > np.count_nonzero(values):
                length = len(values)
                return f"map {place} has weights beyond its length, {length}: pad it with zeros or correct its length"
        return None


def _shape_problem(arrays: Mapping[str, np.ndarray]) -> str | None:
    maps = arrays["maps"]
    if maps.ndim != 3 or maps.shape[1] != maps.shape[2] or maps.dtype.kind not in "fiu":
        return f"maps has the shape {maps.shape} and the type {maps.dtype}, instead of numbers [n, L, L]"
    if not len(maps):
        return "maps is empty: give at least one map"
    for name in ARRAYS[1:]:
        if arrays[name].shape != (len(maps),) or arrays[name].dtype.kind not in "iu":
            return (
                f"{name} has the shape {arrays[name].shape} and the type {arrays[name].dtype} instead of "
                f"whole numbers [{len(maps)}], one per map"
            )
    return None


def predicted_classes(maps: MapSet) -> dict[str, list[str]]:
    """Return each map's predicted class under each built-in reading.

    Raises:
        UserError: If a classifier is missing or damaged.
    """
    return {
        reading: [CLASSES[place] for place in rows.argmax(1).tolist()] for reading, rows in _probabilities(maps).items()
    }


def least_sure(maps: MapSet, count: int) -> MapSet:
    """Return the maps on which the classifiers are least sure: the largest mean entropy over the built-in readings.

    Raises:
        UserError: If there are fewer than `count` maps, or a classifier is missing or damaged.
    """
    if not 1 <= count <= len(maps):
        raise UserError(f"{count} maps wanted: give 1 to {len(maps)}, the number of maps without readers' labels")
    entropy = np.mean([torch.special.entr(rows).sum(1).numpy() for rows in _probabilities(maps).values()], axis=0)
    return maps.take(np.argsort(-entropy, kind="stable")[:count].tolist())


def _probabilities(maps: MapSet) -> dict[str, Float[torch.Tensor, "maps classes"]]:
    """Return each map's class probabilities under each built-in reading."""
    table = torch.from_numpy(feature_table([each.values for each in maps], [each.boundary for each in maps]))
    return {reading: PatternClassifier.load(chosen_folder(), reading).of_features(table) for reading in READINGS}


def classify(given: GivenMaps) -> list[Classes]:
    """Return each map's class and class probabilities by reading, starting with the built-in readings.

    Raises:
        UserError: If a classifier is missing or damaged.
    """
    folder = chosen_folder()
    table = torch.from_numpy(
        feature_table([given.values_of(place) for place in range(len(given))], given.boundary.tolist())
    )
    classes: list[Classes] = [{} for _ in range(len(given))]
    for reading in readings_of(read_report(folder)):
        rows = PatternClassifier.load(folder, reading).of_features(table).tolist()
        for own, row in zip(classes, rows, strict=True):
            probabilities = {label: round(share, 6) for label, share in zip(CLASSES, row, strict=True)}
            likeliest = max(probabilities, key=probabilities.__getitem__)
            own[reading] = {"class": likeliest, "probabilities": probabilities}
    return classes
