"""Attention to [CLS] and [SEP]."""

from collections.abc import Sequence

import numpy as np

from bertsecrets.core import Measurement
from bertsecrets.quantities.reading import NotApplicableError, Number, Reading, by_layer


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
