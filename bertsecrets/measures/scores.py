"""Scores on the validation set, and what a constant answer would score on it (K19 section 3, table 1).

Every score comes with its majority-class baseline and the entropy of the predicted classes, so that a
classifier which always gives the same answer is named as such.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from bertsecrets.texts.tasks import Task


def decide(task: Task, logits: Float[np.ndarray, "examples outputs"]) -> np.ndarray:
    """Predicted class numbers, or predicted scores for a regression task."""
    return logits[:, 0].astype(np.float64) if task.regression else logits.argmax(1)


def metrics(task: Task, predicted: np.ndarray, targets: Sequence[float] | np.ndarray) -> dict[str, float]:
    """All metrics of the task, as fractions: accuracy (and F1 of the positive class), or both correlations.

    A correlation with a constant prediction is undefined and given as 0.
    """
    truth = np.asarray(targets)
    if task.regression:
        if np.ptp(predicted) == 0 or np.ptp(truth) == 0:
            return {"pearson": 0.0, "spearman": 0.0}
        return {
            "pearson": float(stats.pearsonr(predicted, truth).statistic),
            "spearman": float(stats.spearmanr(predicted, truth).statistic),
        }
    found = {"accuracy": float((predicted == truth).mean())}
    if task.metric == "f1":
        found["f1"] = f1_score(predicted, truth)
    return found


def f1_score(predicted: np.ndarray, truth: np.ndarray) -> float:
    """F1 of class 1; 0 where nothing is, or should be, positive."""
    hits = int(((predicted == 1) & (truth == 1)).sum())
    named = int((predicted == 1).sum()) + int((truth == 1).sum())
    return 2 * hits / named if named else 0.0


def class_entropy(task: Task, predicted: Int[np.ndarray, " examples"]) -> float:
    """Entropy of the predicted classes in bits; 0 for a constant predictor."""
    share = np.bincount(predicted, minlength=task.outputs) / max(len(predicted), 1)
    return float(stats.entropy(share, base=2))


def majority_share(targets: Sequence[float] | np.ndarray) -> float:
    """Accuracy of always answering this split's most frequent class."""
    return float(np.bincount(np.asarray(targets, dtype=np.int64)).max() / len(targets))


def is_constant(task: Task, predicted: np.ndarray) -> bool:
    """Whether the classifier gives one answer to every example (for scores: a spread below a hundredth)."""
    return bool(np.ptp(predicted) < 0.01) if task.regression else bool(np.ptp(predicted) == 0)


def scores(
    task: Task, logits: Float[np.ndarray, "examples outputs"], targets: Sequence[float]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and samples of the `scores` measure.

    Returns:
        All metrics, `constant`, and for classes `majority` and `entropy` (bits); samples `predicted` and `target`.
    """
    predicted = decide(task, logits)
    values: dict[str, Any] = {**metrics(task, predicted, targets), "constant": is_constant(task, predicted)}
    if not task.regression:
        values["majority"] = majority_share(targets)
        values["entropy"] = class_entropy(task, predicted)
    return values, {"predicted": predicted, "target": np.asarray(targets)}
