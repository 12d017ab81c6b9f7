"""The loss that fine-tuning lowers, for measures that take its gradients."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def loss_of(regression: bool) -> Loss:
    """Return the loss as a function of logits and targets, summed over the examples, so that none affects another.

    >>> loss_of(regression=True)(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 2.0])).item()
    5.0
    """
    return _squares if regression else _entropy


def _squares(logits: Float[torch.Tensor, "rows 1"], target: Shaped[torch.Tensor, " rows"]) -> Float[torch.Tensor, ""]:
    return (logits[:, 0] - target.to(logits.dtype)).square().sum()


def _entropy(
    logits: Float[torch.Tensor, "rows classes"], target: Shaped[torch.Tensor, " rows"]
) -> Float[torch.Tensor, ""]:
    return functional.cross_entropy(logits, target.long(), reduction="sum")
