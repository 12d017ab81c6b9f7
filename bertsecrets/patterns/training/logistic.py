"""The baseline that explains itself: softmax regression on the named features."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from sklearn.metrics import f1_score

from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.softmax import Softmax, regress
from bertsecrets.patterns.training.dataset import Annotated

PENALTIES = (0.01, 0.1, 1.0)  # inverse strengths of the L2 penalty that inner folds choose from


@dataclass(frozen=True)
class LogisticFeatures:
    """Softmax regression, its penalty chosen on inner folds that never part the maps of one head."""

    name: str = "features-logistic"

    def fit(self, train: Annotated, seed: int) -> "TrainedLogistic":
        """Choose the penalty, then train on all."""
        scores = {c: _inner_score(train, c, seed) for c in PENALTIES}
        return TrainedLogistic(regress(train.table, train.labels, max(scores, key=scores.__getitem__)))


@dataclass(frozen=True)
class TrainedLogistic:
    """The trained baseline."""

    model: Softmax

    def probabilities(self, data: Annotated) -> Float[np.ndarray, "maps classes"]:
        """Class probabilities; a class that training never saw gets next to nothing."""
        return self.model.probabilities(torch.from_numpy(data.table)).numpy()


def _inner_score(train: Annotated, penalty: float, seed: int) -> float:
    said = np.zeros(len(train), dtype=int)
    for learn, held in train.folds(4, seed):
        some = train.take(learn)
        model = regress(some.table, some.labels, penalty)
        said[held] = model.probabilities(torch.from_numpy(train.table[held])).argmax(1).numpy()
    return float(f1_score(train.labels, said, labels=range(len(CLASSES)), average="macro", zero_division=0.0))
