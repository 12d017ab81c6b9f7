"""Attention to [CLS] and [SEP] by vector norms and by weights (Kobayashi et al. 2020).

A head adds a[i,j] f(x[j]) to token i for every token j, where f is the value projection followed by the head's slice
of the output projection. A large weight on a short vector has little effect, so the norm |a[i,j] f(x[j])| measures a
token's contribution better. Weights and norms are both reported as the fraction of each row that belongs to [CLS], or
to all [SEP] tokens, averaged over the rows of a map.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.ablation.bert_layer import Block
from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, Lines
from bertsecrets.measures.base.observers import SampleObserver
from bertsecrets.measures.base.probe import check_present, probe_inputs
from bertsecrets.measures.registry import measure
from bertsecrets.models.attention import Maps, Observer, Tap
from bertsecrets.models.encoding import Batch, batches, special_ids
from bertsecrets.models.opening import OpenModel
from bertsecrets.types import Measurement

KINDS = ("cls", "sep")


class NormObserver(SampleObserver):
    """Observer of one model: the fraction of special tokens by weights and by norms, [example, layer, head].

    Hooks capture the value projections of the model until `compute` is called.
    """

    counts = False

    def __init__(self, examples: int, model: Any, layers: int, heads: int, ids: dict[str, int | None]):
        super().__init__(examples, layers, heads, (f"{kind}_by_{by}" for kind in KINDS for by in ("weight", "norm")))
        self.blocks, self.ids = blocks_of(model, layers, heads), ids
        self.values: dict[torch.nn.Module, torch.Tensor] = {}
        projections = {block.value for block in self.blocks}
        self.handles = [module.register_forward_hook(self._keep) for module in projections]

    def _keep(self, module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        self.values[module] = output

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Process one layer of one batch, whose value projections have just been captured."""
        block = self.blocks[layer]
        weighted = maps * handed_on(block, self.values[block.value])[:, :, None]
        for by, of_rows in (("weight", maps), ("norm", weighted)):
            for kind in KINDS:
                if (token := self.ids[kind]) is None:
                    continue
                here = (batch.input_ids == token) & batch.mask
                share = _share(of_rows, here) / batch.lengths[:, None]
                self.keep(f"{kind}_by_{by}", batch, layer, share.masked_fill(~here.any(-1, keepdim=True), torch.nan))

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return values and samples of `NormAttention`."""
        for handle in self.handles:
            handle.remove()
        self.values.clear()
        return super().compute()


def handed_on(
    block: Block, values: Float[torch.Tensor, "rows tokens width"]
) -> Float[torch.Tensor, "rows heads tokens"]:
    """Return the norm of f(x), the output of each head if it attends to a single token."""
    by_head = block.split(values.float())
    output = block.output.weight.float().unflatten(1, (block.heads, -1))  # [width, heads, size]
    squares = torch.einsum("whs,wht->hst", output, output)
    return torch.einsum("rhns,hst,rhnt->rhn", by_head, squares, by_head).clamp(min=0).sqrt()


def _share(
    of_rows: Float[torch.Tensor, "rows heads tokens tokens"], here: torch.Tensor
) -> Float[torch.Tensor, "rows heads"]:
    """Return the fraction that belongs to the marked tokens, summed over rows; padding rows count as 0."""
    marked = (of_rows * here[:, None, None]).sum(-1)
    return (marked / of_rows.sum(-1).clamp(min=1e-12)).sum(-1)


def blocks_of(model: Any, layers: int, heads: int) -> list[Block]:
    """Return the layers of a model built like BERT, repeating a shared layer.

    Raises:
        NotApplicableError: the model is not built like BERT.
    """
    blocks = [block for module in model.modules() if (block := Block.of(module, heads)) is not None]
    if len(blocks) == 1:
        return blocks * layers
    if len(blocks) != layers:
        raise NotApplicableError(
            f"{type(model).__name__} is not built like BERT, so the outputs of its heads are not accessible"
        )
    return blocks


@torch.inference_mode()
def check_contexts(model: OpenModel) -> None:
    """Check that each head's output is the product of its attention weights and its projected values.

    Raises:
        NotApplicableError: the outputs differ (RoFormer can rotate the values), or the model is not built like BERT.
    """
    blocks = blocks_of(model.model, model.layers, model.heads)
    weights: list[Maps] = []  # one entry per layer, as in values and contexts
    values: list[torch.Tensor] = []
    contexts: list[torch.Tensor] = []
    tap, handles = Tap(model.model, model.layers), []
    for block in {id(block.value): block for block in blocks}.values():
        handles += [
            block.value.register_forward_hook(lambda _module, _inputs, output: values.append(output)),
            block.output.register_forward_pre_hook(lambda _module, inputs: contexts.append(inputs[0])),
        ]
    batch = next(batches(probe_inputs(model)))
    try:
        tap.run(batch, lambda _layer, maps: weights.append(maps))
    finally:
        for handle in handles:
            handle.remove()
    for block, maps, value, context in zip(blocks, weights, values, contexts, strict=True):
        products = (maps @ block.split(value)).transpose(1, 2).flatten(2)
        if not torch.allclose(products[batch.mask], context[batch.mask], rtol=1e-3, atol=1e-4):
            raise NotApplicableError(
                f"{type(model.model).__name__} transforms its values before weighting them, so the outputs of its "
                "heads are not accessible"
            )


@measure("norm-attention", title="attention to [CLS] and [SEP] by norms", source="Kobayashi et al. 2020")
class NormAttention(AttentionMeasure):
    """Values: `cls_by_weight`, `cls_by_norm`, `sep_by_weight`, `sep_by_norm`, each [layer, head].

    Samples: the same names, [example, layer, head].
    """

    common: ClassVar[bool] = False
    curves = ("sep_by_weight", "sep_by_norm")

    def observer(self, view: AttentionRun) -> Observer:
        """Return the observer for both tokens."""
        examples, layers, heads = view.shape
        return NormObserver(examples, view.tuned.model, layers, heads, view.special_ids)

    def check_model(self, classifier: OpenModel) -> None:
        """Check that maps and head outputs can be read, and that inputs contain a special token."""
        check_present(classifier, special_ids(classifier.tokenizer).values(), "[CLS] or [SEP]")
        check_contexts(classifier)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the fractions of [CLS] and [SEP] by layer, unless the model has neither token."""
        curves = {
            f"[{kind.upper()}] by {by}s": np.asarray(measurement.value(f"{kind}_by_{by}")).mean(1)
            for kind in KINDS
            for by in ("weight", "norm")
            if not np.isnan(measurement.value(f"{kind}_by_{by}")).all()
        }
        if curves:
            yield Lines(
                "Share of [CLS] and [SEP] in attention, by weights and by norms, mean over heads: {who}",
                curves,
                unit="share",
            )
