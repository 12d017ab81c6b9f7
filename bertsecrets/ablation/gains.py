"""Gains from disabling heads, computed from stored predictions.

A gain is the score with a set of heads disabled minus the baseline score, in points. The metrics are the same as in
K19's figure 8: F1 for MRPC and QQP, correlation for STS-B, and accuracy for the other tasks. The score and the baseline
score are computed on the same examples. This module does not import torch.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from bertsecrets.texts.metrics import METRICS, Metric, moments
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

Rows = slice | Bool[np.ndarray, " rows"]
ALL_ROWS = slice(None)
Block = Float[np.ndarray, "examples k"]
Gains = Callable[[np.ndarray], np.ndarray]


def metric_of(measurement: Measurement) -> Metric:
    """Return the function that computes the measured task's metric from mean moments."""
    return METRICS[TASKS[measurement.subject.task].metric]


def gains_of(measurement: Measurement, sets: Sequence[int] | None = None, rows: Rows = ALL_ROWS) -> tuple[Block, Gains]:
    """Return a block of moments, and a function that computes gains from the block's column means.

    The function takes means [..., k] and returns gains [..., sets] in points. By default, all sets and all examples are
    included.
    """
    metric = TASKS[measurement.subject.task].metric
    predicted, target = measurement.sample("predicted"), measurement.sample("target")[rows]
    chosen = range(len(predicted)) if sets is None else sets
    before = moments(metric, measurement.sample("baseline_predicted")[rows], target)
    block = np.hstack([before, *(moments(metric, predicted[i][rows], target) for i in chosen)])
    k = before.shape[1]

    def of_means(mean: np.ndarray) -> np.ndarray:
        points = 100 * np.asarray(metric_of(measurement)(mean.reshape(*mean.shape[:-1], -1, k)))
        return points[..., 1:] - points[..., :1]

    return block, of_means


def all_gains(measurement: Measurement, rows: Rows = ALL_ROWS) -> Float[np.ndarray, " sets"]:
    """Return the gain from disabling each set of heads, in points. The examples are not resampled."""
    block, gains = gains_of(measurement, None, rows)
    return gains(block.mean(0))
