"""Labelled maps for training: features computed once, and folds that keep all maps of a head together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from bertsecrets.errors import UserError
from bertsecrets.extras import from_extra
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.features.table import feature_table
from bertsecrets.patterns.map_set import MapSet


@dataclass(frozen=True)
class LabelledMaps:
    """Maps with their classes (indices into `CLASSES`) and groups (model, layer, head).

    `table` has the features of the maps. Classifiers learn only from maps on which annotators `agreed`.
    """

    maps: tuple[np.ndarray, ...]
    boundary: Int[np.ndarray, " maps"]
    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    table: Float[np.ndarray, "maps features"]
    agreed: Bool[np.ndarray, " maps"]

    @classmethod
    def of(
        cls,
        maps: Sequence[np.ndarray],
        *,
        boundary: Sequence[int],
        labels: Sequence[str],
        groups: Sequence[str],
        agreed: Sequence[bool] | None = None,
    ) -> "LabelledMaps":
        """Return labelled maps with their features; by default, all count as agreed on.

        Raises:
            UserError: a label is not a class, or there is no labelled map.
        """
        if not labels:
            raise UserError("no map is labelled: label some with bertsecrets lab annotate first")
        unknown = sorted(set(labels) - set(CLASSES))
        if unknown:
            raise UserError(f"unknown pattern class {unknown[0]!r}: known are {', '.join(CLASSES)}")
        return cls(
            tuple(np.asarray(values, dtype=np.float32) for values in maps),
            np.array(boundary, dtype=np.int64),
            np.array([CLASSES.index(label) for label in labels]),
            np.array(groups, dtype=str),
            feature_table(maps, boundary),
            np.ones(len(maps), dtype=bool) if agreed is None else np.array(agreed, dtype=bool),
        )

    @classmethod
    def of_set(cls, maps: MapSet, agreed: Sequence[bool] | None = None) -> "LabelledMaps":
        """Return the maps of a set with their first label.

        Raises:
            UserError: a map has no label.
        """
        return cls.of(
            [one.values for one in maps],
            boundary=[one.boundary for one in maps],
            labels=[label or "" for label in maps.labels],
            groups=["/".join(map(str, group)) for group in maps.groups],
            agreed=agreed,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Int[np.ndarray, " some"]) -> "LabelledMaps":
        """Return the maps at these places."""
        maps = tuple(self.maps[i] for i in places)
        rest = (part[places] for part in (self.boundary, self.labels, self.groups, self.table, self.agreed))
        return LabelledMaps(maps, *rest)

    def relabelled(self, maps: MapSet) -> "LabelledMaps":
        """Return the same maps under the labels that a set gives them; the most frequent label of a map counts."""
        labels = np.array([CLASSES.index(label or "") for label in maps.settled().labels])
        return replace(self, labels=labels, agreed=np.array(maps.agreed, dtype=bool))

    def to_learn(self, places: Int[np.ndarray, " some"] | None = None) -> "LabelledMaps":
        """Return the maps on which annotators agreed, among those at these places or among all."""
        candidates = np.arange(len(self)) if places is None else places
        return self.take(candidates[self.agreed[candidates]])

    def folds(self, count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (training, held-out) places, with classes spread evenly and all maps of a group on one side.

        Raises:
            UserError: there are fewer groups than folds, or fewer than two classes have a map for each fold.
            MissingError: scikit-learn is not installed.
        """
        groups = len(set(self.groups.tolist()))
        if groups < count:
            raise UserError(f"{groups} heads cannot make {count} folds: annotate maps of more heads")
        if (np.bincount(self.labels) >= count).sum() < 2:
            raise UserError(f"{count} folds need at least {count} maps in each of two classes: annotate more maps")
        with from_extra("scikit-learn"):
            from sklearn.model_selection import StratifiedGroupKFold
        splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
        yield from splitter.split(self.labels, self.labels, self.groups)


def open_labelled(folder: Path) -> tuple[LabelledMaps, MapSet]:
    """Return a folder's labelled maps twice, for training and as a set; the most frequent label of a map counts.

    Raises:
        UserError: the folder has no set, the set is damaged, or no map is labelled.
    """
    whole = MapSet.load(folder)
    maps = whole.take(i for i, votes in enumerate(whole.votes) if votes)
    return labelled(maps), maps


def labelled(maps: MapSet) -> LabelledMaps:
    """Return a set's maps for training; the most frequent label of a map counts.

    Raises:
        UserError: there is no map.
    """
    return LabelledMaps.of_set(maps.settled(), maps.agreed)
