"""Notebook charts of the attention between a text's tokens, for a single head or for all heads of a layer."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from bertsecrets.arguments import checked
from bertsecrets.devices import best_device
from bertsecrets.errors import UserError
from bertsecrets.models.attention import Maps, Pass
from bertsecrets.models.encoding import Batch, tokenize
from bertsecrets.models.in_memory import opened
from bertsecrets.progress import counted


class _OneLayer:
    pairs = False

    def __init__(self, layer: int):
        self.layer = layer
        self.maps: Float[np.ndarray, "heads tokens tokens"] = np.zeros((0, 0, 0))

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        if layer == self.layer:
            self.maps = maps[0].float().cpu().numpy()

    def compute(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, {}


def _layer_maps(
    model: str | Path | nn.Module, text: str, text2: str | None, layer: int, head: int, tokenizer: Any, *, offline: bool
) -> tuple[list[str], Float[np.ndarray, "heads tokens tokens"]]:
    """Return a text's tokens and a layer's attention maps, after checking that the model has the layer and head."""
    if not text.strip() or (text2 is not None and not text2.strip()):
        raise UserError("the text is empty: give at least one word")
    with opened(model, tokenizer, offline=offline) as encoder:
        if not (1 <= layer <= encoder.layers and 1 <= head <= encoder.heads):
            has = f"{_name(model)} has {counted(encoder.layers, 'layer')} of {counted(encoder.heads, 'head')}"
            raise UserError(f"{has}; head {layer}.{head} does not exist")
        encoder.to(torch.device(best_device(None)))
        encoded, _ = tokenize(encoder.tokenizer, [text], None if text2 is None else [text2], encoder.fit(512))
        observer = _OneLayer(layer - 1)
        Pass(encoder).feed(encoded, [observer])
    return encoder.tokenizer.convert_ids_to_tokens(list(encoded.input_ids[0])), observer.maps


@checked
def head_map(
    model: str | Path | nn.Module,
    text: str,
    text2: str | None = None,
    *,
    layer: int = 1,
    head: int = 1,
    tokenizer: Any = None,
    offline: bool = False,
) -> tuple[list[str], Float[np.ndarray, "tokens tokens"]]:
    """Return the tokens of a text and one head's attention from each token (row) to each token (column).

    Args:
        model: Hub name, folder, packaged encoder, or model in memory.
        text2: Second text of a pair.
        layer: Layer number, starting at 1.
        head: Head number, starting at 1.
        tokenizer: Tokenizer of a model in memory.

    Raises:
        UserError: If a text is empty, if the model is not available or does not expose its attention, or if the layer
            or head does not exist.
    """
    tokens, maps = _layer_maps(model, text, text2, layer, head, tokenizer, offline=offline)
    return tokens, maps[head - 1]


def _name(model: str | Path | nn.Module) -> str:
    return type(model).__name__ if isinstance(model, nn.Module) else str(model)


@checked
def show_head(
    model: str | Path | nn.Module,
    text: str,
    text2: str | None = None,
    *,
    layer: int = 1,
    head: int | None = 1,
    tokenizer: Any = None,
    offline: bool = False,
) -> Any:
    """Return a head's attention over a text as an Altair chart; takes the same arguments as `head_map`.

    Args:
        head: Head number, starting at 1; None shows all heads of the layer.

    Raises:
        UserError: See `head_map`.
        MissingError: If the extra `report` is not installed.
    """
    from bertsecrets.report.charts import attention_maps

    tokens, maps = _layer_maps(model, text, text2, layer, 1 if head is None else head, tokenizer, offline=offline)
    shown = dict(enumerate(maps, start=1)) if head is None else {head: maps[head - 1]}
    title = f"{_name(model)}, layer {layer}"
    return attention_maps(tokens, shown, title if head is None else f"{title}, head {head}")
