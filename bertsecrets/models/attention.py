"""Attention streaming past, layer by layer and batch by batch, so that no one ever holds all maps.

One pass over the data feeds every observer that wants it. An observer sees one layer of one batch at a time,
of the fine-tuned model and (if it asks for `pairs`) of the pretrained one beside it, and keeps only sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Batch, Encoded, batches
from bertsecrets.models.loading import OpenModel, attention_modules, weights_in

Maps = Float[torch.Tensor, "rows heads tokens tokens"]
MAP_BYTES = 192 * 2**20  # of one model's maps for one batch: what a pass over two models holds at a time


@runtime_checkable
class Observer(Protocol):
    """What a pass feeds. `pairs` says whether it also needs the second model's maps."""

    pairs: bool

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer (from 0) of one batch. Padding rows and columns of `maps` are there, but 0."""

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return values ([layer, head] arrays) and samples (one row per example)."""


class Tap:
    """The attention weights of a model, handed to a callback the moment each layer has them.

    The model must have been opened with eager attention: fused kernels never form the weights.
    """

    def __init__(self, model: Any, layers: int, keep_padding_rows: bool = False):
        """
        Args:
            keep_padding_rows: leave the rows of padding tokens as the model computed them, instead of 0.

        Raises:
            UserError: the architecture does not expose its attention weights.
        """
        self.model = model
        self.layers = layers
        self.keep_padding_rows = keep_padding_rows
        self.modules, self.must_ask = attention_modules(model)

    def run(self, batch: Batch, see: Callable[[int, Maps], None]) -> None:
        """One forward pass; `see(layer, maps)` is called once per layer, in order.

        Raises:
            RuntimeError: a layer was missed, a row does not sum to 1, or padding is attended to. Any of these means
                that the maps are not what the model computed with.
        """
        rows, tokens = batch.input_ids.shape
        shape = (rows, self.model.config.num_attention_heads, tokens, tokens)
        calls = 0

        def hook(_module, _inputs, output):
            nonlocal calls
            maps = weights_in(output, shape)
            if maps is None:
                raise RuntimeError(f"layer {calls + 1} returned no attention weights of shape {shape}")
            check_maps(maps, batch, calls)
            maps = maps.float()
            see(calls, maps if self.keep_padding_rows else _crop(maps, batch))
            calls += 1

        handles = [module.register_forward_hook(hook) for module in self.modules]
        try:
            with torch.inference_mode():
                ask = {"output_attentions": True} if self.must_ask else {}
                self.model(**batch.inputs(), **ask)
        finally:
            for handle in handles:
                handle.remove()
        if calls != self.layers:
            raise RuntimeError(f"saw {calls} attention layers where the model has {self.layers}")


def check_maps(maps: Maps, batch: Batch, layer: int) -> None:
    """Make sure that the rows of real tokens are distributions over the real tokens.

    Raises:
        RuntimeError: they are not, so the maps are not what the model computed with.
    """
    tolerance = 1e-4 if maps.dtype == torch.float32 else 2e-2
    real = batch.mask[:, None, :, None]
    on_real = maps @ real.to(maps.dtype)  # each row's weight on real tokens, in one reading of the maps
    off = (on_real - 1).abs().masked_fill(~real, 0).max()
    if off <= tolerance:
        return
    sums = (maps.sum(-1, keepdim=True) - 1).abs().masked_fill(~real, 0).max()
    if sums <= tolerance:
        raise RuntimeError(f"layer {layer + 1}: {float(off):.2e} of attention goes to padding: the mask was lost")
    raise RuntimeError(f"layer {layer + 1}: attention rows sum to 1 only within {float(sums):.2e}")


def _crop(maps: Maps, batch: Batch) -> Maps:
    """Maps with the rows of padding tokens set to 0, so that only the L x L part of each example counts.

    In place: the model has used its weights by now, and a copy of all maps would cost as much as a measure.
    """
    return maps if bool(batch.mask.all()) else maps.masked_fill_(~batch.mask[:, None, :, None], 0)


@dataclass(frozen=True)
class Pass:
    """One pass over encoded examples with one model, or two side by side.

    `padded_to` reproduces K19's notebook: every example is padded to that many tokens and the rows of padding
    tokens count too. None, the default, crops to the real tokens.
    """

    model: OpenModel
    other: OpenModel | None = None
    padded_to: int | None = None

    def feed(
        self, encoded: Encoded, observers: Sequence[Observer], progress: Callable[[int], Any] | None = None
    ) -> None:
        """Run every example once and let every observer see every layer.

        Args:
            progress: called with the number of examples done after each batch.
        """
        if not observers:
            raise UserError("nothing to observe: name at least one measure")
        layers, padding_rows = self.model.layers, self.padded_to is not None
        main = Tap(self.model.model, layers, padding_rows)
        second = Tap(self.other.model, layers, padding_rows) if self.other is not None else None
        device = next(self.model.model.parameters()).device
        for batch in _bounded(encoded, self.model.heads, layers if second else 1, self.padded_to):
            there = batch.to(device)
            held: list[Maps] = []

            def hold(_layer: int, maps: Maps, held=held) -> None:
                held.append(maps)

            def see(layer: int, maps: Maps, there=there, held=held) -> None:
                other = held[layer] if held else None
                for observer in observers:
                    observer.update(there, layer, maps, other if observer.pairs else None)
                if held:
                    held[layer] = torch.empty(0)  # the second model's layer has been compared: let go of it

            if second is not None:
                second.run(there, hold)
            main.run(there, see)
            if progress:
                progress(len(batch.indices))


def _bounded(encoded: Encoded, heads: int, held_layers: int, width: int | None):
    """Batches whose held maps (layers x rows x heads x tokens x tokens float32) stay within MAP_BYTES."""
    longest = max(int(encoded.lengths.max(initial=1)), width or 1)
    per_token_place = 4 * heads * held_layers * longest
    return batches(encoded, tokens=max(longest, min(4096, MAP_BYTES // per_token_place)), width=width)
