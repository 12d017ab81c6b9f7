"""How much each head's attention changes in fine-tuning (K19 section 4.3, figure 5).

The cosine similarity between the flattened maps of the pretrained and of the fine-tuned model on the same
input, per head, averaged over examples. Cropped to the real tokens; a pass with `padded_to` gives K19's padded form.
"""

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.models.attention import Maps
from bertsecrets.models.encoding import Batch


def map_cosine(one: Maps, other: Maps) -> Float[torch.Tensor, "rows heads"]:
    """Cosine similarity of two sets of maps, each map flattened; places that are 0 in both do not count."""
    a, b = one.flatten(2), other.flatten(2)
    dot = torch.linalg.vecdot(a, b)
    return dot / (torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1))


class AttentionChange:
    """Observer of two models side by side: the cosine of every example's maps, [example, layer, head]."""

    pairs = True

    def __init__(self, examples: int, layers: int, heads: int):
        self.cosine = np.full((examples, layers, heads), np.nan, dtype=np.float32)

    def observe(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer of one batch of both models."""
        assert other is not None
        self.cosine[batch.indices, layer] = map_cosine(maps, other).cpu().numpy()

    def result(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Values: `cosine` [layer, head], the mean over examples. Samples: `cosine` [example, layer, head]."""
        return {"cosine": self.cosine.mean(0, dtype=np.float64)}, {"cosine": self.cosine}
