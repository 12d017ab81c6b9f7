"""What a training in bfloat16 on a CPU does otherwise: its layers, the embeddings of fewer words, the optimizer's step.

The model's own weights stay in float32, so what is saved, continued from and measured is the same as ever.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from bertsecrets.models.encoding import Encoded
from bertsecrets.models.half_layers import Dropout, HalfEncoder, Step

CHUNK = 2**20  # weights that the optimizer steps at a time, so that they stay in the processor's cache


class OccurringWords:
    """The rows of the word embeddings that occur in the texts, trained in the place of all.

    The others never have a gradient, so that all that happens to them is weight decay, whose sum is known.
    """

    def __init__(self, model: Any, encoded: Encoded):
        """Put the rows that occur in the place of the model's embeddings."""
        self.module: nn.Embedding = model.get_input_embeddings()
        self.all = self.module.weight
        low = np.arange(encoded.padding_id + 1)  # models know padding by its number, so that one stays
        self.rows = np.union1d(low, np.concatenate([np.asarray(ids) for ids in encoded.input_ids]))
        self.module.weight = nn.Parameter(self.all.detach()[self.rows])

    def numbers(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of token ids."""
        return torch.from_numpy(np.searchsorted(self.rows, ids.numpy()))

    @torch.no_grad()
    def put_back(self, left: float) -> None:
        """Put the whole embeddings back.

        Args:
            left: the share of a weight that weight decay has left.
        """
        self.all.mul_(left)[self.rows] = self.module.weight
        self.module.weight = self.all


class HalfTraining:
    """The layers, words and optimizer step of one training in bfloat16 on a CPU."""

    def __init__(self, model: Any, encoder: HalfEncoder, encoded: Encoded, seed: int):
        """Put the words that occur in the place of all; the optimizer is made after that."""
        self.encoder, self.seed = encoder, seed
        self.words = OccurringWords(model, encoded)
        self.twins = {weight: (half, grad) for weight, half, grad in encoder.twins()}
        self.buffer = torch.empty(CHUNK)

    @classmethod
    def of(cls, model: Any, encoded: Encoded, seed: int) -> "HalfTraining | None":
        """Return the training of a model whose layers are built like BERT's on some texts; None for other models."""
        encoder = HalfEncoder.of(model)
        return cls(model, encoder, encoded, seed) if encoder is not None else None

    def computing(self, batch: dict[str, torch.Tensor], step: int) -> AbstractContextManager[None]:
        """Make a batch ready, in place, and let the model compute in bfloat16 within the block."""
        batch["input_ids"] = self.words.numbers(batch["input_ids"])
        mask = batch["attention_mask"].bool()
        now = Step(None if mask.all() else mask, Dropout(self.seed, step))
        return self.encoder.in_place_of_the_models(now)

    @torch.no_grad()
    def update(self, optimizer: torch.optim.AdamW, most: float) -> Float[torch.Tensor, ""]:
        """Take AdamW's step with the gradients there are, clipped to a norm of at most `most`; returns their norm."""
        groups = [(group, weight) for group in optimizer.param_groups for weight in group["params"]]
        grads = [self.gradient(weight) for _, weight in groups]
        norms = [torch.linalg.vector_norm(grad, dtype=torch.float32) for grad in grads if grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        divisor = ((norm + 1e-6) / most).clamp(min=1)
        for (group, weight), grad in zip(groups, grads, strict=True):
            if grad is None:
                continue
            state = optimizer.state[weight]
            if not state:
                state |= {"step": torch.zeros(()), "exp_avg": torch.zeros_like(weight)}
                state["exp_avg_sq"] = torch.zeros_like(weight)
            state["step"] += 1
            half = self.twins[weight][0] if weight in self.twins else None
            for chunk in _chunks(weight.numel()):
                own, first, second = (t.view(-1)[chunk] for t in (weight, state["exp_avg"], state["exp_avg_sq"]))
                change = grad.reshape(-1)[chunk]
                if change.dtype != torch.float32:
                    change = self.buffer[: len(change)].copy_(change)
                torch._fused_adamw_(
                    [own], [change], [first], [second], [], [state["step"]], lr=group["lr"], beta1=group["betas"][0],
                    beta2=group["betas"][1], weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False,
                    maximize=False, grad_scale=divisor, found_inf=None,
                )  # fmt: skip
                if half is not None:
                    half.view(-1)[chunk].copy_(own)
            weight.grad = None
        return norm

    def gradient(self, weight: nn.Parameter) -> torch.Tensor | None:
        """Return the gradient of a weight; None where it has none."""
        return self.twins[weight][1] if weight in self.twins else weight.grad

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the model's weights, which have been set to others."""
        for weight, (half, _) in self.twins.items():
            half.copy_(weight)

    def end(self, rates: Sequence[float], decay: float) -> None:
        """Put the whole embeddings back; AdamW has left of those that do not occur what decay has left.

        Args:
            rates: the learning rate of each step.
        """
        self.words.put_back(math.prod(1 - rate * decay for rate in rates))


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, CHUNK):
        yield slice(start, min(start + CHUNK, count))
