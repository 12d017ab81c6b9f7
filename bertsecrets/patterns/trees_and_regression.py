"""Fitting the classifier that the suite ships: boosted trees times a softmax regression, calibrated."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.patterns.boosting import boost
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import FLOOR, PatternClassifier
from bertsecrets.patterns.crossval import OnFeatures
from bertsecrets.patterns.dataset import LabelledMaps
from bertsecrets.patterns.regression import regress

INNER_FOLDS = 4
TEMPERATURES = np.geomspace(0.3, 3, 47)


@dataclass(frozen=True)
class TreesAndRegression:
    """The method of the shipped classifier, for comparison with others."""

    name: str = "bertsecrets"

    def fit(self, train: LabelledMaps, seed: int) -> OnFeatures:
        """Return a classifier trained on all maps."""
        return OnFeatures(fit_classifier(train, seed).of_features)


def fit_classifier(train: LabelledMaps, seed: int) -> PatternClassifier:
    """Return a classifier trained on all maps.

    Its temperature comes from inner folds that keep all maps of a head together.
    """
    probabilities = np.zeros((len(train), len(CLASSES)))
    for learn, held in train.folds(INNER_FOLDS, seed):
        classifier = _uncalibrated(train.take(learn), seed)
        probabilities[held] = classifier.of_features(torch.from_numpy(train.table[held])).numpy()
    return replace(_uncalibrated(train, seed), temperature=best_temperature(probabilities, train.labels))


def _uncalibrated(train: LabelledMaps, seed: int) -> PatternClassifier:
    return PatternClassifier(boost(train.table, train.labels, seed), regress(train.table, train.labels))


def best_temperature(probabilities: Float[np.ndarray, "maps classes"], labels: Int[np.ndarray, " maps"]) -> float:
    """Return the temperature, among `TEMPERATURES`, at which the labels are most likely."""
    logs, true = torch.from_numpy(probabilities).clamp(min=FLOOR).log(), torch.from_numpy(labels)
    losses = [float(-(logs / float(t)).log_softmax(1).gather(1, true[:, None]).mean()) for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])
