"""One head's attention over a text, as a chart for notebooks."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.arguments import checked
from bertsecrets.devices import best_device
from bertsecrets.errors import UserError
from bertsecrets.models.attention import Maps, Pass
from bertsecrets.models.encoding import Batch, tokenize
from bertsecrets.models.locations import locator
from bertsecrets.models.opening import open_encoder


class _OneHead:
    """An observer that keeps the attention map of one head."""

    pairs = False

    def __init__(self, layer: int, head: int):
        self.layer, self.head = layer, head
        self.map: Float[np.ndarray, "tokens tokens"] = np.zeros((0, 0))

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Keep the head's map if this is its layer."""
        if layer == self.layer:
            self.map = maps[0, self.head].float().cpu().numpy()

    def compute(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return nothing."""
        return {}, {}


@checked
def head_map(
    model: str, text: str, text2: str | None = None, *, layer: int = 1, head: int = 1, offline: bool = False
) -> tuple[list[str], Float[np.ndarray, "tokens tokens"]]:
    """Return the tokens of a text and one head's attention from each token (row) to each token (column).

    Args:
        model: Hub name, folder, or packaged encoder.
        text2: Second text of a pair.
        layer: Layer number, starting at 1.
        head: Head number, starting at 1.

    Raises:
        UserError: If the model is not available, has no such head, or does not expose its attention.
    """
    encoder = open_encoder(locator({}, offline)(model))
    if not (1 <= layer <= encoder.layers and 1 <= head <= encoder.heads):
        raise UserError(
            f"{model} has {encoder.layers} layers of {encoder.heads} heads; head {layer}.{head} does not exist"
        )
    encoder.to(torch.device(best_device(None)))
    encoded, _ = tokenize(encoder.tokenizer, [text], None if text2 is None else [text2], encoder.fit(512))
    observer = _OneHead(layer - 1, head - 1)
    Pass(encoder).feed(encoded, [observer])
    return encoder.tokenizer.convert_ids_to_tokens(list(encoded.input_ids[0])), observer.map


@checked
def show_head(
    model: str, text: str, text2: str | None = None, *, layer: int = 1, head: int = 1, offline: bool = False
) -> Any:
    """Return a head's attention over a text as an Altair chart. Takes the same arguments as `head_map`.

    Raises:
        UserError: For the same reasons as `head_map`.
        MissingError: If the extra `report` is not installed.
    """
    from bertsecrets.report.charts import attention_map

    tokens, weights = head_map(model, text, text2, layer=layer, head=head, offline=offline)
    return attention_map(tokens, weights, f"{model}, layer {layer}, head {head}")
