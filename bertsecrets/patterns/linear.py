"""Softmax regression on standardised features: fitted by scikit-learn, kept and run as plain tensors."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from bertsecrets.patterns.classes import CLASSES

PENALTY = 0.1  # inverse strength of the L2 penalty
STEPS = 400  # of the solver, at most
FAR = 6.0  # standardised features are clipped here: a map unlike all others must not be carried away
NEVER = -30.0  # the logit of a class that training has not seen


@dataclass(frozen=True)
class Linear:
    """Standardises features, then one logit per class."""

    middle: Float[torch.Tensor, " features"]
    scale: Float[torch.Tensor, " features"]
    weight: Float[torch.Tensor, "features classes"]
    bias: Float[torch.Tensor, " classes"]

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """Class probabilities from features."""
        standard = ((table - self.middle) / self.scale).clamp(-FAR, FAR)
        return (standard @ self.weight + self.bias).softmax(1)

    def to(self, device: torch.device | str) -> "Linear":
        """The same on another device."""
        return Linear(**{name: value.to(device) for name, value in vars(self).items()})


def fit(
    table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], penalty: float = PENALTY
) -> Linear:
    """Softmax regression, every class weighing alike."""
    middle, scale = table.mean(0), np.maximum(table.std(0), 1e-3)
    standard = np.clip((table - middle) / scale, -FAR, FAR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # close enough: it is judged on held-out maps
        model = LogisticRegression(C=penalty, class_weight="balanced", max_iter=STEPS).fit(standard, labels)
    weight = np.zeros((table.shape[1], len(CLASSES)), dtype=np.float32)
    bias = np.full(len(CLASSES), NEVER, dtype=np.float32)
    two = len(model.classes_) == 2  # then scikit-learn keeps the second class's logits alone
    weight[:, model.classes_] = np.stack([0 * model.coef_[0], model.coef_[0]], 1) if two else model.coef_.T
    bias[model.classes_] = np.array([0, model.intercept_[0]]) if two else model.intercept_
    parts = (middle, scale, weight, bias)
    return Linear(*(torch.from_numpy(np.asarray(part, dtype=np.float32)) for part in parts))
