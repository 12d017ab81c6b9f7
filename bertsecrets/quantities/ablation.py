"""Disabled heads and layers: gains, that is the score with a set disabled minus the baseline, in points.

The metric is figure 8's: F1 for MRPC and QQP, correlation for STS-B, accuracy else. All is paired on the same examples.
"""

from collections.abc import Sequence

import numpy as np

from bertsecrets.core import Measurement
from bertsecrets.quantities.reading import Reading
from bertsecrets.quantities.scores import moments_of, task_metric
from bertsecrets.tasks import TASKS

CHOOSING, JUDGING = slice(0, None, 2), slice(1, None, 2)  # two halves of the examples


def gain(found: Measurement, task_name: str, chosen: int, rows: slice = slice(None)) -> Reading:
    """The gain of one set, on some of the examples."""
    regression, metric = TASKS[task_name].regression, task_metric(task_name)
    target = found.samples["target"][rows]
    after = moments_of(found.samples["predicted"][chosen][rows], target, regression)
    before = moments_of(found.samples["baseline_predicted"][rows], target, regression)
    k = after.shape[1]
    return Reading.of(np.hstack([after, before]), lambda mean: metric(mean[..., :k]) - metric(mean[..., k:]))


def gains(found: Measurement, task_name: str, rows: slice = slice(None)) -> np.ndarray:
    """The gain of every set."""
    return np.array([gain(found, task_name, i, rows).value for i in range(len(found.samples["predicted"]))])


def best_head(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the best head: chosen on every other example, judged on the rest, so that luck is not counted."""
    return gain(found[0], task_name, int(gains(found[0], task_name, CHOOSING).argmax()), JUDGING)


def worst_head(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the most harmful head to lose: chosen on every other example, judged on the rest."""
    return gain(found[0], task_name, int(gains(found[0], task_name, CHOOSING).argmin()), JUDGING)


def mean_gain(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of disabling one head, averaged over all heads."""
    sets = len(found[0].samples["predicted"])
    readings = [gain(found[0], task_name, i) for i in range(sets)]
    k = readings[0].blocks[0].shape[1] // 2
    samples = np.hstack([*(one.blocks[0][:, :k] for one in readings), readings[0].blocks[0][:, k:]])

    def statistic(mean: np.ndarray) -> np.ndarray:
        before = mean[..., -k:]
        both = (np.concatenate([mean[..., i * k : (i + 1) * k], before], axis=-1) for i in range(sets))
        return np.mean([readings[0].statistic(each) for each in both], axis=0)

    return Reading.of(samples, statistic)


def first_layer(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of disabling the first layer."""
    return gain(found[0], task_name, 0)
