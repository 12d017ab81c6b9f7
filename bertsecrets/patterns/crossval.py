"""Cross-validation of pattern classifiers on heads that they have never seen (K19 section 4.1; claim A1).

Folds are grouped by head: all maps of a (model, layer, head) are held out together, and all classifiers get the same
folds. Whatever a classifier chooses (penalty, epoch, temperature) it chooses on folds inside its training folds.
Intervals resample heads, not maps, since maps of one head are similar.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.bootstrap import central_interval, resample_counts
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.dataset import LabelledMaps
from bertsecrets.texts.metrics import f1, f1_by_class, macro_f1

FOLDS = 5
BINS = 10  # of confidence, for calibration
RESAMPLES, CONFIDENCE = 2000, 0.95  # of intervals


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


def macro_f1_of_all(labels: Int[np.ndarray, " maps"], predicted: Int[np.ndarray, " maps"]) -> float:
    """Return the mean F1 of all classes, counting 0 for those that never occur; training chooses by it.

    >>> macro_f1_of_all(np.array([0, 0, 1]), np.array([0, 0, 1]))
    0.4
    """
    counts = confusion(labels, predicted)
    return float(f1(np.diagonal(counts), counts.sum(0), counts.sum(1), empty=0.0).mean())


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


def calibration(judged: HeldOut) -> dict[str, Any]:
    """Return the expected calibration error and the reliability curve (mean, accuracy and size of confidence bins)."""
    sure, right = judged.probabilities.max(1), judged.predicted == judged.labels
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins = [
        {"confidence": float(sure[here].mean()), "accuracy": float(right[here].mean()), "maps": int(here.sum())}
        for here in (places == i for i in range(BINS))
        if here.any()
    ]
    error = sum(b["maps"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(sure)
    return {"expected_calibration_error": float(error), "reliability": bins}


def quality(judged: HeldOut, seed: int) -> dict[str, Any]:
    """Return all figures of one classifier on held-out heads, as plain data, for all maps and for those agreed on."""
    return {
        **_scores(judged.confusions(), seed),
        **calibration(judged),
        "agreed": _scores(judged.confusions(agreed=True), seed),
    }


def _scores(parts: Float[np.ndarray, "heads classes classes"], seed: int) -> dict[str, Any]:
    whole = parts.sum(0)
    low, high = central_interval(macro_f1(_resampled_sums(parts, seed)), CONFIDENCE)
    return {
        "maps": int(whole.sum()),
        "macro_f1": float(macro_f1(whole)),
        "macro_f1_interval": [float(low), float(high)],
        "accuracy": float(np.trace(whole) / whole.sum()),
        "f1": dict(zip(CLASSES, f1_by_class(whole).tolist(), strict=True)),
        "confusion": whole.astype(int).tolist(),
    }


def advantage(first: HeldOut, second: HeldOut, seed: int) -> dict[str, Any]:
    """Return one classifier's macro-F1 minus another's on the same maps, with the same resamples of heads for both."""
    both = _resampled_sums(np.stack([first.confusions(), second.confusions()], axis=1), seed)
    gaps = macro_f1(both[:, 0]) - macro_f1(both[:, 1])
    value = macro_f1(first.confusions().sum(0)) - macro_f1(second.confusions().sum(0))
    low, high = central_interval(gaps, CONFIDENCE)
    return {"macro_f1": float(value), "interval": [float(low), float(high)], "above_zero": float((gaps > 0).mean())}


def _resampled_sums(parts: Float[np.ndarray, " heads *rest"], seed: int) -> Float[np.ndarray, " resamples *rest"]:
    """Return the sum over heads in each resample of heads."""
    drawn = resample_counts(np.random.default_rng(seed), len(parts), RESAMPLES)
    return np.concatenate([np.tensordot(counts, parts, axes=1) for counts in drawn])


def compare(
    methods: Sequence[Method], data: LabelledMaps, seed: int, progress: Callable[[str], Any] | None = None
) -> tuple[dict[str, Any], dict[str, HeldOut]]:
    """Judge every method on the same folds, and compare the first with each of the others.

    Returns:
        the figures of all methods, and the predictions of each by its name.
    """
    judged = {method.name: held_out(method, data, seed, progress=progress) for method in methods}
    first = methods[0].name
    figures = {
        "classifiers": {name: quality(one, seed) for name, one in judged.items()},
        "advantage": {name: advantage(judged[first], one, seed) for name, one in judged.items() if name != first},
    }
    return figures, judged
