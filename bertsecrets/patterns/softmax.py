"""A softmax regression: fitted by scikit-learn, kept and run as plain tensors."""

import warnings
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.trees import ABSENT

PENALTY = 0.3  # inverse strength of the L2 penalty
STEPS = 150  # of the solver: close enough, since what is held out decides


@dataclass(frozen=True)
class Softmax:
    """Logits are linear in standardised features."""

    mean: Float[torch.Tensor, " features"]
    scale: Float[torch.Tensor, " features"]
    weight: Float[torch.Tensor, "classes features"]
    bias: Float[torch.Tensor, " classes"]

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """Class probabilities from features."""
        rows = (table.double() - self.mean) / self.scale
        return (rows @ self.weight.T + self.bias).softmax(1)

    def to(self, device: torch.device | str) -> "Softmax":
        """The same regression on another device."""
        return Softmax(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def regress(
    table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], penalty: float = PENALTY
) -> Softmax:
    """A regression trained on features, every class weighing alike."""
    wide = table.astype(np.float64)
    scaler = StandardScaler().fit(wide)
    seen = np.unique(labels)
    if len(seen) == 1:  # nothing to tell apart
        flat, bias = np.zeros((len(CLASSES), table.shape[1])), np.where(np.arange(len(CLASSES)) == seen[0], 0.0, ABSENT)
        return Softmax(*(torch.from_numpy(part) for part in (scaler.mean_, scaler.scale_, flat, bias)))
    model = LogisticRegression(C=penalty, class_weight="balanced", max_iter=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaler.transform(wide), labels)
    several = len(model.classes_) > 2
    weight = np.zeros((len(CLASSES), table.shape[1]))
    bias = np.full(len(CLASSES), ABSENT)
    # scikit-learn keeps one row of weights for two classes: that of the second against the first.
    weight[model.classes_ if several else model.classes_[1:]] = model.coef_
    bias[model.classes_] = model.intercept_ if several else (0.0, model.intercept_[0])
    return Softmax(*(torch.from_numpy(part) for part in (scaler.mean_, scaler.scale_, weight, bias)))
