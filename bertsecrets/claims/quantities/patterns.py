"""Classes of attention maps: shares corrected for the classifier's errors, and how steady a head's class is.

Two independent samples stand behind a share: the examples, and the annotated heads that say how the classifier errs.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimand import Number, Reading
from bertsecrets.patterns.classes import CLASSES, check_class
from bertsecrets.patterns.shares import corrected, heads_to_draw, raw_shares
from bertsecrets.texts.metrics import macro_f1
from bertsecrets.types import Measurement

SIZE = len(CLASSES)


def _blocks(found: Measurement) -> tuple[np.ndarray, np.ndarray]:
    return found.samples["expected"], found.samples["errors"]


def _drawn(found: Measurement) -> tuple[None, int]:
    """Of both blocks, how many rows a resample draws."""
    return None, heads_to_draw(found.samples["predicted"][0].size, len(found.samples["errors"]))


def class_share(found: Sequence[Measurement], task_name: str, classes: Sequence[str] = ()) -> Reading:
    """The share of all maps that belong to the classes, together, in percent."""
    chosen = [CLASSES.index(check_class(name)) for name in classes]
    raw = raw_shares(found[0].samples["predicted"]).mean(0)[chosen].sum()
    note = f"{100 * raw:.1f} before the correction for the classifier's errors"
    return Reading(
        _blocks(found[0]),
        lambda *means: 100 * corrected(*means)[..., chosen].sum(-1),
        (note,),
        drawn=_drawn(found[0]),
    )


def rarest_class(found: Sequence[Measurement], task_name: str) -> Reading:
    """The share of the class that occurs least, in percent."""
    return Reading(_blocks(found[0]), lambda *means: 100 * corrected(*means).min(-1), drawn=_drawn(found[0]))


def share_gap(found: Sequence[Measurement], task_name: str, name: str = "heterogeneous") -> Reading:
    """A class's share on the first task minus that on the second, in percent.

    The heads are the same, what the classifier gets wrong on them need not be: errors are drawn for each task apart,
    as many as there are heads. That the mean of all annotated heads' errors is uncertain touches both tasks alike.
    """
    place = CLASSES.index(check_class(name))
    heads = found[0].samples["predicted"][0].size

    def gap(one: np.ndarray, errors: np.ndarray, other: np.ndarray, further: np.ndarray) -> Number:
        return 100 * (corrected(one, errors)[..., place] - corrected(other, further)[..., place])

    return Reading((*_blocks(found[0]), *_blocks(found[1])), gap, drawn=(None, heads, None, heads))


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
