"""Softmax regression on features, fitted by scikit-learn and converted to plain tensors."""

import warnings

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.extras import from_extra
from bertsecrets.patterns.boosting import ABSENT
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.softmax import Softmax

PENALTY = 0.3  # inverse strength of the L2 penalty
STEPS = 150  # of the solver; full convergence is not needed, since held-out maps decide


def regress(
    table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], penalty: float = PENALTY
) -> Softmax:
    """Return a regression trained on features, with equal weights for all classes.

    Raises:
        MissingError: scikit-learn is not installed.
    """
    with from_extra("scikit-learn"):
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler
    wide = table.astype(np.float64)
    scaler = StandardScaler().fit(wide)
    seen = np.unique(labels)
    if len(seen) == 1:  # a single class
        flat, bias = np.zeros((len(CLASSES), table.shape[1])), np.where(np.arange(len(CLASSES)) == seen[0], 0.0, ABSENT)
        return Softmax(*(torch.from_numpy(part) for part in (scaler.mean_, scaler.scale_, flat, bias)))
    model = LogisticRegression(C=penalty, class_weight="balanced", max_iter=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaler.transform(wide), labels)
    several = len(model.classes_) > 2
    weight = np.zeros((len(CLASSES), table.shape[1]))
    bias = np.full(len(CLASSES), ABSENT)
    # For two classes, scikit-learn keeps one row of weights: that of the second class against the first.
    weight[model.classes_ if several else model.classes_[1:]] = model.coef_
    bias[model.classes_] = model.intercept_ if several else (0.0, model.intercept_[0])
    return Softmax(*(torch.from_numpy(part) for part in (scaler.mean_, scaler.scale_, weight, bias)))
