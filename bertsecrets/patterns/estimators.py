"""Boosted trees and a softmax regression, stored as plain tensors for batched inference on a GPU.

The models are stored without pickle. The code that trains these models is in `instruments`.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int

LEAF = -1
BATCH_MAPS = 256  # maps per batch; few enough that intermediate results fit into the processor's cache


@dataclass(frozen=True)
class Trees:
    """The nodes of all trees, concatenated. Leaves have feature -1, and `roots` are the indices of the root nodes.

    The logits are `start` plus the value of the leaf reached in each tree.
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
        logits = [self._logits(part) for part in table.split(BATCH_MAPS)]
        return (self.start + torch.cat(logits)).softmax(1) if logits else table.new_empty(0, len(self.start))

    def _logits(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        feature, threshold, children = self._walk
        maps, trees = len(table), len(self.roots)
        starts = torch.arange(0, table.numel(), table.shape[1], dtype=torch.int, device=table.device)
        starts, values = starts.repeat_interleave(trees), table.float().flatten()
        node = self.roots.int().repeat(maps)
        for _ in range(self.depth):
            value = values.index_select(0, feature.index_select(0, node).add_(starts))
            left = value <= threshold.index_select(0, node)
            node = children.index_select(0, node.mul_(2).add_(left))
        return self.value.index_select(0, node).unflatten(0, (maps, trees)).sum(1)

    @cached_property
    def _walk(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Each node's feature, threshold and two children (the right child first). A leaf is its own child.

        Thresholds are rounded down to single precision, which does not change comparisons with single-precision
        features.
        """
        own, leaf = torch.arange(len(self.feature), device=self.feature.device), self.feature == LEAF
        single = self.threshold.float()
        below = torch.nextafter(single, torch.full_like(single, -torch.inf))
        threshold = torch.where(single.double() > self.threshold, below, single)
        children = torch.where(leaf[:, None], own[:, None], torch.stack([self.right, self.left], dim=1))
        return self.feature.clamp(min=0).int(), threshold, children.flatten().int()


@dataclass(frozen=True)
class Softmax:
    """A softmax regression, in which logits are linear in standardised features."""

    mean: Float[torch.Tensor, " features"]
    scale: Float[torch.Tensor, " features"]
    weight: Float[torch.Tensor, "classes features"]
    bias: Float[torch.Tensor, " classes"]

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """Return the class probabilities of maps from their features."""
        rows = (table.double() - self.mean) / self.scale
        return (rows @ self.weight.T + self.bias).softmax(1)
