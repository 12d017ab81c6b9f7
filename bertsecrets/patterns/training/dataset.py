"""Labelled maps, made ready for training: features computed once, folds that never part the maps of one head."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.model_selection import StratifiedGroupKFold

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.features.table import NAMES, features
from bertsecrets.patterns.map_stack import by_length, stack


@dataclass(frozen=True)
class Annotated:
    """Maps with their classes (indices into `CLASSES`), and the group that each belongs to: its model, layer, head.

    `table` are the maps' features. Classifiers learn from the maps that are `agreed` on, by their annotators.
    """

    maps: tuple[np.ndarray, ...]
    boundary: Int[np.ndarray, " maps"]
    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    table: Float[np.ndarray, "maps features"]
    agreed: Bool[np.ndarray, " maps"]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Int[np.ndarray, " some"]) -> "Annotated":
        """Some of the maps."""
        maps = tuple(self.maps[i] for i in places)
        rest = (part[places] for part in (self.boundary, self.labels, self.groups, self.table, self.agreed))
        return Annotated(maps, *rest)

    def to_learn(self, places: Int[np.ndarray, " some"] | None = None) -> "Annotated":
        """Those of some maps, or of all, that are agreed on."""
        some = np.arange(len(self)) if places is None else places
        return self.take(some[self.agreed[some]])

    def folds(self, count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(training, held-out) places, classes spread evenly; all maps of a group on one side.

        Raises:
            UserError: fewer groups than folds, or fewer than two classes of which each fold could have a map.
        """
        groups = len(set(self.groups.tolist()))
        if groups < count:
            raise UserError(f"{groups} heads cannot make {count} folds: annotate maps of more heads")
        if (np.bincount(self.labels) >= count).sum() < 2:
            raise UserError(f"{count} folds need {count} or more maps of two classes at least: annotate more maps")
        splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
        yield from splitter.split(self.labels, self.labels, self.groups)


def annotated(
    maps: Sequence[np.ndarray],
    boundary: Sequence[int],
    labels: Sequence[str],
    groups: Sequence[str],
    agreed: Sequence[bool] | None = None,
) -> Annotated:
    """Labelled maps with their features; all of them agreed on, where nothing else is said.

    Raises:
        UserError: a label that is no class, or no labelled map at all.
    """
    if not labels:
        raise UserError("no labelled map: annotate some first (bertsecrets annotate)")
    unknown = sorted(set(labels) - set(CLASSES))
    if unknown:
        raise UserError(f"unknown pattern class {unknown[0]!r}: known are {', '.join(CLASSES)}")
    return Annotated(
        tuple(np.asarray(m, dtype=np.float32) for m in maps),
        np.array(boundary, dtype=np.int64),
        np.array([CLASSES.index(label) for label in labels]),
        np.array(groups, dtype=str),
        table(maps, boundary),
        np.ones(len(maps), dtype=bool) if agreed is None else np.array(agreed, dtype=bool),
    )


def table(maps: Sequence[np.ndarray], boundary: Sequence[int]) -> Float[np.ndarray, "maps features"]:
    """The features of single maps, computed in stacks of similar length."""
    found = np.empty((len(maps), len(NAMES)), dtype=np.float32)
    for places in by_length([len(m) for m in maps]):
        found[places] = features(stack([maps[i] for i in places], [boundary[i] for i in places])).numpy()
    return found
