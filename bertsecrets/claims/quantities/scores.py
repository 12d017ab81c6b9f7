"""Scores, in points (percent)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimand import NotApplicableError, Number, Reading, Statistic
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

Moments = Float[np.ndarray, "examples k"]


def moments_of(predicted: np.ndarray, target: np.ndarray, regression: bool) -> Moments:
    """Per-example numbers from whose means every metric follows."""
    p, t = predicted.astype(float), target.astype(float)
    if regression:
        return np.stack([p, t, p * p, t * t, p * t], axis=1)
    return np.stack([p == t, (p == 1) & (t == 1), p == 1, t == 1], axis=1).astype(float)


def pearson(mean: np.ndarray) -> Number:
    """Pearson's correlation from moments; 0 where either side is constant."""
    p, t, pp, tt, pt = (mean[..., i] for i in range(5))
    spread = np.sqrt(np.maximum(pp - p * p, 0) * np.maximum(tt - t * t, 0))
    return 100 * np.divide(pt - p * t, spread, out=np.zeros_like(spread), where=spread > 1e-12)


def accuracy(mean: np.ndarray) -> Number:
    """Accuracy from moments."""
    return 100 * mean[..., 0]


def f1(mean: np.ndarray) -> Number:
    """F1 of class 1 from moments; 0 where nothing is, or should be, positive."""
    named = mean[..., 2] + mean[..., 3]
    return 100 * np.divide(2 * mean[..., 1], named, out=np.zeros_like(named), where=named > 0)


def task_metric(task_name: str) -> Statistic:
    """The metric of figures 8 and 9: F1, correlation or accuracy, by task."""
    return {"f1": f1, "pearson": pearson, "accuracy": accuracy}[TASKS[task_name].metric]


def _moments(found: Measurement) -> Moments:
    return moments_of(found.samples["predicted"], found.samples["target"], "pearson" in found.values)


def _plain_metric(found: Measurement) -> Statistic:
    """Accuracy, or Pearson's correlation for a regression task: the columns of K19's table 1 that all tasks have."""
    return pearson if "pearson" in found.values else accuracy


def score(found: Sequence[Measurement], task_name: str) -> Reading:
    """Accuracy or Pearson's correlation."""
    return Reading.of(_moments(found[0]), _plain_metric(found[0]))


def f1_score(found: Sequence[Measurement], task_name: str) -> Reading:
    """F1 of class 1."""
    return Reading.of(_moments(found[0]), f1)


def difference(found: Sequence[Measurement], task_name: str, with_f1: bool = False) -> Reading:
    """Own score minus the other's, on the same examples; with F1 where asked for and the task has it."""
    one, other = _moments(found[0]), _moments(found[1])
    k, metric = one.shape[1], f1 if with_f1 and TASKS[task_name].metric == "f1" else _plain_metric(found[0])
    return Reading.of(np.hstack([one, other]), lambda mean: metric(mean[..., :k]) - metric(mean[..., k:]))


def mean_difference(found: Sequence[Measurement], task_name: str, with_f1: bool = False) -> Reading:
    """Own score minus the other's, averaged over tasks; the own ones of all tasks come first, then the others'.

    Args:
        with_f1: take F1 for the tasks that have it.
    """
    half = len(found) // 2
    each = [difference(pair, pair[0].subject.task, with_f1) for pair in zip(found[:half], found[half:], strict=True)]

    def statistic(*means: np.ndarray) -> Number:
        return np.mean([one.statistic(mean) for one, mean in zip(each, means, strict=True)], axis=0)

    return Reading(tuple(one.blocks[0] for one in each), statistic)


def cased_loss(found: Sequence[Measurement], task_name: str) -> Reading:
    """The score of a checkpoint minus that of the same with its tokenizer's lower-casing off."""
    if not found[1].values["lower_cases"]:
        raise NotApplicableError("the model's tokenizer does not lower-case")
    return difference(found, task_name)


def over_majority(found: Sequence[Measurement], task_name: str) -> Reading:
    """Accuracy minus that of the most frequent class; a correlation, whose constant answer scores 0, as it is."""
    moments, metric = _moments(found[0]), _plain_metric(found[0])
    if metric is pearson:
        return Reading.of(moments, metric)
    target = found[0].samples["target"].astype(int)
    right = (target == np.bincount(target).argmax()).astype(float)
    return Reading.of(np.hstack([moments, right[:, None]]), lambda mean: accuracy(mean) - 100 * mean[..., -1])
