"""Attention to the previous and the next token: how diagonal a head is, without a classifier (K19 4.1, 4.5)."""

import numpy as np

from bertsecrets.attention import Maps
from bertsecrets.encoding import Batch


class Neighbours:
    """Observer of one model: the share of attention on the diagonals beside the main one, [example, layer, head]."""

    pairs = False

    def __init__(self, examples: int, layers: int, heads: int):
        self.neighbours = np.full((examples, layers, heads), np.nan, dtype=np.float32)

    def observe(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer of one batch."""
        beside = maps.diagonal(1, 2, 3).sum(-1) + maps.diagonal(-1, 2, 3).sum(-1)
        self.neighbours[batch.indices, layer] = (beside / batch.lengths[:, None]).cpu().numpy()

    def result(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Values: `neighbours` [layer, head], the mean over rows and examples. Samples: [example, layer, head]."""
        return {"neighbours": self.neighbours.mean(0, dtype=np.float64)}, {"neighbours": self.neighbours}
