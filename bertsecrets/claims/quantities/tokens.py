"""Attention to [CLS] and [SEP]."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bertsecrets.claims.estimand import NotApplicableError, Number, Reading, by_layer, flat
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement


def _special(found: Measurement, name: str) -> np.ndarray:
    if np.isnan(found.values[name]).all():
        raise NotApplicableError(f"the model has no [{name.upper()}]")
    return by_layer(found, name)


def sep_growth(found: Sequence[Measurement], task_name: str) -> Reading:
    """[SEP] attention in the last two layers, fine-tuned minus pretrained."""
    after, before = _special(found[0], "sep"), _special(found[1], "sep")
    return Reading.of(after - before, lambda mean: mean[..., -2:].mean(-1))


def depth_gap(found: Sequence[Measurement], task_name: str) -> Reading:
    """How much deeper [SEP] attention lies than [CLS] attention, as a share of the depth of the model.

    The depth of each is its centre of mass over the layers: 0 is the first layer, 1 the last.
    """
    cls, sep = _special(found[0], "cls"), _special(found[0], "sep")
    layers = cls.shape[1]
    if layers < 2:
        raise NotApplicableError("a model of one layer has no earlier and later layers")
    depth = np.linspace(0, 1, layers)

    def gap(mean: np.ndarray) -> Number:
        one, other = mean[..., :layers], mean[..., layers:]
        return (other @ depth) / other.sum(-1) - (one @ depth) / one.sum(-1)

    return Reading.of(np.hstack([cls, sep]), gap)


def sep_lead(
    found: Sequence[Measurement], task_name: str, kind: str = "sep", others: Literal["most", "mean"] = "most"
) -> Reading:
    """Attention to [SEP], mean over all heads, on the first task minus the others' largest (`most`) or mean.

    Args:
        kind: `sep`, of two [SEP]s the more attended, or `sep_sum`, both together.
    """
    blocks = tuple(_special(one, kind).mean(1, keepdims=True) for one in found)

    def lead(first: np.ndarray, *rest: np.ndarray) -> Number:
        other = np.stack([mean[..., 0] for mean in rest])
        return first[..., 0] - (other.max(0) if others == "most" else other.mean(0))

    each = ", ".join(
        f"{TASKS[one.subject.task].title} {block.mean():.3f}" for one, block in zip(found, blocks, strict=True)
    )
    return Reading(blocks, lead, (each,))


def figure_6(found: Sequence[Measurement], task_name: str, kind: str, ranks: bool = False) -> Reading:
    """Correlation over heads with figure 6's panel of `cls` or `sep`."""
    _special(found[0], kind)
    figure = np.array(published_figures()[f"fig6_{kind.upper()}"][TASKS[task_name].folder]).ravel()
    return likeness(flat(found[0], kind), figure, ranks)
