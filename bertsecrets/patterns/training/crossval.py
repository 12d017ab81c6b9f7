"""How well classifiers tell the pattern classes apart on heads that they have never seen (claim A1).

Cross-validation grouped by head: all maps of a (model, layer, head) are held out together, and every classifier sees
the same folds. Whatever a classifier chooses (penalty, epoch, temperature) it chooses on folds inside its training
folds. Intervals resample heads, not maps, since maps of one head are alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.training.confusion import f1_by_class, macro_f1, resampled
from bertsecrets.patterns.training.dataset import Annotated

FOLDS = 5
BINS = 10  # of confidence, for calibration


@runtime_checkable
class Trained(Protocol):
    """What training gives."""

    def probabilities(self, data: Annotated) -> Float[np.ndarray, "maps classes"]:
        """Class probabilities of maps."""


@runtime_checkable
class Method(Protocol):
    """A way to train a classifier on nothing but the maps it is given."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def fit(self, train: Annotated, seed: int) -> Trained:
        """A trained classifier; the same maps and seed give the same one."""


@dataclass(frozen=True)
class HeldOut:
    """What a method says of each map, trained on other heads alone."""

    labels: Int[np.ndarray, " maps"]
    groups: np.ndarray
    agreed: Bool[np.ndarray, " maps"]
    probabilities: Float[np.ndarray, "maps classes"]

    @property
    def predicted(self) -> Int[np.ndarray, " maps"]:
        """The likeliest class of each map."""
        return self.probabilities.argmax(1)

    def confusions(self, agreed: bool = False) -> Float[np.ndarray, "heads classes classes"]:
        """Counts of (true, predicted) per head, of all maps or of those agreed on: what intervals resample."""
        names, places = np.unique(self.groups, return_inverse=True)
        found = np.zeros((len(names), len(CLASSES), len(CLASSES)))
        kept = self.agreed | (not agreed)
        np.add.at(found, (places[kept], self.labels[kept], self.predicted[kept]), 1)
        return found


def held_out(
    method: Method, data: Annotated, seed: int, folds: int = FOLDS, progress: Callable[[str], Any] | None = None
) -> HeldOut:
    """Train on all folds but one, of these on the maps agreed on; predict all maps of that one; each in turn."""
    said = np.zeros((len(data), len(CLASSES)))
    for number, (learn, held) in enumerate(data.folds(folds, seed), start=1):
        said[held] = method.fit(data.to_learn(learn), seed).probabilities(data.take(held))
        if progress:
            progress(f"{method.name}: fold {number} of {folds}")
    return HeldOut(data.labels, data.groups, data.agreed, said)


def calibration(found: HeldOut) -> dict[str, Any]:
    """Expected calibration error and the reliability curve: per bin of confidence its mean, accuracy and size."""
    sure, right = found.probabilities.max(1), found.predicted == found.labels
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins = [
        {"confidence": float(sure[here].mean()), "accuracy": float(right[here].mean()), "maps": int(here.sum())}
        for here in (places == i for i in range(BINS))
        if here.any()
    ]
    error = sum(b["maps"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(sure)
    return {"expected_calibration_error": float(error), "reliability": bins}


def quality(found: HeldOut, seed: int) -> dict[str, Any]:
    """All figures of one classifier on held-out heads, as plain data: of all maps, and of those agreed on."""
    return {
        **_scores(found.confusions(), seed),
        **calibration(found),
        "agreed": _scores(found.confusions(agreed=True), seed),
    }


def _scores(parts: Float[np.ndarray, "heads classes classes"], seed: int) -> dict[str, Any]:
    whole = parts.sum(0)
    low, high = np.quantile(macro_f1(resampled(parts, seed)), [0.025, 0.975])
    return {
        "maps": int(whole.sum()),
        "macro_f1": float(macro_f1(whole)),
        "macro_f1_interval": [float(low), float(high)],
        "accuracy": float(np.trace(whole) / whole.sum()),
        "f1": dict(zip(CLASSES, f1_by_class(whole).tolist(), strict=True)),
        "confusion": whole.astype(int).tolist(),
    }


def advantage(one: HeldOut, other: HeldOut, seed: int) -> dict[str, Any]:
    """Macro-F1 of one classifier minus another's on the same maps, heads resampled alike."""
    both = resampled(np.stack([one.confusions(), other.confusions()], axis=1), seed)
    gaps = macro_f1(both[:, 0]) - macro_f1(both[:, 1])
    value = macro_f1(one.confusions().sum(0)) - macro_f1(other.confusions().sum(0))
    low, high = np.quantile(gaps, [0.025, 0.975])
    return {"macro_f1": float(value), "interval": [float(low), float(high)], "above_zero": float((gaps > 0).mean())}


def compare(
    methods: Sequence[Method], data: Annotated, seed: int, progress: Callable[[str], Any] | None = None
) -> tuple[dict[str, Any], dict[str, HeldOut]]:
    """Every method on the same folds: its figures, and what it says of each map. The first is held against the rest."""
    found = {method.name: held_out(method, data, seed, progress=progress) for method in methods}
    first = methods[0].name
    figures = {
        "classifiers": {name: quality(each, seed) for name, each in found.items()},
        "advantage": {name: advantage(found[first], each, seed) for name, each in found.items() if name != first},
    }
    return figures, found
