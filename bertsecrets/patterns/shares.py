"""Shares of the pattern classes, corrected for what the classifier gets wrong.

Prediction-powered inference (Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, Science 382): to the mean of the class
probabilities comes how far these were from the labels, on average, on annotated heads that the classifier had not seen.
What a classifier gets wrong on a model hangs on the heads that this model happens to have: resamples draw about as
many annotated heads as it has, not as many as were annotated. An annotated head's error is known from a few maps, a
model's is the mean over many, so intervals from such resamples are rather too wide where all maps of a head are alike.
"""

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.patterns.classes import CLASSES


def raw_shares(predicted: Int[np.ndarray, " examples *heads"]) -> Float[np.ndarray, "examples classes"]:
    """Return, per example, the share of heads of each predicted class."""
    flat = predicted.reshape(len(predicted), -1)
    return np.stack([(flat == i).mean(1) for i in range(len(CLASSES))], axis=1)


def corrected(
    expected: Float[np.ndarray, "*one classes"], errors: Float[np.ndarray, "*other classes"]
) -> Float[np.ndarray, "*both classes"]:
    """Return the nearest possible shares to the mean of the probabilities plus the mean of the errors."""
    return on_simplex(expected + errors)


def on_simplex(values: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
    """Return the nearest shares: not negative, summing to 1.

    >>> on_simplex(np.array([0.75, 0.5, -0.25])).tolist()
    [0.625, 0.375, 0.0]
    """
    down = -np.sort(-values, axis=-1)
    excess = down.cumsum(-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    kept = (down - excess / ranks > 0).sum(-1, keepdims=True)
    level = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    return np.maximum(values - level, 0)


def heads_to_draw(heads: int, annotated: int) -> int:
    """Return how many annotated heads a resample draws for a model of so many heads.

    Their mean then lies as far off as that of the model's heads and that of all annotated ones together: both are
    samples, and their variances, which go with one over their sizes, add up.

    >>> heads_to_draw(72, 360)
    60
    """
    return max(1, round(heads * annotated / (heads + annotated)))


def by_head(values: Float[np.ndarray, "maps classes"], heads: np.ndarray) -> Float[np.ndarray, "heads classes"]:
    """Return the mean of the maps of each head, heads in the order of their names."""
    names, places = np.unique(heads, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / np.bincount(places)[:, None]


def majority(predicted: Int[np.ndarray, " examples *heads"]) -> tuple[np.ndarray, np.ndarray]:
    """Return per head its most frequent class (an index into `CLASSES`) and the share of examples that have it."""
    counts = np.stack([(predicted == i).mean(0) for i in range(len(CLASSES))])
    return counts.argmax(0), counts.max(0)
