"""Gradients of the loss with respect to attention to [SEP] and to other tokens (Clark et al. 2019).

Gradients near 0 for attention to [SEP] would indicate that attending to [SEP] is a no-op. The loss is the fine-tuning
loss of a single example.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float

from bertsecrets.measures.base import MeasureContext, Results
from bertsecrets.measures.base.attention_measure import MapMeasure
from bertsecrets.measures.base.figures import Figure, Lines
from bertsecrets.measures.base.observers import SampleObserver, marked
from bertsecrets.measures.base.probe import check_special_tokens
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, attention_modules, check_maps, weights_in
from bertsecrets.models.encoding import Batch, Loss, batches, check_finite, encode, loss_of, special_ids
from bertsecrets.models.layers import hooked
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.types import Measurement

TOKEN_KINDS = ("cls", "sep", "other")
GRADIENT_BATCH_TOKENS = 1024  # tokens per batch; small, because activations are stored for the backward pass


@measure("attention-gradients", title="gradients with respect to attention to [SEP]", source="Clark et al. 2019")
class AttentionGradients(MapMeasure):
    """Values: `sep`, `cls` and `other`, each of shape [layer, head]. These are mean absolute gradients with respect to
    attention to [SEP], to [CLS], and to all other tokens except padding.

    Samples: the same gradients by example, of shape [example, layer, head]. They are NaN for examples without such
    tokens.
    """

    gradients: ClassVar[bool] = True
    curves = TOKEN_KINDS

    def check_model(self, classifier: OpenModel) -> None:
        check_special_tokens(classifier)
        super().check_model(classifier)

    def run(self, context: MeasureContext) -> Results:
        """Differentiate each example's loss with respect to all attention weights."""
        opened, rows = context.open(self.kernel), self.rows(context)
        encoded = encode(rows, opened.tokenizer, opened.fit(context.resources.settings.attention.max_length))
        targets = torch.as_tensor(np.asarray(rows.targets()), device=context.resources.device)
        ids, loss = special_ids(opened.tokenizer), loss_of(context.task.regression)
        observer = SampleObserver(len(encoded), opened.layers, opened.heads, TOKEN_KINDS, counts=False)
        with progress(f"attention gradients of {context.measured}", len(encoded), "example") as shown:
            for batch in batches(encoded, tokens=GRADIENT_BATCH_TOKENS):
                here = batch.to(context.resources.device)
                slopes = attention_slopes(opened.model, here, targets[torch.from_numpy(batch.indices)], loss)
                for kind, marks in marked(here, ids).items():
                    for layer, slope in enumerate(slopes):
                        observer.record(kind, batch, layer, mean_slope(slope, marks, here.mask))
                shown.advance(len(batch.indices))
        return {self.name: observer.compute()}, len(encoded)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        names = {"cls": "to [CLS]", "sep": "to [SEP]", "other": "to other tokens"}
        curves = {
            names[kind]: np.asarray(measurement.value(kind)).mean(1)
            for kind in TOKEN_KINDS
            if not np.isnan(measurement.value(kind)).all()
        }
        caption = "Gradient of the loss with respect to attention weights by layer, mean over heads: {who}"
        yield Lines(caption, curves, unit="absolute gradient")


def attention_slopes(model: Any, batch: Batch, target: torch.Tensor, loss: Loss) -> list[Maps]:
    """Return the absolute gradients of each example's loss with respect to its attention weights, for each layer."""
    modules, ask = attention_modules(model)
    rows, tokens = batch.input_ids.shape
    shape = (rows, model.config.num_attention_heads, tokens, tokens)
    seen: list[torch.Tensor] = []

    def note(_module: Any, _inputs: Any, output: Any) -> None:
        maps = weights_in(output, shape)
        if maps is not None:
            check_maps(maps.detach(), batch, len(seen))
            seen.append(maps)

    model.requires_grad_(False)
    model.get_input_embeddings().weight.requires_grad_()  # makes all activations differentiable
    with hooked(modules, note):
        logits = model(**batch.inputs(), **ask).logits.float()
    check_finite(logits.detach())
    return [slope.abs() for slope in torch.autograd.grad(loss(logits, target), seen)]


def mean_slope(
    slopes: Maps, marks: Bool[torch.Tensor, "rows tokens"], real: Bool[torch.Tensor, "rows tokens"]
) -> Float[torch.Tensor, "rows heads"]:
    """Return the mean gradient for attention to the marked tokens, by row and head; NaN for rows without them."""
    chosen = (real[:, :, None] & marks[:, None, :])[:, None]
    return (slopes * chosen).sum((2, 3)) / chosen.sum((2, 3))  # 0 / 0 is NaN
