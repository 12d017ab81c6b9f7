"""Classes of attention maps: shares corrected for the classifier's confusions, and how steady a head's class is.

Two independent samples stand behind a share: the examples, and the annotated heads that say how the classifier errs.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from bertsecrets.core import Measurement
from bertsecrets.patterns.classes import CLASSES, check_class
from bertsecrets.patterns.confusion import macro_f1
from bertsecrets.patterns.ratios import corrected, raw_shares
from bertsecrets.quantities.reading import Number, Reading

SIZE = len(CLASSES)


def _blocks(found: Measurement) -> tuple[np.ndarray, np.ndarray]:
    return raw_shares(found.samples["predicted"]), found.samples["confusion"].reshape(-1, SIZE * SIZE)


def _shares(raw: np.ndarray, confusion: np.ndarray) -> Float[np.ndarray, "*draws classes"]:
    return 100 * corrected(raw, confusion.reshape(*confusion.shape[:-1], SIZE, SIZE))


def class_share(found: Sequence[Measurement], task_name: str, classes: Sequence[str] = ()) -> Reading:
    """The share of all maps that belong to the classes, together, in percent."""
    chosen = [CLASSES.index(check_class(name)) for name in classes]
    raw, confusion = _blocks(found[0])
    note = f"{100 * raw.mean(0)[chosen].sum():.1f} before the correction for the classifier's confusions"
    return Reading((raw, confusion), lambda *means: _shares(*means)[..., chosen].sum(-1), (note,))


def rarest_class(found: Sequence[Measurement], task_name: str) -> Reading:
    """The share of the class that occurs least, in percent."""
    return Reading(_blocks(found[0]), lambda raw, confusion: _shares(raw, confusion).min(-1))


def share_gap(found: Sequence[Measurement], task_name: str, name: str = "heterogeneous") -> Reading:
    """A class's share on the first task minus that on the second, in percent; the classifier is one and the same."""
    place = CLASSES.index(check_class(name))
    (one, confusion), (other, _) = _blocks(found[0]), _blocks(found[1])

    def gap(first: np.ndarray, second: np.ndarray, seen: np.ndarray) -> Number:
        return _shares(first, seen)[..., place] - _shares(second, seen)[..., place]

    return Reading((one, other, confusion), gap)


def _one_hot(found: Measurement) -> Float[np.ndarray, "examples columns"]:
    """Per example and head, which class it is of: heads first, classes last, side by side."""
    predicted = found.samples["predicted"].reshape(len(found.samples["predicted"]), -1)
    return (predicted[:, :, None] == np.arange(SIZE)).reshape(len(predicted), -1).astype(np.float64)


def _by_head(mean: np.ndarray) -> np.ndarray:
    return mean.reshape(*mean.shape[:-1], -1, SIZE)


def steadiness(found: Sequence[Measurement], task_name: str) -> Reading:
    """The share of a head's maps that are of its most frequent class, mean over heads, in percent."""
    return Reading.of(_one_hot(found[0]), lambda mean: 100 * _by_head(mean).max(-1).mean(-1))


def same_across_tasks(found: Sequence[Measurement], task_name: str) -> Reading:
    """The share of heads whose most frequent class is the same on two tasks, mean over pairs of tasks, in percent."""

    def same(*means: np.ndarray) -> Number:
        majority = [_by_head(mean).argmax(-1) for mean in means]
        return 100 * np.mean([(a == b).mean(-1) for a, b in combinations(majority, 2)], axis=0)

    return Reading(tuple(_one_hot(each) for each in found), same)


def quality(found: Sequence[Measurement], task_name: str, agreed: bool = False) -> Reading:
    """Macro-F1 of the classifier on annotated maps of heads that it was not trained on; heads are resampled.

    Args:
        agreed: count only the maps on which annotators agree.
    """
    parts = found[0].samples["agreed_confusion" if agreed else "confusion"].reshape(-1, SIZE * SIZE)
    return Reading.of(parts, lambda mean: macro_f1(mean.reshape(*mean.shape[:-1], SIZE, SIZE)))
