"""Boosted trees as plain tensors, which need no pickle and let a GPU classify all maps of a pass at once.

`training.boosting` grows them.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Float, Int

LEAF = -1
AT_ONCE = 256  # maps, so that what is computed of them stays in the processor's cache


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
        logits = [self._logits(part) for part in table.split(AT_ONCE)]
        return (self.start + torch.cat(logits)).softmax(1) if logits else table.new_empty(0, len(self.start))

    def _logits(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        feature, threshold, children = self._walk
        node = self.roots.expand(len(table), -1)
        for _ in range(self.depth):
            left = table.gather(1, feature[node]) <= threshold[node]
            node = children[2 * node + left]
        return torch.nn.functional.embedding_bag(node, self.value, mode="sum")

    @cached_property
    def _walk(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Feature and threshold of each node, and its two children, the right one first; a leaf is its own child.

        A threshold is the largest single-precision number up to the real one, which parts single-precision features
        in the same way.
        """
        own, leaf = torch.arange(len(self.feature), device=self.feature.device), self.feature == LEAF
        single = self.threshold.float()
        below = torch.nextafter(single, torch.full_like(single, -torch.inf))
        threshold = torch.where(single.double() > self.threshold, below, single)
        children = torch.where(leaf[:, None], own[:, None], torch.stack([self.right, self.left], dim=1))
        return self.feature.clamp(min=0), threshold, children.flatten()

    def to(self, device: torch.device | str) -> "Trees":
        """Return the same trees on another device."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "depth"}
        return Trees(**moved, depth=self.depth)
