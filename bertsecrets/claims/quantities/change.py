"""Change in attention due to fine-tuning (K19 section 4.3), as cosine similarity."""

import numpy as np

from bertsecrets.claims.estimand import Estimand, Extreme, by_layer, clusters_of, each_pair, flat, lower_minus_upper
from bertsecrets.claims.quantities.likeness import likeness, panels
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.progress import counted
from bertsecrets.types import Measurement

ATTENTION_CHANGE = Need("attention-change")
LITTLE_CHANGED_COSINE, CHANGED_COSINE = 0.7, 0.95  # above the first: little changed; below the second: changed


@quantity("last-two-layers", unit="cosine", change=ATTENTION_CHANGE)
def last_two(change: Measurement) -> Estimand:
    """Return the larger mean similarity in the last two layers minus the smallest in any earlier layer."""
    return _two_minus_others(change, slice(-2, None), slice(None, -2), "before the last two", "most")


@quantity("first-two-layers", unit="cosine", change=ATTENTION_CHANGE)
def first_two(change: Measurement) -> Estimand:
    """Return the smaller mean similarity in the first two layers minus the largest in any later layer."""
    return _two_minus_others(change, slice(None, 2), slice(2, None), "after the first two", "least")


@quantity("upper-half-change", unit="cosine", change=ATTENTION_CHANGE)
def upper_half(change: Measurement) -> Estimand:
    """Return the mean similarity of the lower half of the layers minus that of the upper half."""
    return lower_minus_upper(change, "cosine")


def _two_minus_others(change: Measurement, two: slice, others: slice, where: str, extreme: Extreme) -> Estimand:
    """Subtract the mean similarity of each layer in `others` from that of each layer in `two`."""
    layers = by_layer(change, "cosine")
    if layers.shape[1] < 3:
        raise NotApplicableError(f"the model has {counted(layers.shape[1], 'layer')}, so there are none {where}")

    def pairs(mean: np.ndarray) -> np.ndarray:
        return each_pair(np.subtract, mean[..., two], mean[..., others])

    return Estimand.from_block(layers, pairs, clusters=clusters_of(change), extreme=extreme)


@quantity("heads-little-changed", unit="percent", within=(0, 100), change=ATTENTION_CHANGE)
def little_changed(change: Measurement) -> Estimand:
    """Return the percentage of heads whose mean similarity is above 0.7; NaN if any similarity is NaN."""
    block = flat(change, "cosine")
    least = float(np.nanmin(block.mean(0)))
    share = lambda mean: 100 * np.where(np.isnan(mean), np.nan, mean > LITTLE_CHANGED_COSINE).mean(-1)  # noqa: E731
    note = f"the most changed head has a similarity of {least:.3f}"
    unchanged = f"fine-tuning changed no head: each similarity is at least {CHANGED_COSINE}"
    unmet = "" if least < CHANGED_COSINE else unchanged
    return Estimand.from_block(block, share, note, clusters=clusters_of(change), unmet=unmet)


@quantity("figure-5-correlation", "published", unit="r", change=ATTENTION_CHANGE)
def figure_5(change: Measurement) -> Estimand:
    """Return the correlation of similarities with K19's figure 5, minus the highest reference correlation.

    The correlation within layers is judged as well.
    """
    return likeness(change, flat(change, "cosine"), panels("fig5_cosine"), within_rows=True)
