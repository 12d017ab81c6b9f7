"""A forest of extremely randomised trees: grown by scikit-learn, kept and run as plain tensors.

So weights need no pickle, and a GPU classifies as many maps as a pass over attention gives.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.ensemble import ExtraTreesClassifier

from bertsecrets.patterns.classes import CLASSES

LEAF = -1
TREES = 200
SMALLEST_LEAF = 2  # maps
TRIED = 0.3  # share of the features that a split may choose from


@dataclass(frozen=True)
class Forest:
    """All nodes of all trees, one after the other; a leaf's feature is -1. `roots` are the trees' first nodes."""

    feature: Int[torch.Tensor, " nodes"]
    threshold: Float[torch.Tensor, " nodes"]
    left: Int[torch.Tensor, " nodes"]
    right: Int[torch.Tensor, " nodes"]
    value: Float[torch.Tensor, "nodes classes"]
    roots: Int[torch.Tensor, " trees"]
    depth: int

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """The mean over the trees of the class shares in the leaf where a map ends."""
        node = self.roots.expand(len(table), -1)
        wide = table.double()
        for _ in range(self.depth):
            feature = self.feature[node]
            goes_left = wide.gather(1, feature.clamp(min=0)) <= self.threshold[node]
            child = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(feature == LEAF, node, child)
        return self.value[node].mean(1)

    def to(self, device: torch.device | str) -> "Forest":
        """The same forest on another device."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "depth"}
        return Forest(**moved, depth=self.depth)


def grow(table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], seed: int) -> Forest:
    """A forest trained on features, every class weighing alike."""
    grown = ExtraTreesClassifier(
        TREES,
        min_samples_leaf=SMALLEST_LEAF,
        max_features=TRIED,
        class_weight="balanced",
        random_state=seed,
        n_jobs=1,
    ).fit(table, labels)
    return exported(grown)


def exported(grown: ExtraTreesClassifier) -> Forest:
    """A fitted scikit-learn forest as tensors; classes it has not seen get 0."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots, start = [], 0
    for tree in (estimator.tree_ for estimator in grown.estimators_):
        leaf = tree.children_left < 0
        value = np.zeros((tree.node_count, len(CLASSES)), dtype=np.float32)
        value[:, grown.classes_] = tree.value[:, 0] / tree.value[:, 0].sum(1, keepdims=True)
        parts["feature"].append(np.where(leaf, LEAF, tree.feature))
        parts["threshold"].append(np.where(leaf, 0.0, tree.threshold))
        parts["left"].append(np.where(leaf, 0, tree.children_left + start))
        parts["right"].append(np.where(leaf, 0, tree.children_right + start))
        parts["value"].append(value)
        roots.append(start)
        start += tree.node_count
    whole = {name: torch.from_numpy(np.concatenate(each)) for name, each in parts.items()}
    depth = max(estimator.tree_.max_depth for estimator in grown.estimators_)
    return Forest(**whole, roots=torch.tensor(roots), depth=int(depth))
