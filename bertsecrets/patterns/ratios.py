"""Shares of the pattern classes, corrected for what the classifier gets wrong, with intervals that count its errors.

A classifier that calls some diagonal maps vertical inflates one share at the cost of the other. Cross-validation on
annotated maps says how often (its confusion matrix); the corrected shares are those under which such a classifier
would most likely give what it gave. Intervals resample both the examples and the annotated heads.
"""

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.confusion import resampled

PULL = 0.01  # how strongly corrected shares are held to the raw ones, where the confusions leave them open
STEPS = 400  # of the solver


def raw_shares(predicted: Int[np.ndarray, "examples *heads"]) -> Float[np.ndarray, "examples classes"]:
    """Per example, the share of heads of each predicted class."""
    flat = predicted.reshape(len(predicted), -1)
    return np.stack([(flat == i).mean(1) for i in range(len(CLASSES))], axis=1)


def corrected(
    raw: Float[np.ndarray, "*resamples classes"], confusion: Float[np.ndarray, "*draws classes classes"]
) -> Float[np.ndarray, "*both classes"]:
    """True shares under which a classifier with these confusions gives the raw shares.

    Constrained least squares, by accelerated projected gradients: shares are not negative and sum to 1.

    Args:
        raw: for each resample, or once for all.
        confusion: counts or shares, rows the true classes; a class never annotated counts as always recognised.
    """
    seen = confusion.sum(-1, keepdims=True)
    never = np.broadcast_to(np.eye(confusion.shape[-1]), confusion.shape)
    rates = np.divide(confusion, seen, out=never.astype(float), where=seen > 0)
    raw = np.broadcast_to(raw, np.broadcast_shapes(raw.shape, rates.shape[:-1]))
    curve = rates @ rates.swapaxes(-1, -2)
    step = 1 / (np.linalg.norm(curve, ord=2, axis=(-2, -1)) + PULL)[..., None]
    target = (rates @ raw[..., None])[..., 0] + PULL * raw
    shares = ahead = raw
    momentum = 1.0
    for _ in range(STEPS):
        slope = (curve @ ahead[..., None])[..., 0] + PULL * ahead - target
        found = on_simplex(ahead - step * slope)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = found + (momentum - 1) / following * (found - shares)
        shares, momentum = found, following
    return shares


def on_simplex(values: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
    """The nearest shares: not negative, summing to 1."""
    down = -np.sort(-values, axis=-1)
    excess = down.cumsum(-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    kept = (down - excess / ranks > 0).sum(-1, keepdims=True)
    level = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    return np.maximum(values - level, 0)


def with_intervals(
    predicted: Int[np.ndarray, "examples *heads"],
    confusions: Float[np.ndarray, "annotated classes classes"],
    seed: int,
    resamples: int,
    confidence: float = 0.95,
) -> dict[str, Float[np.ndarray, " classes"]]:
    """`raw` and `corrected` shares, and the `low` and `high` ends of the corrected ones' bootstrap interval.

    Args:
        confusions: of each annotated head, the shares of its maps by (true, predicted) class, as
            `classifier.held_out_confusions` gives them.
    """
    shares = raw_shares(predicted)
    draws = corrected(
        resampled(shares, seed, resamples) / len(shares), resampled(confusions, seed + 1, resamples).astype(float)
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    raw = shares.mean(0)
    return {"raw": raw, "corrected": corrected(raw, confusions.sum(0)), "low": low, "high": high}


def majority(predicted: Int[np.ndarray, "examples *heads"]) -> tuple[np.ndarray, np.ndarray]:
    """Per head its most frequent class (an index into `CLASSES`) and the share of examples that have it (claim A3)."""
    counts = np.stack([(predicted == i).mean(0) for i in range(len(CLASSES))])
    return counts.argmax(0), counts.max(0)
