"""The baseline that explains itself: logistic regression on the named features."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bertsecrets.patterns.annotated import Annotated
from bertsecrets.patterns.classes import CLASSES

PENALTIES = (0.01, 0.1, 1.0)  # inverse strengths of the L2 penalty that inner folds choose from


@dataclass(frozen=True)
class LogisticFeatures:
    """Logistic regression, its penalty chosen on inner folds that never part the maps of one head."""

    name: str = "features-logistic"

    def fit(self, train: Annotated, seed: int) -> "TrainedLogistic":
        """Choose the penalty, then train on all."""
        scores = {c: _inner_score(train, c, seed) for c in PENALTIES}
        return TrainedLogistic(_fitted(train, max(scores, key=scores.__getitem__)))


@dataclass(frozen=True)
class TrainedLogistic:
    """The trained baseline."""

    model: Any

    def probabilities(self, data: Annotated) -> Float[np.ndarray, "maps classes"]:
        """Class probabilities; a class that training never saw gets 0."""
        found = np.zeros((len(data), len(CLASSES)))
        found[:, self.model.classes_] = self.model.predict_proba(data.table)
        return found


def _fitted(train: Annotated, penalty: float) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, class_weight="balanced", max_iter=500))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # close enough: the choice is by held-out score
        return model.fit(train.table, train.labels)


def _inner_score(train: Annotated, penalty: float, seed: int) -> float:
    said = np.zeros(len(train), dtype=int)
    for learn, held in train.folds(4, seed):
        said[held] = _fitted(train.take(learn), penalty).predict(train.table[held])
    return float(f1_score(train.labels, said, labels=range(len(CLASSES)), average="macro", zero_division=0.0))
