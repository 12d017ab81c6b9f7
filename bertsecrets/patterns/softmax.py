"""A softmax regression as plain tensors; `training.regression` fits it."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float


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
