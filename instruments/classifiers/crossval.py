"""Labelled maps, and cross-validation of pattern classifiers on unseen heads (K19 section 4.1; claim A1).

Folds are grouped by head, so all maps of a (model, layer, head) are held out together. All classifiers use the same
folds. Hyperparameters (penalty, epoch, temperature) are selected by nested cross-validation within the training folds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.errors import UserError, from_extra
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.recorded_quality import confusions_by_head
from instruments.annotation.map_set import MapSet
from instruments.classifiers.map_features import feature_table

FOLDS = 5


@dataclass(frozen=True)
class LabelledMaps:
    """Maps with their classes (indices into `CLASSES`) and groups (model, layer, head).

    `maps` is an array of arrays of any size. `table` contains the features of the maps, and `votes` contains the number
    of annotators who chose each class. Classifiers are trained on all votes. `agreed` marks maps on which at least 80%
    of the annotators agree.
    """

    maps: np.ndarray
    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    table: Float[np.ndarray, "maps features"]
    agreed: Bool[np.ndarray, " maps"]
    votes: Int[np.ndarray, "maps classes"]

    @classmethod
    def of(cls, maps: MapSet) -> "LabelledMaps":
        """Return the maps of a set with their majority labels and features.

        Raises:
            UserError: the set is empty.
        """
        if not len(maps):
            raise UserError("no map is labelled: label some with python -m instruments annotate first")
        return cls(
            np.fromiter((each.values.astype(np.float32) for each in maps), dtype=object, count=len(maps)),
            np.array([CLASSES.index(label or "") for label in maps.settled().labels]),
            np.array(["/".join(map(str, group)) for group in maps.groups]),
            feature_table([each.values for each in maps], [each.boundary for each in maps]),
            np.array(maps.agreed, dtype=bool),
            np.array([[given.count(name) for name in CLASSES] for given in maps.votes]),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Int[np.ndarray, " some"]) -> "LabelledMaps":
        """Return the maps at these indices."""
        return LabelledMaps(*(part[places] for part in vars(self).values()))

    def joined(self, other: "LabelledMaps") -> "LabelledMaps":
        """Return these maps followed by others."""
        return LabelledMaps(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True)))

    def to_learn(self, places: Int[np.ndarray, " some"] | None = None) -> "LabelledMaps":
        """Return the maps at these indices, by default all, repeated for each annotator with that annotator's class."""
        chosen = np.arange(len(self)) if places is None else places
        rows, labels = np.nonzero(self.votes[chosen])
        times = self.votes[chosen][rows, labels]
        return replace(self.take(chosen[rows.repeat(times)]), labels=labels.repeat(times))

    def folds(self, count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (training, held-out) indices for stratified folds that do not split groups.

        Raises:
            UserError: there are fewer groups than folds, or fewer than two classes have enough maps for all folds.
            MissingError: scikit-learn is not installed.
        """
        groups = len(set(self.groups.tolist()))
        if groups < count:
            raise UserError(f"{count} folds need at least {count} heads, not {groups}: annotate maps of more heads")
        if (np.bincount(self.labels) >= count).sum() < 2:
            raise UserError(f"{count} folds need at least {count} maps in each of two classes: annotate more maps")
        with from_extra("scikit-learn"):
            from sklearn.model_selection import StratifiedGroupKFold
        splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed)
        yield from splitter.split(self.labels, self.labels, self.groups)


Trained = Callable[[LabelledMaps], np.ndarray]  # a classifier, which returns class probabilities [maps, classes]
Method = Callable[[LabelledMaps, int], Trained]  # trains only on these maps, deterministically for a given seed


def on_features(of_features: Callable[[torch.Tensor], torch.Tensor]) -> Trained:
    """Return a classifier that uses only map features."""
    return lambda data: of_features(torch.from_numpy(data.table)).numpy()


@dataclass(frozen=True)
class HeldOut:
    """Predictions for each map from a classifier trained only on other heads."""

    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    agreed: Bool[np.ndarray, " maps"]
    probabilities: Float[np.ndarray, "maps classes"]

    @property
    def predicted(self) -> Int[np.ndarray, " maps"]:
        """The most likely class of each map."""
        return self.probabilities.argmax(1)

    def confusions(self, agreed: bool = False) -> Float[np.ndarray, "heads classes classes"]:
        """Return each head's confusion matrix [true, predicted], over all maps or over maps with agreement."""
        return confusions_by_head(self.groups, self.labels, self.predicted, self.agreed if agreed else None)


def training_folds(
    data: LabelledMaps, seed: int, unsure: LabelledMaps | None = None
) -> Iterator[tuple[LabelledMaps, np.ndarray]]:
    """Yield the maps to learn from and the indices of the held-out maps, for each fold of the cross-validation.

    Args:
        unsure: Further maps, used only for training. Each fold leaves out those that share a head with its held-out
            maps.
    """
    for learn, held in data.folds(FOLDS, seed):
        train = data.to_learn(learn)
        if unsure is not None:
            others = np.flatnonzero(~np.isin(unsure.groups, data.groups[held]))
            train = train.joined(unsure.to_learn(others))
        yield train, held


def held_out(
    method: Method,
    data: LabelledMaps,
    seed: int,
    progress: Callable[[str], Any] = lambda line: None,
    *,
    unsure: LabelledMaps | None = None,
) -> HeldOut:
    """Return cross-validated predictions for all maps, with the folds of `training_folds`."""
    probabilities = np.zeros((len(data), len(CLASSES)))
    for number, (train, held) in enumerate(training_folds(data, seed, unsure), start=1):
        probabilities[held] = method(train, seed)(data.take(held))
        progress(f"fold {number} of {FOLDS}")
    return HeldOut(data.labels, data.groups, data.agreed, probabilities)
