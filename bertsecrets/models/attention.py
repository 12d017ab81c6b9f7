"""Attention maps, which are streamed layer by layer and batch by batch because they would not all fit in memory.

A single pass over the data serves all observers. An observer sees one layer of one batch at a time, and stores only
what it computes from the maps. An observer whose `pairs` is True sees the maps of both the pretrained and the
fine-tuned model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from bertsecrets.errors import MisreadError, UserError
from bertsecrets.models.encoding import Batch, Encoded, batches
from bertsecrets.models.families import why_no_maps
from bertsecrets.models.layers import attention_shape, hooked, layer_of, unreadable
from bertsecrets.models.opening import OpenModel

Maps = Float[torch.Tensor, "rows heads tokens tokens"]
MAP_BYTES = 192 * 2**20  # maximum size of the maps in memory, for one batch and all layers of one model


@runtime_checkable
class Observer(Protocol):
    """The interface of objects that process attention maps layer by layer, such as measures.

    `pairs` says whether the object also needs the maps of a second model.
    """

    pairs: bool

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Process one layer (counted from 0) of one batch. In `maps`, the rows and columns of padding tokens are 0."""

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return two dicts of arrays: values of shape [layers, heads], and samples with one row per example."""


class Tap:
    """A model that passes the attention weights of each layer to a callback immediately after computing them.

    The model must have been opened with eager attention, because fused kernels never compute the weights. The rows of
    padding tokens are set to 0, unless `keep_padding_rows` is True.
    """

    def __init__(self, model: Any, layers: int, keep_padding_rows: bool = False):
        self.model = model
        self.layers = layers
        self.keep_padding_rows = keep_padding_rows
        self.modules, self.ask = attention_modules(model)

    def run(self, batch: Batch, see: Callable[[int, Maps], None]) -> None:
        """Run the model once, and call `see(layer, maps)` for each layer in order."""
        rows, tokens = batch.input_ids.shape
        shape = (rows, self.model.config.num_attention_heads, tokens, tokens)
        calls = 0

        def hook(_module, _inputs, output):
            nonlocal calls
            maps = weights_in(output, shape)
            if maps is None:
                raise MisreadError(f"layer {calls + 1} did not return attention weights with the shape {shape}")
            check_maps(maps, batch, calls)
            maps = maps.float()
            see(calls, maps if self.keep_padding_rows else _crop(maps, batch))
            calls += 1

        with hooked(self.modules, hook), torch.inference_mode():
            self.model(**batch.inputs(), **self.ask)
        if calls != self.layers:
            raise MisreadError(f"attention weights were returned by {calls} of {self.layers} layers")


def check_maps(maps: Maps, batch: Batch, layer: int) -> None:
    """Check that each row, except padding rows, is a probability distribution over the tokens that are not padding."""
    tolerance = 1e-4 if maps.dtype == torch.float32 else 2e-2
    real = batch.mask[:, None, :, None]
    on_real = maps @ real.to(maps.dtype)  # each row's weight on real tokens; reads the maps once
    off = (on_real - 1).abs().masked_fill(~real, 0).max()
    if off <= tolerance:
        return
    if not torch.isfinite(off):
        raise UserError(f"the attention of layer {layer + 1} is not finite: the model's training has diverged")
    sums = (maps.sum(-1, keepdim=True) - 1).abs().masked_fill(~real, 0).max()
    if sums <= tolerance:
        raise MisreadError(f"layer {layer + 1}: {float(off):.2e} of attention goes to padding: the mask was lost")
    raise MisreadError(f"layer {layer + 1}: sums of attention rows differ from 1 by up to {float(sums):.2e}")


def _crop(maps: Maps, batch: Batch) -> Maps:
    """Set the rows of padding tokens to 0 in place, because a copy would take as long as computing a measure."""
    return maps if bool(batch.mask.all()) else maps.masked_fill_(~batch.mask[:, None, :, None], 0)


@dataclass(frozen=True)
class Pass:
    """A pass of one or two models over encoded examples, in which observers receive the attention maps.

    If `padded_to` is given, every example is padded to this number of tokens, and the rows of padding tokens are
    included, as in the notebook of K19's authors. By default (None), padding is excluded.
    """

    model: OpenModel
    other: OpenModel | None = None
    padded_to: int | None = None

    def feed(
        self, encoded: Encoded, observers: Sequence[Observer], progress: Callable[[int], Any] | None = None
    ) -> None:
        """Run every example once, and pass the maps of every layer to every observer.

        After each batch, `progress` is called with the number of examples in the batch.
        """
        layers, padding_rows = self.model.layers, self.padded_to is not None
        main = Tap(self.model.model, layers, padding_rows)
        second = Tap(self.other.model, layers, padding_rows) if self.other is not None else None
        device = next(self.model.model.parameters()).device
        for batch in _bounded(encoded, self.model.heads, layers if second else 1, self.padded_to):
            on_device = batch.to(device)
            held: list[Maps] = []

            def see(layer: int, maps: Maps, on_device=on_device, held=held) -> None:
                second_maps = held[layer] if held else None
                for observer in observers:
                    observer.update(on_device, layer, maps, second_maps if observer.pairs else None)
                if held:
                    held[layer] = torch.empty(0)  # frees the second model's maps, which have been compared

            if second is not None:
                second.run(on_device, held.insert)
            main.run(on_device, see)
            if progress:
                progress(len(batch.indices))


def _bounded(encoded: Encoded, heads: int, held_layers: int, width: int | None):
    """Return batches whose maps (layers x rows x heads x tokens x tokens, in float32) fit in `MAP_BYTES`."""
    longest = max(int(encoded.lengths.max(initial=1)), width or 1)
    per_token_place = 4 * heads * held_layers * longest
    return batches(encoded, tokens=max(longest, min(4096, MAP_BYTES // per_token_place)), width=width)


# ---------------------------------------------------------------------- finding the modules


@torch.no_grad()
def attention_modules(model: Any) -> tuple[list[nn.Module], dict[str, bool]]:
    """Return the modules that output attention weights, and the arguments that make the model return these weights.

    The modules are found by a tiny forward pass. A module is included if it returns a tuple with a tensor of shape
    [1, heads, tokens, tokens] that no other module has returned before. A module that is shared by all layers (ALBERT)
    appears once.

    Returns:
        A list of the modules, in the order in which they are called, and a dict of arguments. The dict contains
        `output_attentions=True` if the modules need this argument to return weights. Otherwise, it is empty.
    """
    config = model.config
    if (why := why_no_maps(config)) is not None:
        raise unreadable(config, why)
    (layers, heads), tokens = attention_shape(model), 5
    device = next(model.parameters()).device
    ids = torch.full((1, tokens), 3, device=device)
    requests: tuple[dict[str, bool], ...] = ({}, {"output_attentions": True})
    for ask in requests:
        modules: list[nn.Module] = []
        seen: list[torch.Tensor] = []  # keeps tensors alive, so that no later tensor can have the id of an earlier one

        def note(module, _, output, modules=modules, seen=seen):
            weights = weights_in(output, (1, heads, tokens, tokens))
            if weights is not None and not any(weights is earlier for earlier in seen):
                seen.append(weights)
                if module not in modules:
                    modules.append(module)

        with hooked((module for module in model.modules() if module is not model), note):
            model(input_ids=ids, attention_mask=torch.ones_like(ids), **ask)
        if not modules:
            continue
        if len(seen) != layers:
            raise unreadable(
                config,
                f"it computes {len(seen)} full token-by-token attention maps per head, but num_hidden_layers in its "
                f"configuration is {layers}",
            )
        names = {module: name for name, module in model.named_modules()}
        stacks = sorted({(layer_of(names[module]) or (names[module], 0))[0] for module in modules})
        if len(stacks) > 1:
            raise unreadable(config, f"it has several stacks of layers ({', '.join(stacks)})")
        return modules, ask
    kernel = config._attn_implementation
    if kernel != "eager":
        raise unreadable(
            config, f"it was opened with {kernel} attention, which does not return maps: open it with eager attention"
        )
    raise unreadable(config, "it does not expose a full token-by-token attention map")


def weights_in(output: Any, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Return the attention weights [rows, heads, tokens, tokens] from a module's output, or None if it has none."""
    if isinstance(output, tuple | list):
        for item in output[1:]:
            if torch.is_tensor(item) and item.dtype.is_floating_point and tuple(item.shape) == shape:
                return item
    return None
