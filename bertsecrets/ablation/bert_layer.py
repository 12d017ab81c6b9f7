"""The computation of BERT-style layers, for the fast path of ablation.

A layer is recognised if it has all submodules of a BERT layer, under the names listed in `families.py`. Because the
layer may also contain other modules, such as rotary positions or adapters, the engine first compares the output of its
blocks with that of the model on a probe. A probe cannot reveal code that acts only on some inputs, so the fast path is
used only for models without such code (`is_unmodified`).
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import nn

from bertsecrets.models.families import ACTIVATION, BERT_LAYOUTS, POSITION_TERMS
from bertsecrets.models.patches import check_libraries

Hidden = Float[torch.Tensor, "rows tokens width"]
PerHead = Float[torch.Tensor, "rows heads tokens size"]
Term = Callable[[Hidden], Float[torch.Tensor, "1 heads tokens tokens"]]


def is_unmodified(model: Any) -> bool:
    """Return whether a model has only modules of its architecture in transformers, without hooks or patched code."""
    if any(
        module._forward_hooks
        or module._forward_pre_hooks
        or any(callable(value) and hasattr(type(module), name) for name, value in vars(module).items())
        for module in model.modules()
    ):
        return False
    try:
        check_libraries(model.config.model_type, model)
        config = deepcopy(model.config)
        if hasattr(model.base_model, "attention_type"):  # BigBird replaces modules when it meets a short input
            config.attention_type = model.base_model.attention_type
        with torch.device("meta"):
            built = type(model)(config)
    except Exception:  # the class may be a user's, and its code may raise any exception
        return False
    return type(model).__module__.startswith("transformers.") and _classes(model) == _classes(built)


def _classes(model: nn.Module) -> dict[str, type]:
    return {name: type(module) for name, module in model.named_modules(remove_duplicate=False)}


def position_term(model: Any) -> Term | None:
    """Return the function that computes the position term of attention logits; None if the model has no such term."""
    name = POSITION_TERMS.get(model.config.model_type)
    term: Term | None = attrgetter(name)(model.base_model) if name else None
    return term


@dataclass(frozen=True)
class Block:
    """A post-norm transformer layer. Its output is `norm(outer(activation(inner(y))) + y)`.

    `y` is the normalised sum of the layer's input and the projected attention output. `term` computes the position term
    of the attention logits from one row's hidden vectors, and is None for models without such a term.
    """

    heads: int
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    attention_norm: nn.LayerNorm
    inner: nn.Linear
    activation: Any
    outer: nn.Linear
    norm: nn.LayerNorm
    term: Term | None = None

    @classmethod
    def from_module(cls, module: nn.Module, heads: int, term: Term | None = None) -> "Block | None":
        """Return a block made from the module, or None if the module lacks a submodule of a BERT layer."""
        for names in BERT_LAYOUTS.values():
            try:
                parts = [attrgetter(name)(module) for name in names]
            except AttributeError:
                continue
            weights = parts[:ACTIVATION] + parts[ACTIVATION + 1 :]
            if all(type(part) in (nn.Linear, nn.LayerNorm) for part in weights):
                return replace(cls(heads, *parts), term=term)
        return None

    @property
    def scale(self) -> float:
        """The scaling factor of attention logits, 1 / sqrt(head size)."""
        return 1 / math.sqrt(self.query.out_features // self.heads)

    @cached_property
    def projections(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight and the bias of a single projection that joins the query, key and value projections."""
        parts = (self.query, self.key, self.value)
        biases: list[torch.Tensor] = [
            part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias for part in parts
        ]
        return torch.cat([part.weight for part in parts]), torch.cat(biases)

    def split(self, x: Float[torch.Tensor, "rows tokens width"]) -> PerHead:
        """Split the projected tokens into one vector per head."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, x: Hidden) -> tuple[PerHead, PerHead]:
        """Return the context vectors and the value vectors of each head."""
        query, key, value = map(self.split, F.linear(x, *self.projections).chunk(3, -1))
        term = None if self.term is None else self.term(x[:1])
        return F.scaled_dot_product_attention(query, key, value, attn_mask=term, scale=self.scale), value

    def attend_first(
        self, x: Hidden
    ) -> tuple[Float[torch.Tensor, "rows heads size"], Float[torch.Tensor, "rows heads size"]]:
        """Return, for each head, the context vector of the first token and the mean value vector.

        The keys and values of the tokens are never computed. Because there is only one query, the key projection is
        applied to this query instead, and the value projection to the context. The key bias is omitted, because it adds
        the same constant to all logits of a row.
        """
        key = self.key.weight.unflatten(0, (self.heads, -1))  # [heads, size, width]
        value = self.value.weight.unflatten(0, (self.heads, -1))
        query = self.query(x[:, 0]).unflatten(-1, (self.heads, -1)) * self.scale
        absorbed = torch.bmm(query.transpose(0, 1), key).transpose(0, 1)  # [rows, heads, width]
        logits = torch.bmm(absorbed, x.transpose(1, 2))
        if self.term is not None:
            logits = logits + self.term(x[:1])[:, :, 0]
        weights = logits.softmax(-1, dtype=torch.float32).to(x.dtype)
        attended = torch.bmm(weights, x)
        context = torch.bmm(attended.transpose(0, 1), value.transpose(1, 2)).transpose(0, 1)
        if self.value.bias is not None:
            context = context + self.value.bias.unflatten(0, (self.heads, -1))
        return context, self.value(x.mean(1)).unflatten(-1, (self.heads, -1))

    def deltas(
        self, context: PerHead, instead: Float[torch.Tensor, "_ heads _ _"], heads: Int[torch.Tensor, " chosen"]
    ) -> Float[torch.Tensor, "chosen rows tokens width"]:
        """Return how disabling each chosen head h changes the projected attention: W_o[h] (instead_h - context_h)."""
        change = instead[:, heads] - context[:, heads]
        parts = self.output.weight.unflatten(1, (self.heads, -1))[:, heads]  # [width, chosen, size]
        rows, _, tokens, size = change.shape
        flat = change.transpose(0, 1).reshape(len(heads), rows * tokens, size)
        return torch.bmm(flat, parts.permute(1, 2, 0)).unflatten(1, (rows, tokens))

    def project(self, context: PerHead) -> Hidden:
        """Return the output projection of the context vectors of all heads."""
        return self.output(context.transpose(1, 2).flatten(2))

    def finish(self, mixed: Float[torch.Tensor, "*batch width"]) -> Float[torch.Tensor, "*batch width"]:
        """Return the layer's output, given the sum of the layer's input and the projected attention."""
        mixed = self.attention_norm(mixed)
        return self.norm(self.outer(self.activation(self.inner(mixed))).add_(mixed))
