"""Classes of attention maps from a file, with class probabilities under each reading."""

from collections.abc import Iterator, Mapping, Sequence
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
    "give an .npz file with the arrays maps [n, L, L] (padded with zeros), lengths [n] and boundary [n] "
    "(the position of the second text's first token; for a single text, the length)"
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
        if problem := next(_problems(arrays), None):
            raise UserError(f"{path}: {problem}")
        whole = (arrays[name].astype(np.int64) for name in ARRAYS[1:])
        return cls(arrays["maps"].astype(np.float32, copy=False), *whole)

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


def _problems(arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Yield what is wrong with arrays in a file, beginning with shapes and types."""
    maps, lengths, boundary = (arrays[name] for name in ARRAYS)
    if maps.ndim != 3 or maps.shape[1] != maps.shape[2] or maps.dtype.kind not in "fiu":
        yield f"maps has the shape {maps.shape} and the type {maps.dtype}, instead of numbers [n, L, L]"
    if not len(maps):
        yield "maps is empty: give at least one map"
    for name in ARRAYS[1:]:
        if arrays[name].shape != (len(maps),) or arrays[name].dtype.kind not in "iu":
            yield (
                f"{name} has the shape {arrays[name].shape} and the type {arrays[name].dtype} instead of "
                f"whole numbers [{len(maps)}], one per map"
            )
    tokens = maps.shape[1]
    for place in np.flatnonzero((lengths < SHORTEST) | (lengths > tokens)):
        yield f"map {place} has the length {lengths[place]}: give {SHORTEST} to {tokens}, the size of the maps"
    for place in np.flatnonzero((boundary < 1) | (boundary > lengths)):
        yield f"map {place} has the boundary {boundary[place]}: give 1 to {lengths[place]}, the map's length"
    for number, padded in enumerate(maps.astype(np.float32, copy=False)):
        length = int(lengths[number])
        values = padded[:length, :length].astype(np.float64)
        infinite, negative = ~np.isfinite(values).all(1), (values < 0).any(1)
        if infinite.any():
            yield f"map {number} has a weight that is not a number in row {infinite.argmax()}: measure it again"
        if negative.any():
            yield f"map {number} has a negative weight in row {negative.argmax()}: give weights after the softmax"
        for row in np.flatnonzero(np.abs(values.sum(1) - 1) > SUM_TOLERANCE):
            total = f"row {row} sums to {values.sum(1)[row]:.3g} instead of 1"
            yield f"map {number}: {total}: give weights after the softmax"
        if np.count_nonzero(padded) > np.count_nonzero(values):
            yield f"map {number} has weights beyond its length, {length}: pad it with zeros or correct its length"


def predicted_classes(maps: MapSet) -> dict[str, list[str]]:
    """Return each map's predicted class under each built-in reading.

    Raises:
        UserError: If a classifier is missing or damaged.
    """
    probabilities = _probabilities(READINGS, [each.values for each in maps], [each.boundary for each in maps])
    return {reading: [CLASSES[place] for place in rows.argmax(1).tolist()] for reading, rows in probabilities.items()}


def least_sure(maps: MapSet, count: int) -> MapSet:
    """Return the maps on which the classifiers are least sure: the largest mean entropy over the built-in readings.

    Raises:
        UserError: If there are fewer than `count` maps, or a classifier is missing or damaged.
    """
    if not 1 <= count <= len(maps):
        raise UserError(f"cannot draw {count} maps: give 1 to {len(maps)}, the number of maps without readers' labels")
    probabilities = _probabilities(READINGS, [each.values for each in maps], [each.boundary for each in maps])
    entropy = np.mean([torch.special.entr(rows).sum(1).numpy() for rows in probabilities.values()], axis=0)
    return maps.take(np.argsort(-entropy, kind="stable")[:count].tolist())


def _probabilities(
    readings: Sequence[str], maps: Sequence[np.ndarray], boundary: Sequence[int]
) -> dict[str, Float[torch.Tensor, "maps classes"]]:
    """Return each map's class probabilities under some readings."""
    table = torch.from_numpy(feature_table(maps, boundary))
    return {reading: PatternClassifier.load(chosen_folder(), reading).of_features(table) for reading in readings}


def classify(given: GivenMaps) -> list[Classes]:
    """Return each map's class and class probabilities by reading, starting with the built-in readings.

    Raises:
        UserError: If a classifier is missing or damaged.
    """
    maps = [given.values_of(place) for place in range(len(given))]
    classes: list[Classes] = [{} for _ in maps]
    readings = readings_of(read_report(chosen_folder()))
    for reading, rows in _probabilities(readings, maps, given.boundary.tolist()).items():
        for own, row in zip(classes, rows.tolist(), strict=True):
            probabilities = {label: round(share, 6) for label, share in zip(CLASSES, row, strict=True)}
            likeliest = max(probabilities, key=probabilities.__getitem__)
            own[reading] = {"class": likeliest, "probabilities": probabilities}
    return classes
