"""Accuracy of corrected class shares, and coverage of their intervals, on annotated maps."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.bootstrap import central_interval, resampled_means
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.shares import by_head, corrected, heads_to_draw

MODELS = 400  # random sets of annotated heads, each treated as a model
RESAMPLES = 400  # bootstrap resamples per model
CONFIDENCE = 0.95


def share_interval(
    expected: Float[np.ndarray, "examples classes"],
    errors: Float[np.ndarray, "annotated classes"],
    *,
    heads: int,
    rng: np.random.Generator,
    resamples: int,
) -> tuple[Float[np.ndarray, " classes"], Float[np.ndarray, " classes"]]:
    """Return the lower and upper ends of the 95% bootstrap interval of `corrected` shares.

    Args:
        expected: Classifier's mean probabilities over heads, per example. A single example is treated as exact.
        errors: Errors for each annotated head, as returned by `classifier.held_out_errors`.
        heads: Number of heads of the model.
    """
    means = resampled_means(expected, rng, resamples)
    off = resampled_means(errors, rng, resamples, drawn=heads_to_draw(heads, len(errors)))
    return central_interval(corrected(means, off), CONFIDENCE)


def audit_shares(
    labels: Int[np.ndarray, " maps"],
    probabilities: Float[np.ndarray, "maps classes"],
    *,
    heads: np.ndarray,
    groups: np.ndarray,
    size: int,
    seed: int,
) -> dict[str, Any]:
    """Return the errors of corrected shares, and the coverage of the intervals.

    Each simulated model consists of `size` random annotated heads. True shares come from the labels. The classifier's
    shares are corrected by its errors on all unrelated heads. All heads have equal weight.

    Args:
        probabilities: Predictions for each map, by a classifier not trained on the map's head or related heads.
        heads: Model, layer and head of each map.
        groups: Group of related heads to which each map belongs.

    Returns:
        For each class, the coverage `covers` (the fraction of models whose interval contains the true share), and the
        root mean square errors, in percent, of the corrected shares and of the raw shares of most likely classes. Also
        `heads` and `models`.
    """
    true = by_head(np.eye(len(CLASSES))[labels], heads)
    predicted = by_head(probabilities, heads)
    raw = by_head(np.eye(len(CLASSES))[probabilities.argmax(1)], heads)
    kin = groups[np.unique(heads, return_index=True)[1]]
    rng = np.random.default_rng(seed)
    covers, off, raw_off = [], [], []
    for _ in range(MODELS):
        ours = rng.permutation(len(true))[:size]
        rest = ~np.isin(kin, kin[ours])
        errors, expected, truth = (true - predicted)[rest], predicted[ours].mean(0), true[ours].mean(0)
        low, high = share_interval(expected[None], errors, heads=size, rng=rng, resamples=RESAMPLES)
        covers.append((low <= truth) & (truth <= high))
        off.append(corrected(expected, errors.mean(0)) - truth)
        raw_off.append(raw[ours].mean(0) - truth)

    def named(values: Float[np.ndarray, " classes"]) -> dict[str, float]:
        return dict(zip(CLASSES, values.round(4).tolist(), strict=True))

    return {
        "heads": size,
        "models": MODELS,
        "covers": named(np.mean(covers, axis=0)),
        "corrected_error": named(100 * np.sqrt(np.mean(np.square(off), axis=0))),
        "raw_error": named(100 * np.sqrt(np.mean(np.square(raw_off), axis=0))),
    }
