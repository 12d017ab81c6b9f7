"""An interpretable baseline: softmax regression on the named features."""

from dataclasses import dataclass

import numpy as np
import torch

from bertsecrets.lab.training.compare import macro_f1_of_all
from bertsecrets.patterns.crossval import LabelledMaps, OnFeatures
from bertsecrets.patterns.fitting import regress

PENALTIES = (0.01, 0.1, 1.0)  # inverse strengths of the L2 penalty that inner folds choose from


@dataclass(frozen=True)
class LogisticFeatures:
    """Softmax regression, with the penalty chosen on inner folds that keep all maps of a head together."""

    name: str = "features-logistic"

    def fit(self, train: LabelledMaps, seed: int) -> OnFeatures:
        """Choose the penalty, then train on all maps; a class absent from training gets almost no probability."""
        scores = {c: _inner_score(train, c, seed) for c in PENALTIES}
        return OnFeatures(regress(train.table, train.labels, max(scores, key=scores.__getitem__)).probabilities)


def _inner_score(train: LabelledMaps, penalty: float, seed: int) -> float:
    predicted = np.zeros(len(train), dtype=int)
    for learn, held in train.folds(4, seed):
        part = train.take(learn)
        model = regress(part.table, part.labels, penalty)
        predicted[held] = model.probabilities(torch.from_numpy(train.table[held])).argmax(1).numpy()
    return macro_f1_of_all(train.labels, predicted)
