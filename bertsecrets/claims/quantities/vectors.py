"""Similarity of the vectors of random words (claims I2)."""

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.estimand import Estimand
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.types import Measurement

VECTORS = Need("anisotropy")


def _layers(vectors: Measurement) -> tuple[Float[np.ndarray, "pairs layers"], str]:
    """Return the mean cosine of each pair of rows by layer, excluding embeddings, and a note with the means."""
    block = vectors.sample("cosine").astype(np.float64)
    block = block[~np.isnan(block).any(1), 1:]
    centred = column_means(vectors.sample("centred").astype(np.float64))[0][1:]
    curve = ", ".join(f"{one:.2f}" for one in block.mean(0))
    return block, f"layers 1 on: {curve}; without the mean vector at most {np.abs(centred).max():.3f}"


@quantity("anisotropy", unit="cosine", within=(-1, 1), vectors=VECTORS)
def anisotropy(vectors: Measurement) -> Estimand:
    """Return the mean cosine of two random words' vectors, averaged over all layers."""
    block, note = _layers(vectors)
    return Estimand.of(block, lambda mean: mean.mean(-1), note)


@quantity("anisotropy-rise", unit="cosine", vectors=VECTORS)
def anisotropy_rise(vectors: Measurement) -> Estimand:
    """Return the mean cosine of two random words' vectors in the upper half of the layers minus that in the lower."""
    block, note = _layers(vectors)
    half = block.shape[1] // 2
    if not half:
        raise NotApplicableError("a model of one layer has no upper half")
    return Estimand.of(block, lambda mean: mean[..., -half:].mean(-1) - mean[..., :half].mean(-1), note)
