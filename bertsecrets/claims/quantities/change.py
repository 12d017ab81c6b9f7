"""The change of attention by fine-tuning (K19 section 4.3), as cosine similarity."""

from dataclasses import replace

import numpy as np

from bertsecrets.claims.estimand import Estimand, by_layer, flat
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

CHANGE = Need("attention-change")


@quantity("last-two-layers", unit="cosine", change=CHANGE)
def last_two(change: Measurement) -> Estimand:
    """Return the larger mean similarity of the last two layers minus the smallest of all earlier layers."""
    layers = by_layer(change, "cosine")
    if layers.shape[1] < 3:
        raise NotApplicableError(f"the model has {layers.shape[1]} layers, so none before the last two")

    def pairs(mean: np.ndarray) -> np.ndarray:
        apart = mean[..., -2:, None] - mean[..., None, :-2]
        return apart.reshape(*mean.shape[:-1], -1)

    return replace(Estimand.of(layers, pairs), extreme="most")


@quantity("heads-little-changed", unit="percent", change=CHANGE)
def little_changed(change: Measurement) -> Estimand:
    """Return the percentage of heads whose mean similarity is above 0.7."""
    return Estimand.of(flat(change, "cosine"), lambda mean: 100 * (mean > 0.7).mean(-1))


@quantity("figure-5-correlation", unit="r", change=CHANGE)
def figure_5(change: Measurement, ranks: bool = False) -> Estimand:
    """Return the correlation, over heads, of the measured similarities with those of K19's figure 5."""
    figure = np.array(published_figures()["fig5_cosine"][TASKS[change.subject.task].folder]).ravel()
    return likeness(flat(change, "cosine"), figure, ranks)
