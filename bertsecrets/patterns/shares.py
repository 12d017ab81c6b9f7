"""Shares of the pattern classes, corrected for what the classifier gets wrong, with intervals that count its errors.

Prediction-powered inference (Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, Science 382): to the mean of the class
probabilities comes how far these were from the labels, on average, on annotated heads that the classifier had not seen.
What a classifier gets wrong on a model hangs on the heads that this model happens to have: resamples draw about as
many annotated heads as it has, not as many as were annotated. An annotated head's error is known from a few maps, a
model's is the mean over many, so these intervals are rather too wide where all maps of a head are alike.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.patterns.classes import CLASSES

MODELS = 400  # sets of annotated heads that `audit` takes for models
RESAMPLES = 400  # of each


def raw_shares(predicted: Int[np.ndarray, " examples *heads"]) -> Float[np.ndarray, "examples classes"]:
    """Per example, the share of heads of each predicted class."""
    flat = predicted.reshape(len(predicted), -1)
    return np.stack([(flat == i).mean(1) for i in range(len(CLASSES))], axis=1)


def corrected(
    expected: Float[np.ndarray, "*one classes"], errors: Float[np.ndarray, "*other classes"]
) -> Float[np.ndarray, "*both classes"]:
    """The nearest possible shares to the mean of the probabilities plus the mean of the errors."""
    return on_simplex(expected + errors)


def on_simplex(values: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
    """The nearest shares: not negative, summing to 1."""
    down = -np.sort(-values, axis=-1)
    excess = down.cumsum(-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    kept = (down - excess / ranks > 0).sum(-1, keepdims=True)
    level = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    return np.maximum(values - level, 0)


def with_intervals(
    expected: Float[np.ndarray, "examples classes"],
    errors: Float[np.ndarray, "annotated classes"],
    heads: int,
    seed: int,
    resamples: int,
    confidence: float = 0.95,
) -> dict[str, Float[np.ndarray, " classes"]]:
    """`corrected` shares, and the `low` and `high` ends of their bootstrap interval.

    Args:
        expected: per example, the mean over heads of the classifier's probabilities.
        errors: per annotated head, what `classifier.held_out_errors` gives.
        heads: how many the model has.
    """
    rng = np.random.default_rng(seed)
    drawn = heads_to_draw(heads, len(errors))
    draws = corrected(_means(expected, len(expected), resamples, rng), _means(errors, drawn, resamples, rng))
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return {"corrected": corrected(expected.mean(0), errors.mean(0)), "low": low, "high": high}


def heads_to_draw(heads: int, annotated: int) -> int:
    """How many annotated heads to draw, for means as far apart as those of the model's heads and of all annotated ones.

    Both are samples: their variances, which go with one over their sizes, add up.
    """
    return max(1, round(heads * annotated / (heads + annotated)))


def _means(
    rows: Float[np.ndarray, "rows classes"], drawn: int, resamples: int, rng: np.random.Generator
) -> Float[np.ndarray, "resamples classes"]:
    """The means of so many rows, drawn with replacement."""
    counts = rng.multinomial(drawn, np.full(len(rows), 1 / len(rows)), size=resamples)
    return counts @ rows / drawn


def audit(
    labels: Int[np.ndarray, " maps"],
    probabilities: Float[np.ndarray, "maps classes"],
    heads: np.ndarray,
    groups: np.ndarray,
    size: int,
    seed: int,
) -> dict[str, Any]:
    """How good corrected shares and their 95 % intervals are, where the truth is known: on the annotated maps.

    Again and again `size` annotated heads are drawn and taken for a model, whose true shares their labels give; the
    errors on all other heads, kin left out, correct what the classifier says of it. All heads weigh alike.

    Args:
        probabilities: of a classifier that has not seen the map's head, nor its kin.
        heads: each map's model, layer and head.
        groups: which of them are kin.

    Returns:
        by class, the share of models whose true share the interval `covers`, and the root mean square error of
        the `corrected` shares and of the `raw` ones (of most likely classes), in percent; and `heads` and `models`.
    """
    true = by_head(np.eye(len(CLASSES))[labels], heads)
    said = by_head(probabilities, heads)
    raw = by_head(np.eye(len(CLASSES))[probabilities.argmax(1)], heads)
    kin = groups[np.unique(heads, return_index=True)[1]]
    rng = np.random.default_rng(seed)
    covers, off, raw_off = [], [], []
    for _ in range(MODELS):
        ours = rng.permutation(len(true))[:size]
        rest = ~np.isin(kin, kin[ours])
        errors, expected, truth = (true - said)[rest], said[ours].mean(0), true[ours].mean(0)
        drawn = _means(errors, heads_to_draw(size, len(errors)), RESAMPLES, rng)
        low, high = np.quantile(corrected(expected, drawn), [0.025, 0.975], axis=0)
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


def by_head(values: Float[np.ndarray, "maps classes"], heads: np.ndarray) -> Float[np.ndarray, "heads classes"]:
    """The mean of the maps of each head."""
    names, places = np.unique(heads, return_inverse=True)
    found = np.zeros((len(names), values.shape[1]))
    np.add.at(found, places, values)
    return found / np.bincount(places)[:, None]


def majority(predicted: Int[np.ndarray, " examples *heads"]) -> tuple[np.ndarray, np.ndarray]:
    """Per head its most frequent class (an index into `CLASSES`) and the share of examples that have it (claim A3)."""
    counts = np.stack([(predicted == i).mean(0) for i in range(len(CLASSES))])
    return counts.argmax(0), counts.max(0)
