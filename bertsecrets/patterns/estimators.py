"""Boosted trees and a softmax regression as plain tensors, so that a GPU classifies all maps of a pass at once.

Nothing here needs a pickle. `fitting` fits both.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Float, Int

LEAF = -1
AT_ONCE = 256  # maps, so that intermediate results stay in the processor's cache


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
        """Feature and threshold of each node, and its two children, the right one first; a leaf is its own child.

        A threshold is the largest single-precision number up to the real one, which parts single-precision features
        in the same way.
        """
        own, leaf = torch.arange(len(self.feature), device=self.feature.device), self.feature == LEAF
        single = self.threshold.float()
        below = torch.nextafter(single, torch.full_like(single, -torch.inf))
        threshold = torch.where(single.double() > self.threshold, below, single)
        children = torch.where(leaf[:, None], own[:, None], torch.stack([self.right, self.left], dim=1))
        return self.feature.clamp(min=0).int(), threshold, children.flatten().int()

    def to(self, device: torch.device | str) -> "Trees":
        """Return the same trees on another device."""
        moved = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "depth"}
        return Trees(**moved, depth=self.depth)


@dataclass(frozen=True)
class Softmax:
    """A softmax regression: logits that are linear in standardised features."""

    mean: Float[torch.Tensor, " features"]
    scale: Float[torch.Tensor, " features"]
    weight: Float[torch.Tensor, "classes features"]
    bias: Float[torch.Tensor, " classes"]

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """Return the class probabilities of maps from their features."""
        rows = (table.double() - self.mean) / self.scale
        return (rows @ self.weight.T + self.bias).softmax(1)

    def to(self, device: torch.device | str) -> "Softmax":
        """Return the same regression on another device."""
        return Softmax(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})
