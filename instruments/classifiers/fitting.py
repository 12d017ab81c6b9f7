"""Training of the shipped classifier: a calibrated product of boosted trees and a softmax regression.

Both models are fitted with scikit-learn and converted to plain tensors.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.errors import from_extra
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import PROBABILITY_FLOOR, PatternClassifier
from bertsecrets.patterns.estimators import LEAF, Softmax, Trees
from instruments.classifiers.crossval import LabelledMaps, Trained, on_features

ABSENT = -30.0  # logit of classes that do not occur in the training data

ROUNDS = 120  # boosting rounds, with one tree per class
RATE = 0.1
DEPTH = 5
SMALLEST_LEAF = 4  # minimum number of maps
TRIED = 0.15  # fraction of features considered for a split
SEEN = 0.6  # fraction of maps used in a round

PENALTY = 0.3  # inverse strength of the L2 penalty
STEPS = 150  # solver iterations; full convergence is not needed

INNER_FOLDS = 4
TEMPERATURES = np.geomspace(0.3, 3, 47)


def trees_and_regression(train: LabelledMaps, seed: int) -> Trained:
    """Train like the shipped classifier, for comparison with other methods."""
    return on_features(fit_classifier(train, seed).of_features)


def fit_classifier(train: LabelledMaps, seed: int) -> PatternClassifier:
    """Train a classifier on all maps.

    The temperature is selected by cross-validation, with folds grouped by head.
    """
    probabilities = np.zeros((len(train), len(CLASSES)))
    for learn, held in train.folds(INNER_FOLDS, seed):
        classifier = uncalibrated(train.take(learn), seed)
        probabilities[held] = classifier.of_features(torch.from_numpy(train.table[held])).numpy()
    return replace(uncalibrated(train, seed), temperature=best_temperature(probabilities, train.labels))


def uncalibrated(train: LabelledMaps, seed: int) -> PatternClassifier:
    """Train on all maps without a temperature, which changes probabilities but not which class is likeliest."""
    return PatternClassifier(boost(train.table, train.labels, seed), regress(train.table, train.labels))


def best_temperature(probabilities: Float[np.ndarray, "maps classes"], labels: Int[np.ndarray, " maps"]) -> float:
    """Return the temperature in `TEMPERATURES` that maximises the likelihood of the labels."""
    logs, true = torch.from_numpy(probabilities).clamp(min=PROBABILITY_FLOOR).log(), torch.from_numpy(labels)
    losses = [float(-(logs / float(t)).log_softmax(1).gather(1, true[:, None]).mean()) for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


def boost(table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], seed: int) -> Trees:
    """Fit boosted trees, with balanced class weights.

    Raises:
        MissingError: scikit-learn is not installed.
    """
    if len(set(labels.tolist())) == 1:  # a single class
        return _constant(int(labels[0]))
    with from_extra("scikit-learn"):
        from sklearn.ensemble import GradientBoostingClassifier
        from sklearn.utils.class_weight import compute_sample_weight
    grown = GradientBoostingClassifier(
        n_estimators=ROUNDS,
        learning_rate=RATE,
        max_depth=DEPTH,
        min_samples_leaf=SMALLEST_LEAF,
        max_features=TRIED,
        subsample=SEEN,
        init="zero",
        random_state=seed,
    ).fit(table, labels, compute_sample_weight("balanced", labels))
    return exported(grown)


def exported(grown: Any) -> Trees:
    """Convert a fitted scikit-learn `GradientBoostingClassifier(init="zero")` to tensors."""
    # With two classes, scikit-learn fits one tree per round, for the second class against the first.
    classes = grown.classes_ if len(grown.classes_) > 2 else grown.classes_[1:]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots, first = [], 0
    for row in grown.estimators_:
        for tree, label in zip((estimator.tree_ for estimator in row), classes, strict=True):
            leaf = tree.children_left < 0
            value = np.zeros((tree.node_count, len(CLASSES)), dtype=np.float32)
            value[:, label] = grown.learning_rate * tree.value[:, 0, 0]
            parts["feature"].append(np.where(leaf, LEAF, tree.feature))
            parts["threshold"].append(np.where(leaf, 0.0, tree.threshold))
            parts["left"].append(np.where(leaf, 0, tree.children_left + first))
            parts["right"].append(np.where(leaf, 0, tree.children_right + first))
            parts["value"].append(value)
            roots.append(first)
            first += tree.node_count
    nodes = {name: torch.from_numpy(np.concatenate(trees)) for name, trees in parts.items()}
    depth = max(int(estimator.tree_.max_depth) for estimator in grown.estimators_.ravel())
    return Trees(**nodes, roots=torch.tensor(roots), start=_start(grown.classes_), depth=depth)


def _constant(label: int) -> Trees:
    """Return a classifier without trees that always predicts the same class."""
    empty = torch.empty(0, dtype=torch.long)
    nodes = dict.fromkeys(("feature", "left", "right", "roots"), empty)
    values = {"threshold": torch.empty(0), "value": torch.empty(0, len(CLASSES))}
    return Trees(**nodes, **values, start=_start(np.array([label])), depth=0)


def _start(seen: Int[np.ndarray, " some"]) -> Float[torch.Tensor, " classes"]:
    """Return the initial logits, which are 0 for classes seen in training, and `ABSENT` for all other classes."""
    return torch.from_numpy(np.where(np.isin(np.arange(len(CLASSES)), seen), 0.0, ABSENT).astype(np.float32))


def regress(
    table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], penalty: float = PENALTY
) -> Softmax:
    """Fit a softmax regression, with balanced class weights.

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
    # With two classes, scikit-learn fits one row of weights, for the second class against the first.
    weight[model.classes_ if several else model.classes_[1:]] = model.coef_
    bias[model.classes_] = model.intercept_ if several else (0.0, model.intercept_[0])
    return Softmax(*(torch.from_numpy(part) for part in (scaler.mean_, scaler.scale_, weight, bias)))
