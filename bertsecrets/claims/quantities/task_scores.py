"""Scores (K19 table 1) and their differences, in percentage points."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimand import Estimand, Number, clusters_of
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.metrics import METRICS, moments
from bertsecrets.texts.published import SEVEN_TASKS
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

SCORES = Need("scores")


def metric_name(measurement: Measurement) -> str:
    """Return the task's metric in K19's table 1: accuracy, or Pearson's correlation for regression."""
    return "pearson" if TASKS[measurement.subject.task].regression else "accuracy"


def in_points(metric: str) -> Callable[[np.ndarray], Number]:
    """Return a function that computes a metric in points, that is, multiplied by 100."""
    return lambda mean: 100 * METRICS[metric](mean)


def _moments(scores: Measurement) -> Float[np.ndarray, "examples k"]:
    return moments(metric_name(scores), scores.sample("predicted"), scores.sample("target"))


def score_range(task: str) -> tuple[float, float]:
    """Return the range of scores on a task, in points."""
    return (-100, 100) if TASKS[task].regression else (0, 100)


@quantity("score", unit="points", inherits=False, within=score_range, scores=SCORES)
def score(scores: Measurement) -> Estimand:
    """Return accuracy, or Pearson's correlation for a regression task."""
    nothing = 0.0 if metric_name(scores) == "pearson" else 100 * float(_majority(scores).mean())
    return _of_metric(scores, metric_name(scores), nothing)


def _of_metric(scores: Measurement, metric: str, nothing: float) -> Estimand:
    """Return a metric in points. `nothing` is the score of a model that always gives the same answer."""
    constant, clusters = bool(scores.values.get("constant")), clusters_of(scores)
    points = in_points(metric)
    return Estimand.from_block(_moments(scores), points, clusters=clusters, nothing=nothing, constant=constant)


def _majority(scores: Measurement) -> Float[np.ndarray, " examples"]:
    """Return 1 for examples of the majority class, 0 for others."""
    target = scores.sample("target").astype(int)
    return (target == np.bincount(target).argmax()).astype(float)


@quantity("f1", unit="points", inherits=False, within=(0, 100), scores=SCORES)
def f1_score(scores: Measurement) -> Estimand:
    """Return the F1 of class 1."""
    share = float((scores.sample("target").astype(int) == 1).mean())
    return _of_metric(scores, "f1", 100 * 2 * share / (1 + share))  # the last is the F1 of always predicting 1


@quantity("score-difference", unit="points", inherits=False, own=SCORES, other=Need("scores", "against"))
def difference(own: Measurement, other: Measurement, with_f1: bool = False, above_majority: bool = False) -> Estimand:
    """Return one subject's score minus the other's, on the same examples.

    Args:
        with_f1: Whether to use F1 on tasks where it is the official metric.
        above_majority: Whether to compare with the majority class as well and return the smaller difference. A model
            that always gives the same answer then never counts as better. Ignored for correlations.
    """
    if above_majority and metric_name(own) == "accuracy":
        return _lead_over_both(own, other)
    of_own, of_other = _moments(own), _moments(other)
    has_f1 = with_f1 and TASKS[own.subject.task].metric == "f1"
    k, points = of_own.shape[1], in_points("f1" if has_f1 else metric_name(own))
    gap = lambda mean: points(mean[..., :k]) - points(mean[..., k:])  # noqa: E731
    return Estimand.from_block(np.hstack([of_own, of_other]), gap, clusters=clusters_of(own))


def _lead_over_both(own: Measurement, other: Measurement) -> Estimand:
    """Return the accuracy of `own` minus that of `other`, and also minus the accuracy of the majority class."""
    block = np.stack([_moments(own)[:, 0], _moments(other)[:, 0], _majority(own)], axis=1)
    of_own, of_other, majority = 100 * block.mean(0)
    note = f"{of_own:.1f} against {of_other:.1f}; {majority:.1f} for the most frequent class"
    leads = lambda mean: 100 * (mean[..., :1] - mean[..., 1:])  # noqa: E731
    return Estimand.from_block(block, leads, note, clusters=clusters_of(own), extreme="least")


def mean_over_tasks(by_task: Sequence[Estimand]) -> Estimand:
    """Return the mean of each part over tasks; the examples of each task are resampled independently."""

    def statistic(*means: np.ndarray) -> Number:
        values = [np.asarray(task.statistic(mean)) for task, mean in zip(by_task, means, strict=True)]
        return np.mean(np.broadcast_arrays(*values), axis=0)

    blocks, clusters = tuple(task.blocks[0] for task in by_task), tuple(task.clusters[0] for task in by_task)
    return Estimand(blocks, statistic, clusters=clusters, extreme=by_task[0].extreme)


@quantity(
    "mean-score-difference",
    unit="points",
    inherits=False,
    own=Need("scores", tasks=SEVEN_TASKS),
    other=Need("scores", "against", tasks=SEVEN_TASKS),
)
def mean_difference(own: tuple[Measurement, ...], other: tuple[Measurement, ...], with_f1: bool = False) -> Estimand:
    """Return one subject's score minus the other's, averaged over K19's seven tasks."""
    return mean_over_tasks([difference(tuned, plain, with_f1) for tuned, plain in zip(own, other, strict=True)])


@quantity("cased-loss", unit="points", inherits=False, scores=SCORES, cased=Need("scores", options={"cased": True}))
def cased_loss(scores: Measurement, cased: Measurement, nothing: float | None = None) -> Estimand:
    """Return a checkpoint's score minus its score with the tokenizer's lower-casing disabled.

    Args:
        nothing: Expected drop of the score if lower-casing does not matter. A published drop counts as reproduced only
            if the interval excludes `nothing`.
    """
    if not cased.value("lower_cases"):
        raise NotApplicableError("the model's tokenizer does not lower-case")
    return replace(difference(scores, cased), nothing=nothing, nothing_is="no loss at all")


@quantity(
    "shuffling-loss", unit="points", inherits=False, scores=SCORES, shuffled=Need("scores", options={"shuffle": 1})
)
def shuffling_loss(scores: Measurement, shuffled: Measurement) -> Estimand:
    """Return a checkpoint's score minus its score with the words of each text in a random order."""
    estimand = difference(scores, shuffled)
    before, after = (float(score(measurement).value) for measurement in (scores, shuffled))
    return replace(estimand, notes=(f"{before:.1f} in order, {after:.1f} shuffled",))


@quantity("score-over-majority", unit="points", inherits=False, scores=SCORES)
def over_majority(scores: Measurement) -> Estimand:
    """Return the accuracy minus that of the majority class; for regression, the correlation.

    A model that always gives the same answer cannot beat the majority class on any examples, so it refutes the claim.
    """
    refuted = "a constant answer is never above the majority class" if scores.values.get("constant") else ""
    if metric_name(scores) == "pearson":
        return replace(score(scores), refuted=refuted)
    points = in_points("accuracy")
    block = np.hstack([_moments(scores), _majority(scores)[:, None]])
    lead = lambda mean: points(mean[..., :-1]) - 100 * mean[..., -1]  # noqa: E731
    return Estimand.from_block(block, lead, clusters=clusters_of(scores), refuted=refuted)
