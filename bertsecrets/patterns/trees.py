"""Boosted trees as plain tensors, which need no pickle and let a GPU classify all maps of a pass at once.

`training.boosting` grows them.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int

LEAF = -1


@dataclass(frozen=True)
class Trees:
    """All nodes of all trees, one after the other; a leaf's feature is -1. `roots` are the trees' first nodes.

    A leaf's value is what its tree adds to the logits, which begin at `start`.
    """

    feature: Int[torch.Tensor, " nodes"]
    threshold: Float[torch.Tensor, " nodes"]
    left: Int[torch.Tensor, " nodes"]
    right: Int[torch.Tensor, " nodes"]
    value: Float[torch.Tensor, "nodes classes"]
    roots: Int[torch.Tensor, " trees"]
    start: Float[torch.Tensor, " classes"]
    depth: int

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """Return the class probabilities of maps from their features."""
        node = self.roots.expand(len(table), -1)
        wide = table.double()
        for _ in range(self.depth):
            feature = self.feature[node]
            goes_left = wide.gather(1, feature.clamp(min=0)) <= self.threshold[node]
            child = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(feature == LEAF, node, child)
        return (self.start + self.value[node].sum(1)).softmax(1)

    def to(self, device: torch.device | str) -> "Trees":
        """Return the same trees on another device."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "depth"}
        return Trees(**moved, depth=self.depth)
