"""How much the loss depends on attention to [SEP] and to other tokens (Clark et al. 2019).

A weight that the loss does not depend on has no effect: if this is true of the weights on [SEP], attending to [SEP] is
a no-op. The loss is the fine-tuning loss of one example.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float

from bertsecrets.measures.base import Measure, Results, Run
from bertsecrets.measures.base.figures import Figure, Lines
from bertsecrets.measures.base.observers import heads_without_numbers, mean_over_present
from bertsecrets.measures.base.probe import check_attention, check_present
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, attention_modules, check_maps, weights_in
from bertsecrets.models.encoding import Batch, Loss, batches, check_finite, encode, loss_of, special_ids
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.settings import Params
from bertsecrets.types import Measurement

KINDS = ("cls", "sep", "other")
TOKENS = 1024  # in a batch; what gradients need of it is kept until they are computed


@measure("attention-gradients", title="gradients with respect to attention to [SEP]", source="Clark et al. 2019")
class AttentionGradients(Measure):
    """Values: `sep`, `cls`, `other`, each [layer, head]: mean absolute gradients of the loss by weights on them.

    `other` are all other real tokens. Samples: the same, [example, layer, head], NaN for examples without such tokens.
    """

    section = "attention"
    kernel: ClassVar[str] = "eager"
    gradients: ClassVar[bool] = True
    passes: ClassVar[float] = 3
    curves = KINDS

    def most(self, settings: Params) -> int | None:
        """Return the number of examples whose maps are read."""
        return settings.attention.examples

    def check_model(self, classifier: OpenModel) -> None:
        """Check that maps can be read and that inputs contain a special token."""
        check_present(classifier, special_ids(classifier.tokenizer).values(), "[CLS] or [SEP]")
        check_attention(classifier)

    def run(self, run: Run) -> Results:
        """Differentiate the loss of every example with respect to all its attention weights."""
        opened, rows = run.open(self.kernel), self.rows(run)
        encoded = encode(rows, opened.tokenizer, opened.fit(run.resources.settings.attention.max_length))
        targets = torch.as_tensor(np.asarray(rows.targets()), device=run.resources.device)
        ids, loss = special_ids(opened.tokenizer), loss_of(run.task.regression)
        shape = (len(encoded), opened.layers, opened.heads)
        samples = {kind: np.full(shape, np.nan, dtype=np.float32) for kind in KINDS}
        with progress(f"gradients of the attention of {run.subject}", len(encoded), "example") as shown:
            for batch in batches(encoded, tokens=TOKENS):
                here = batch.to(run.resources.device)
                slopes = attention_slopes(opened.model, here, targets[torch.from_numpy(batch.indices)], loss)
                for kind, marks in marked(here, ids).items():
                    for layer, slope in enumerate(slopes):
                        samples[kind][batch.indices, layer] = mean_slope(slope, marks, here.mask).cpu().numpy()
                shown.advance(len(batch.indices))
        means = mean_over_present(samples)
        return {self.name: ({kind: means[kind] for kind in KINDS}, dict(samples))}, len(encoded)

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that some heads have no numbers on examples on which others have some."""
        return heads_without_numbers(measurement)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the gradients by layer, means over heads."""
        names = {"cls": "to [CLS]", "sep": "to [SEP]", "other": "to other tokens"}
        curves = {
            names[kind]: np.asarray(measurement.value(kind)).mean(1)
            for kind in KINDS
            if not np.isnan(measurement.value(kind)).all()
        }
        caption = "Gradient of the loss with respect to attention weights by layer, mean over heads: {who}"
        yield Lines(caption, curves, unit="absolute gradient")


def attention_slopes(model: Any, batch: Batch, target: torch.Tensor, loss: Loss) -> list[Maps]:
    """Return the absolute gradient of each example's loss with respect to its attention weights, by layer.

    Raises:
        UserError: a logit is not finite.
        MisreadError: the maps are not distributions over the real tokens.
    """
    modules, must_ask = attention_modules(model)
    rows, tokens = batch.input_ids.shape
    shape = (rows, model.config.num_attention_heads, tokens, tokens)
    seen: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        maps = weights_in(output, shape)
        if maps is not None:
            check_maps(maps.detach(), batch, len(seen))
            seen.append(maps)

    model.requires_grad_(False)
    model.get_input_embeddings().weight.requires_grad_()  # so that all that follows has gradients
    handles = [module.register_forward_hook(keep) for module in modules]
    try:
        logits = model(**batch.inputs(), **({"output_attentions": True} if must_ask else {})).logits.float()
    finally:
        for handle in handles:
            handle.remove()
    check_finite(logits.detach())
    return [slope.abs() for slope in torch.autograd.grad(loss(logits, target), seen)]


def marked(batch: Batch, ids: dict[str, int | None]) -> dict[str, Bool[torch.Tensor, "rows tokens"]]:
    """Return which tokens are [CLS], which [SEP], and which other real ones."""
    none = torch.zeros_like(batch.mask)
    cls, sep = (
        none if (token := ids[kind]) is None else (batch.input_ids == token) & batch.mask for kind in ("cls", "sep")
    )
    return {"cls": cls, "sep": sep, "other": batch.mask & ~cls & ~sep}


def mean_slope(
    slopes: Maps, marks: Bool[torch.Tensor, "rows tokens"], real: Bool[torch.Tensor, "rows tokens"]
) -> Float[torch.Tensor, "rows heads"]:
    """Return the mean over all weights from a real token to a marked one; NaN for a row without marked tokens."""
    chosen = (real[:, :, None] & marks[:, None, :])[:, None]
    return (slopes * chosen).sum((2, 3)) / chosen.sum((2, 3))  # 0 / 0 for rows without
