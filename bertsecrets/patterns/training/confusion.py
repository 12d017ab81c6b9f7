"""What follows from counts of (true, predicted) classes: F1, and resamples of it. Nothing here imports torch."""

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000
Confusion = Float[np.ndarray, "*resamples classes classes"]  # rows are the true classes, columns the predicted ones


def f1_by_class(confusion: Confusion) -> Float[np.ndarray, "*resamples classes"]:
    """F1 of each class; NaN for one that neither occurs nor is predicted."""
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    named = confusion.sum(-1) + confusion.sum(-2)
    return np.divide(2 * right, named, out=np.full(right.shape, np.nan), where=named > 0)


def macro_f1(confusion: Confusion) -> Float[np.ndarray, "*resamples"]:
    """The mean F1 of the classes that occur or are predicted."""
    return np.asarray(np.nanmean(f1_by_class(confusion), axis=-1))


def resampled(parts: Float[np.ndarray, "heads ..."], seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Sums of the parts of resampled heads: [resamples, ...]."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(len(parts), np.full(len(parts), 1 / len(parts)), size=resamples)
    return np.tensordot(counts, parts, axes=1)
