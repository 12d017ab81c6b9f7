"""The attention paid to [CLS] and [SEP], per head (K19 section 4.4, figure 6).

The attention paid to a token is the mean over all rows of its column: the sum of the weights it receives,
divided by L. Of several tokens of one kind (two [SEP]s) the maximum counts; their sum is kept beside it, because
the maximum alone makes one-sentence inputs look different (claim E2's control).
"""

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.models.attention import Maps
from bertsecrets.models.encoding import Batch


def received(maps: Maps, batch: Batch) -> Float[torch.Tensor, "rows heads tokens"]:
    """Attention received by each token: column sums divided by L, the number of real tokens."""
    return maps.sum(2) / batch.lengths[:, None, None]


class SpecialTokens:
    """Observer of one model: attention received by [CLS] and [SEP], [example, layer, head]."""

    pairs = False

    def __init__(self, examples: int, layers: int, heads: int, ids: dict[str, int | None]):
        """
        Args:
            ids: token id of `cls` and `sep`; None where the model has no such token (its values are then NaN).
        """
        self.ids = ids
        kinds = ("cls", "sep", "sep_sum")
        self.paid = {kind: np.full((examples, layers, heads), np.nan, dtype=np.float32) for kind in kinds}

    def observe(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer of one batch."""
        columns = received(maps, batch)
        for kind, token in self.ids.items():
            if token is None:
                continue
            here = ((batch.input_ids == token) & batch.mask)[:, None, :]
            self.paid[kind][batch.indices, layer] = (columns * here).amax(-1).cpu().numpy()
            if kind == "sep":
                self.paid["sep_sum"][batch.indices, layer] = (columns * here).sum(-1).cpu().numpy()

    def result(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Values: `cls`, `sep`, `sep_sum`, each [layer, head]. Samples: the same, [example, layer, head]."""
        return {kind: paid.mean(0, dtype=np.float64) for kind, paid in self.paid.items()}, dict(self.paid)
