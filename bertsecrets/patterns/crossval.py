"""Cross-validation of pattern classifiers on heads that they have never seen (K19 section 4.1; claim A1).

Folds are grouped by head: all maps of a (model, layer, head) are held out together, and all classifiers get the same
folds. Whatever a classifier chooses (penalty, epoch, temperature) it chooses on folds inside its training folds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.dataset import LabelledMaps
from bertsecrets.texts.metrics import f1_by_class, macro_f1

FOLDS = 5


@runtime_checkable
class Trained(Protocol):
    """A trained classifier."""

    def probabilities(self, data: LabelledMaps) -> Float[np.ndarray, "maps classes"]:
        """Return the class probabilities of maps."""


@runtime_checkable
class Method(Protocol):
    """A method that trains a classifier only on the maps it is given."""

    @property
    def name(self) -> str:
        """The name of the method in reports."""

    def fit(self, train: LabelledMaps, seed: int) -> Trained:
        """Return a trained classifier; the same maps and seed give the same one."""


@dataclass(frozen=True)
class OnFeatures:
    """A trained classifier that uses only the features of maps."""

    of_features: Callable[[torch.Tensor], torch.Tensor]

    def probabilities(self, data: LabelledMaps) -> Float[np.ndarray, "maps classes"]:
        """Return the class probabilities of maps."""
        return self.of_features(torch.from_numpy(data.table)).numpy()


@dataclass(frozen=True)
class HeldOut:
    """The predictions of a method for each map, trained on other heads only."""

    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    agreed: Bool[np.ndarray, " maps"]
    probabilities: Float[np.ndarray, "maps classes"]

    @property
    def predicted(self) -> Int[np.ndarray, " maps"]:
        """The likeliest class of each map."""
        return self.probabilities.argmax(1)

    def confusions(self, agreed: bool = False) -> Float[np.ndarray, "heads classes classes"]:
        """Return each head's counts [true, predicted], of all maps or of those agreed on; intervals resample these."""
        names, places = np.unique(self.groups, return_inverse=True)
        counts = np.zeros((len(names), len(CLASSES), len(CLASSES)))
        kept = self.agreed | (not agreed)
        np.add.at(counts, (places[kept], self.labels[kept], self.predicted[kept]), 1)
        return counts


def confusion(
    labels: Int[np.ndarray, " maps"], predicted: Int[np.ndarray, " maps"]
) -> Float[np.ndarray, "classes classes"]:
    """Return the number of maps of each pair of classes, [true, predicted].

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]))[:2, :2].tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    counts = np.zeros((len(CLASSES), len(CLASSES)))
    np.add.at(counts, (labels, predicted), 1)
    return counts


def held_out(
    method: Method,
    data: LabelledMaps,
    seed: int,
    progress: Callable[[str], Any] | None = None,
) -> HeldOut:
    """Return predictions for all maps, each fold predicted after training on the agreed maps of all others."""
    probabilities = np.zeros((len(data), len(CLASSES)))
    for number, (learn, held) in enumerate(data.folds(FOLDS, seed), start=1):
        probabilities[held] = method.fit(data.to_learn(learn), seed).probabilities(data.take(held))
        if progress:
            progress(f"{method.name}: fold {number} of {FOLDS}")
    return HeldOut(data.labels, data.groups, data.agreed, probabilities)


def scores(parts: Float[np.ndarray, "heads classes classes"]) -> dict[str, Any]:
    """Return the scores of all heads' confusions together: `maps`, `macro_f1`, `accuracy`, and `f1` by class."""
    whole = parts.sum(0)
    return {
        "maps": int(whole.sum()),
        "macro_f1": float(macro_f1(whole)),
        "accuracy": float(np.trace(whole) / whole.sum()),
        "f1": dict(zip(CLASSES, f1_by_class(whole).tolist(), strict=True)),
    }
