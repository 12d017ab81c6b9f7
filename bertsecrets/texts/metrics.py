"""GLUE metrics, written as functions of means over examples so that resampling is a matrix product.

Predictions are converted to a few numbers per example, called *moments*. Every metric is computed from the means of
these moments. Scores are fractions. This module only needs numpy.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.texts.tasks import Task

Number = np.ndarray | np.floating
Metric = Callable[[np.ndarray], Number]

FEWEST_EXAMPLES = 30  # examples; with fewer, bootstrap intervals have poor coverage
MISORDERED_ERRORS = 3.3  # number of standard errors that rules out chance (0.05 %, one-sided)


def f1(hits: np.ndarray, named: np.ndarray, true: np.ndarray, empty: float = 0.0) -> np.ndarray:
    """Return F1, the harmonic mean of precision and recall.

    If no positives are predicted and none exist, return `empty`.

    Args:
        hits: Number (or fraction) of true positives.
        named: Number (or fraction) of predicted positives.
        true: Number (or fraction) of actual positives.

    >>> float(f1(np.array(2.0), np.array(3.0), np.array(5.0)))
    0.5
    """
    both = np.asarray(named + true, dtype=np.float64)
    return np.divide(2 * hits, both, out=np.full(both.shape, empty), where=both > 0)


def f1_by_class(confusion: Float[np.ndarray, "*any classes classes"]) -> Float[np.ndarray, "*any classes"]:
    """Return each class's F1, given confusion matrices [true, predicted]; NaN if it neither occurs nor is predicted.

    >>> f1_by_class(np.array([[3.0, 1, 0], [1, 3, 0], [0, 0, 0]])).tolist()
    [0.75, 0.75, nan]
    """
    return f1(np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(-2), confusion.sum(-1), np.nan)


def macro_f1(confusion: Float[np.ndarray, "*any classes classes"]) -> Float[np.ndarray, "*any"]:
    """Return the mean F1 over the classes that occur or are predicted, given confusion matrices [true, predicted].

    >>> float(macro_f1(np.array([[3.0, 1, 0], [1, 3, 0], [0, 0, 0]])))
    0.75
    """
    return np.asarray(np.nanmean(f1_by_class(confusion), axis=-1))


def class_moments(predicted: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "examples 4"]:
    """Return four flags per example: correct, true positive, predicted as class 1, and labelled as class 1."""
    p, t = predicted.astype(float), target.astype(float)
    return np.stack([p == t, (p == 1) & (t == 1), p == 1, t == 1], axis=1).astype(float)


def score_moments(predicted: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "examples 5"]:
    """Return the five terms of a correlation for each example: prediction p, target t, p * p, t * t and p * t."""
    p, t = predicted.astype(float), target.astype(float)
    return np.stack([p, t, p * p, t * t, p * t], axis=1)


def accuracy(mean: Float[np.ndarray, "*any 4"]) -> Number:
    """Return the accuracy from the means of `class_moments`."""
    return mean[..., 0]


def positive_f1(mean: Float[np.ndarray, "*any 4"]) -> Number:
    """Return the F1 of class 1 from the means of `class_moments`."""
    return f1(mean[..., 1], mean[..., 2], mean[..., 3])


def pearson(mean: Float[np.ndarray, "*any 5"]) -> Number:
    """Return Pearson's correlation from the means of `score_moments`, or 0 if one of the two variables is constant."""
    p, t, pp, tt, pt = (mean[..., i] for i in range(5))
    spread = np.sqrt(np.maximum(pp - p * p, 0) * np.maximum(tt - t * t, 0))
    return np.divide(pt - p * t, spread, out=np.zeros_like(spread), where=spread > 1e-12)


METRICS: dict[str, Metric] = {"accuracy": accuracy, "f1": positive_f1, "pearson": pearson}


def moments(metric: str, predicted: np.ndarray, target: np.ndarray) -> Float[np.ndarray, "examples k"]:
    """Return, for each example, the moments from which the metric is computed."""
    return score_moments(predicted, target) if metric == "pearson" else class_moments(predicted, target)


def decide(task: Task, logits: Float[np.ndarray, "examples outputs"]) -> np.ndarray:
    """Return the class indices or, for a regression task, the scores that the logits predict."""
    return logits[:, 0].astype(np.float64) if task.regression else logits.argmax(1)


def is_constant(task: Task, predicted: np.ndarray | Sequence[float]) -> bool:
    """Return whether all predictions (or labels) are the same or, for a regression task, differ by less than 0.01."""
    return bool(np.ptp(predicted) < 0.01) if task.regression else bool(np.ptp(predicted) == 0)


def has_collapsed(task: Task, predicted: np.ndarray, target: np.ndarray) -> bool:
    """Return whether a model gives the same answer to every example, although the labels of enough examples differ."""
    return len(target) >= FEWEST_EXAMPLES and is_constant(task, predicted) and not is_constant(task, target)


def score(metric: str, predicted: np.ndarray, target: np.ndarray) -> float:
    """Return the value of a metric as a fraction. The correlation with a constant is undefined, so 0 is returned.

    >>> score("accuracy", np.array([0, 1, 1]), np.array([0, 1, 0]))
    0.6666666666666666
    """
    if metric == "pearson":  # centring does not change it, and keeps the squares precise
        predicted, target = predicted - np.mean(predicted), target - np.mean(target)
    return float(METRICS[metric](moments(metric, predicted, target).mean(0)))


def scores(task: Task, predicted: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """Return all metrics of a task as fractions: two correlations, or the accuracy and the metric of the task."""
    if not task.regression:
        return {name: score(name, predicted, target) for name in dict.fromkeys(("accuracy", task.metric))}
    from scipy.stats import rankdata  # takes most of a second to import

    ranks = rankdata(predicted), rankdata(target)
    return {"pearson": score("pearson", predicted, target), "spearman": score("pearson", *ranks)}


def if_shuffled(
    points: Float[np.ndarray, "classes classes"], predicted: Int[np.ndarray, " rows"], target: Int[np.ndarray, " rows"]
) -> tuple[float, float]:
    """Return the exact mean and standard deviation of a sum over rows if the predictions are shuffled (Hoeffding 1951).

    Args:
        points: Contribution of a data row to the sum, by predicted class (first axis) and true class (second axis).

    >>> if_shuffled(np.eye(2), np.array([0, 1]), np.array([0, 1]))  # both right or both wrong
    (1.0, 1.0)
    """
    rows = len(target)
    said, true = (np.bincount(answers, minlength=len(points)) for answers in (predicted, target))
    by_said, by_true = points @ true / rows, said @ points / rows
    mean = float(said @ by_said)
    off = points - by_said[:, None] - by_true + mean / rows
    return mean, float(np.sqrt((said[:, None] * true * off**2).sum() / max(rows - 1, 1)))


def order_problem(task: Task, predicted: np.ndarray, target: np.ndarray) -> str | None:
    """Return a message if a model's classes or scores seem to be in the wrong order, or else None.

    For classes, this is the case if permuting them would improve the accuracy by more than `MISORDERED_ERRORS` standard
    errors, and by more than its current margin over chance. For scores, this is the case if their correlation with the
    labels is at least `MISORDERED_ERRORS` standard errors below 0.
    """
    if task.regression:
        varied = len(target) > 1 and np.ptp(predicted) > 0 and np.ptp(target) > 0
        correlation = float(np.corrcoef(predicted, target)[0, 1]) if varied else 0.0
        if correlation * np.sqrt(len(target)) > -MISORDERED_ERRORS:
            return None
        return (
            f"worse than chance: the correlation of its scores with the labels is {correlation:.2f}: "
            "are the scores reversed?"
        )
    predicted, target = predicted.astype(np.int64), target.astype(np.int64)
    from scipy.optimize import linear_sum_assignment  # takes a third of a second to import

    identity = np.eye(task.outputs)
    rows = identity[predicted].T @ identity[target]  # by predicted and true class
    classes, best = linear_sum_assignment(rows, maximize=True)
    own, most = int(np.trace(rows)), int(rows[classes, best].sum())
    chance, _ = if_shuffled(identity, predicted, target)
    expected, error = if_shuffled(identity[best] - identity, predicted, target)
    if most - own - expected <= max(MISORDERED_ERRORS * error, own - chance):
        return None
    names = [", ".join(task.labels[index] for index in order) for order in (classes, best)]
    renamed = "the classes were swapped" if task.outputs == 2 else f"the classes {names[0]} were renamed {names[1]}"
    worse = "worse than chance" if own < chance else "classes in the wrong order"
    shares = [f"{100 * count / len(target):.1f} %" for count in (own, most)]
    right = f"{shares[0]} of the predictions are right, but {shares[1]} would be right if {renamed}"
    return f"{worse}: {right}; correct the class names in config.json (id2label)"
