"""Boosted trees, fitted by scikit-learn and converted to plain tensors."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.extras import from_extra
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.trees import LEAF, Trees

ABSENT = -30.0  # the logit of a class that is absent from training

ROUNDS = 120  # of boosting, with one tree per class in each
RATE = 0.1
DEPTH = 5
SMALLEST_LEAF = 4  # maps
TRIED = 0.15  # share of the features among which a split chooses
SEEN = 0.6  # share of the maps on which a round is fitted


def boost(table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], seed: int) -> Trees:
    """Return boosted trees trained on features, with equal weights for all classes.

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
    """Return a fitted scikit-learn `GradientBoostingClassifier(init="zero")` as tensors."""
    # For two classes, scikit-learn keeps one tree per round: that of the second class against the first.
    whose = grown.classes_ if len(grown.classes_) > 2 else grown.classes_[1:]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots, first = [], 0
    for row in grown.estimators_:
        for tree, label in zip((estimator.tree_ for estimator in row), whose, strict=True):
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
    whole = {name: torch.from_numpy(np.concatenate(trees)) for name, trees in parts.items()}
    depth = max(int(estimator.tree_.max_depth) for estimator in grown.estimators_.ravel())
    return Trees(**whole, roots=torch.tensor(roots), start=_start(grown.classes_), depth=depth)


def _constant(label: int) -> Trees:
    """Return a classifier without trees, which always predicts one class."""
    empty = torch.empty(0, dtype=torch.long)
    nodes = dict.fromkeys(("feature", "left", "right", "roots"), empty)
    values = {"threshold": torch.empty(0), "value": torch.empty(0, len(CLASSES))}
    return Trees(**nodes, **values, start=_start(np.array([label])), depth=0)


def _start(seen: Int[np.ndarray, " some"]) -> Float[torch.Tensor, " classes"]:
    """Return the initial logits: equal for all classes seen in training, `ABSENT` for the others."""
    return torch.from_numpy(np.where(np.isin(np.arange(len(CLASSES)), seen), 0.0, ABSENT).astype(np.float32))
