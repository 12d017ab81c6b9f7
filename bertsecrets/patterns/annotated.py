"""Labelled maps, made ready for training: features computed once, folds that never part the maps of one head."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.model_selection import StratifiedGroupKFold

from bertsecrets.core import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.features import NAMES, features
from bertsecrets.patterns.stack import by_length, stack

CROPS = 4  # copies of every map, cropped and with noise, that training also sees
KEEP = 0.6  # of each text's tokens a crop keeps at least this share
MASS = 0.85  # and at least this share of the map's mass, so that it stays the same pattern
NOISE = 0.15  # standard deviation of the logarithm of the factor on every weight


@dataclass(frozen=True)
class Annotated:
    """Maps with their classes (indices into `CLASSES`), and the group that each belongs to: its model, layer, head.

    `table` are the maps' features, `crops` those of changed copies, which only training looks at.
    """

    maps: tuple[np.ndarray, ...]
    boundary: Int[np.ndarray, " maps"]
    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    table: Float[np.ndarray, "maps features"]
    crops: Float[np.ndarray, "copies maps features"]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Int[np.ndarray, " some"]) -> "Annotated":
        """Some of the maps."""
        maps = tuple(self.maps[i] for i in places)
        return Annotated(
            maps,
            self.boundary[places],
            self.labels[places],
            self.groups[places],
            self.table[places],
            self.crops[:, places],
        )

    def folds(self, count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(training, held-out) places, classes spread evenly; all maps of a group on one side.

        Raises:
            UserError: fewer groups than folds.
        """
        groups = len(set(self.groups.tolist()))
        if groups < count:
            raise UserError(f"{groups} heads cannot make {count} folds: annotate maps of more heads")
        splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
        yield from splitter.split(self.labels, self.labels, self.groups)


def annotated(
    maps: Sequence[np.ndarray], boundary: Sequence[int], labels: Sequence[str], groups: Sequence[str], seed: int = 0
) -> Annotated:
    """Labelled maps with their features.

    Raises:
        UserError: a label that is no class, or no labelled map at all.
    """
    if not labels:
        raise UserError("no labelled map: annotate some first (bertsecrets annotate)")
    unknown = sorted(set(labels) - set(CLASSES))
    if unknown:
        raise UserError(f"unknown pattern class {unknown[0]!r}: known are {', '.join(CLASSES)}")
    rng = np.random.default_rng(seed)
    crops = np.empty((CROPS, len(maps), len(NAMES)), dtype=np.float32)
    for copy in crops:
        changed = [crop(one, edge, rng) for one, edge in zip(maps, boundary, strict=True)]
        copy[:] = table([m for m, _ in changed], [b for _, b in changed])
    return Annotated(
        tuple(np.asarray(m, dtype=np.float32) for m in maps),
        np.array(boundary, dtype=np.int64),
        np.array([CLASSES.index(label) for label in labels]),
        np.array(groups, dtype=str),
        table(maps, boundary),
        crops,
    )


def table(maps: Sequence[np.ndarray], boundary: Sequence[int]) -> Float[np.ndarray, "maps features"]:
    """The features of single maps, computed in stacks of similar length."""
    found = np.empty((len(maps), len(NAMES)), dtype=np.float32)
    for places in by_length([len(m) for m in maps]):
        found[places] = features(stack([maps[i] for i in places], [boundary[i] for i in places])).numpy()
    return found


def crop(one: Float[np.ndarray, "_ _"], boundary: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """The map of shorter texts: each keeps a stretch of its tokens, the special ones stay, weights get some noise.

    A crop that would lose much of the mass is not made: what it leaves would be another pattern.
    """
    length = len(one)
    inside = [(1, min(boundary, length) - 1)] + ([(boundary, length - 1)] if boundary < length else [])
    keep = np.zeros(length, dtype=bool)
    keep[[0, min(boundary, length) - 1, length - 1]] = True
    for start, stop in inside:
        tokens = max(0, stop - start)
        size = int(np.ceil(tokens * rng.uniform(KEEP, 1)))
        first = start + int(rng.integers(0, tokens - size + 1))
        keep[first : first + size] = True
    maps = one.astype(np.float32)
    if maps[np.ix_(keep, keep)].sum() >= MASS * keep.sum():
        maps, boundary = maps[np.ix_(keep, keep)], int(keep[:boundary].sum())
    noisy = maps * np.exp(rng.normal(0, NOISE, maps.shape)).astype(np.float32)
    return noisy / noisy.sum(1, keepdims=True), boundary


def class_weights(labels: Int[np.ndarray, " maps"]) -> Float[torch.Tensor, " classes"]:
    """What each class weighs in a loss so that all weigh alike together; a class without maps weighs nothing."""
    counts = np.bincount(labels, minlength=len(CLASSES))
    present = (counts > 0).sum()
    weights = np.divide(len(labels), present * counts, out=np.zeros(len(CLASSES)), where=counts > 0)
    return torch.tensor(weights, dtype=torch.float32)
