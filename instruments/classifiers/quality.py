"""Comparison of classifiers on the same held-out heads. Intervals resample heads, because a head's maps are similar."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.bootstrap import central_interval, resample_counts
from bertsecrets.patterns.recorded_quality import confusions_by_head, scores
from bertsecrets.texts.metrics import f1, macro_f1
from instruments.classifiers.crossval import HeldOut, LabelledMaps, Method, held_out

BINS = 10  # confidence bins, for calibration
RESAMPLES, CONFIDENCE = 2000, 0.95  # number of resamples and confidence level of bootstrap intervals


def confusion(
    labels: Int[np.ndarray, " maps"], predicted: Int[np.ndarray, " maps"]
) -> Float[np.ndarray, "classes classes"]:
    """Return the confusion matrix, [true, predicted].

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]))[:2, :2].tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return confusions_by_head(np.zeros(len(labels)), labels, predicted).sum(0)


def macro_f1_of_all(labels: Int[np.ndarray, " maps"], predicted: Int[np.ndarray, " maps"]) -> float:
    """Return the macro-F1 used for model selection, in which classes that never occur count as 0.

    >>> macro_f1_of_all(np.array([0, 0, 1]), np.array([0, 0, 1]))
    0.4
    """
    counts = confusion(labels, predicted)
    return float(f1(np.diagonal(counts), counts.sum(0), counts.sum(1), empty=0.0).mean())


def calibration(judged: HeldOut) -> dict[str, Any]:
    """Return the expected calibration error and the reliability curve."""
    sure, right = judged.probabilities.max(1), judged.predicted == judged.labels
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins = [
        {"confidence": float(sure[here].mean()), "accuracy": float(right[here].mean()), "maps": int(here.sum())}
        for here in (places == i for i in range(BINS))
        if here.any()
    ]
    error = sum(b["maps"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(sure)
    return {"expected_calibration_error": float(error), "reliability": bins}


def quality(judged: HeldOut, seed: int) -> dict[str, Any]:
    """Return all metrics of a classifier on held-out heads, for all maps and for maps with agreeing annotators."""
    return {
        **_scores(judged.confusions(), seed),
        **calibration(judged),
        "agreed": _scores(judged.confusions(agreed=True), seed),
    }


def _scores(parts: Float[np.ndarray, "heads classes classes"], seed: int) -> dict[str, Any]:
    low, high = central_interval(macro_f1(_resampled_sums(parts, seed)), CONFIDENCE)
    interval = {"macro_f1_interval": [float(low), float(high)], "confusion": parts.sum(0).astype(int).tolist()}
    return scores(parts) | interval


def advantage(first: HeldOut, second: HeldOut, seed: int) -> dict[str, Any]:
    """Return the difference in macro-F1 of two classifiers on the same maps, with a paired bootstrap over heads."""
    both = _resampled_sums(np.stack([first.confusions(), second.confusions()], axis=1), seed)
    gaps = macro_f1(both[:, 0]) - macro_f1(both[:, 1])
    value = macro_f1(first.confusions().sum(0)) - macro_f1(second.confusions().sum(0))
    low, high = central_interval(gaps, CONFIDENCE)
    return {"macro_f1": float(value), "interval": [float(low), float(high)], "above_zero": float((gaps > 0).mean())}


def _resampled_sums(parts: Float[np.ndarray, " heads *rest"], seed: int) -> Float[np.ndarray, " resamples *rest"]:
    """Return the sum over the drawn heads in each bootstrap resample."""
    drawn = resample_counts(np.random.default_rng(seed), len(parts), RESAMPLES)
    return np.concatenate([np.tensordot(counts, parts, axes=1) for counts in drawn])


def compare(
    methods: Mapping[str, Method],
    data: LabelledMaps,
    seed: int,
    progress: Callable[[str, str], Any] = lambda method, line: None,
    *,
    unsure: LabelledMaps | None = None,
) -> tuple[dict[str, Any], dict[str, HeldOut]]:
    """Evaluate all methods on the same folds, and compare the first method with each of the others.

    Args:
        unsure: Further maps to train on (see `held_out`).

    Returns:
        The metrics of all methods, and their predictions by name.
    """
    judged = {
        name: held_out(method, data, seed, partial(progress, name), unsure=unsure) for name, method in methods.items()
    }
    first = next(iter(judged))
    figures = {
        "classifiers": {name: quality(own, seed) for name, own in judged.items()},
        "advantage": {name: advantage(judged[first], own, seed) for name, own in judged.items() if name != first},
    }
    return figures, judged
