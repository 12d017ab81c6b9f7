"""Similarity of the vectors of random words, and how fine-tuning changes it (claims I2 and I9)."""

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.bootstrap import column_means, ratio
from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.types import Measurement

VECTORS, VECTORS_BEFORE = Need("anisotropy"), Need("anisotropy", "against")


def _layers(vectors: Measurement) -> tuple[Float[np.ndarray, "pairs layers"], str]:
    """Return the cosine of each pair of rows in each layer, excluding the embeddings, and a note with the means."""
    block = vectors.sample("cosine").astype(np.float64)
    block = block[~np.isnan(block).any(1), 1:]
    centred = column_means(vectors.sample("centred").astype(np.float64))[0][1:]
    curve = ", ".join(f"{value:.2f}" for value in block.mean(0))
    return block, f"from layer 1: {curve}; at most {np.abs(centred).max():.3f} after subtracting the mean vector"


@quantity("anisotropy", unit="cosine", within=(-1, 1), vectors=VECTORS)
def anisotropy(vectors: Measurement) -> Estimand:
    """Return the mean cosine of two random words' vectors, averaged over all layers."""
    block, note = _layers(vectors)
    return Estimand.from_block(block, lambda mean: mean.mean(-1), note)


@quantity("anisotropy-rise", unit="cosine", vectors=VECTORS)
def anisotropy_rise(vectors: Measurement) -> Estimand:
    """Return how much the mean cosine of random words' vectors rises from the lower to the upper half of the layers."""
    block, note = _layers(vectors)
    half = block.shape[1] // 2
    if not half:
        raise NotApplicableError("a model with one layer has no upper half")
    return Estimand.from_block(block, lambda mean: mean[..., -half:].mean(-1) - mean[..., :half].mean(-1), note)


@quantity("geometry-correlation", unit="r", within=(-1, 1), after=VECTORS, before=VECTORS_BEFORE)
def geometry(after: Measurement, before: Measurement) -> Estimand:
    """Return the correlation between rows' cosines before and after fine-tuning, averaged over the upper layers.

    The correlation is over pairs of rows. The mean vector is subtracted before the cosines are computed.
    """
    block, _ = _pairs(after, before)
    layers = block.shape[1] // 2
    half = layers // 2
    if not half:
        raise NotApplicableError("a model with one layer has no upper half")
    tuned, plain = block[:, :layers], block[:, layers:]
    products = np.hstack([tuned, plain, tuned**2, plain**2, tuned * plain])

    def correlations(mean: np.ndarray) -> np.ndarray:
        x, y, xx, yy, xy = np.split(mean, 5, axis=-1)
        return ratio(xy - x * y, np.sqrt(np.clip(xx - x**2, 0, None) * np.clip(yy - y**2, 0, None)))

    note = ", ".join(f"{value:.2f}" for value in correlations(products.mean(0)))
    return Estimand.from_block(products, lambda mean: correlations(mean)[..., -half:].mean(-1), f"from layer 1: {note}")


@quantity("class-separation-growth", unit="cosine", within=(-4, 4), after=VECTORS, before=VECTORS_BEFORE)
def class_separation(after: Measurement, before: Measurement) -> Estimand:
    """Return how much fine-tuning increases the separation of classes in the last layer.

    The separation is the mean cosine of rows of the same class minus the mean cosine of rows of different classes. The
    mean vector is subtracted before the cosines are computed.
    """
    block, same = _pairs(after, before)
    if np.isnan(same).any():
        raise NotApplicableError("the task has scores instead of classes")
    layers = block.shape[1] // 2
    growth = block[:, layers - 1] - block[:, -1]
    by_class = np.stack([np.where(same == 1, growth, np.nan), np.where(same == 0, growth, np.nan)], axis=1)
    within, between = column_means(by_class)[0]
    note = f"cosines within classes change by {within:+.3f}, between classes by {between:+.3f}"
    return Estimand.from_block(by_class, lambda mean: mean[..., 0] - mean[..., 1], note)


def _pairs(after: Measurement, before: Measurement) -> tuple[Float[np.ndarray, "pairs layers2"], np.ndarray]:
    """Return the centred cosines of each pair of rows, and whether both rows have the same class.

    The columns are the layers of `after`, followed by the layers of `before`.
    """
    block = np.hstack([value.sample("centred").astype(np.float64)[:, 1:] for value in (after, before)])
    present = ~np.isnan(block).any(1)
    return block[present], after.sample("same_class")[present]
