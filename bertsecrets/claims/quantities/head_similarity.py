"""Breadth of attention, similarity of heads, and the effect of attention to [SEP] (claims I5 to I7)."""

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.estimand import Estimand, by_layer, clusters_of, lower_minus_upper
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.types import Measurement

HEAD_STATISTICS = Need("head-statistics")


@quantity("lower-breadth", unit="bits", statistics=HEAD_STATISTICS)
def lower_breadth(statistics: Measurement) -> Estimand:
    """Return the mean entropy of attention in the lower half of the layers minus that in the upper half."""
    return lower_minus_upper(statistics, "entropy")


@quantity("layer-likeness", unit="bits", statistics=HEAD_STATISTICS)
def layer_likeness(statistics: Measurement) -> Estimand:
    """Return the mean divergence between heads in different layers minus that between heads in the same layer."""
    block = np.stack([statistics.sample(name).astype(np.float64) for name in ("between", "within")], axis=1)
    there, clusters = np.asarray(~np.isnan(block).any(1)), clusters_of(statistics)
    if not there.any():
        raise NotApplicableError("the model has only one layer, or one head per layer")
    if clusters is not None:
        clusters = np.unique(clusters[there], return_inverse=True)[1]
    between, within = column_means(block)[0]
    note = f"different layers {between:.3f}, same layer {within:.3f}"
    return Estimand.from_block(block[there], lambda mean: mean[..., 0] - mean[..., 1], note, clusters=clusters)


@quantity("sep-gradient-ratio", unit="ratio", within=(0, np.inf), slopes=Need("attention-gradients"))
def sep_gradient_ratio(slopes: Measurement) -> Estimand:
    """Return the absolute gradient of the loss with respect to attention to [SEP], divided by that for other tokens.

    Gradients are averaged over examples and over the heads of the upper two thirds of the layers.
    """
    if np.isnan(slopes.value("sep")).all():
        raise NotApplicableError("the model has no [SEP]")
    sep, other = (by_layer(slopes, kind) for kind in ("sep", "other"))
    first = round(sep.shape[1] / 3)
    block: Float[np.ndarray, "examples 2"] = np.stack([value[:, first:].mean(1) for value in (sep, other)], axis=1)
    by_depth = ", ".join(f"{value:.2f}" for value in column_means(sep)[0] / column_means(other)[0])
    note = f"judged from layer {first + 1} on; values from layer 1: {by_depth}"
    return Estimand.from_block(block, lambda mean: mean[..., 0] / mean[..., 1], note, clusters=clusters_of(slopes))
