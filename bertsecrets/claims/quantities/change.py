"""Change of attention in fine-tuning."""

from collections.abc import Sequence

import numpy as np

from bertsecrets.claims.estimand import NotApplicableError, Reading, by_layer, flat
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement


def last_two(found: Sequence[Measurement], task_name: str) -> Reading:
    """The larger mean similarity of the last two layers minus the smallest of the layers before them."""
    layers = by_layer(found[0], "cosine")
    if layers.shape[1] < 3:
        raise NotApplicableError(f"a model of {layers.shape[1]} layers has none before its last two")
    return Reading.of(layers, lambda mean: mean[..., -2:].max(-1) - mean[..., :-2].min(-1))


def little_changed(found: Sequence[Measurement], task_name: str) -> Reading:
    """The share of heads whose mean similarity is above .7, in percent."""
    return Reading.of(flat(found[0], "cosine"), lambda mean: 100 * (mean > 0.7).mean(-1))


def figure_5(found: Sequence[Measurement], task_name: str, ranks: bool = False) -> Reading:
    """Correlation of the measured [layer, head] map with figure 5's."""
    figure = np.array(published_figures()["fig5_cosine"][TASKS[task_name].folder]).ravel()
    return likeness(flat(found[0], "cosine"), figure, ranks)
