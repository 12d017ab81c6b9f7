"""The engine's baseline: plain transformers with eager attention and a full pass for each set of heads.

The weights of the disabled heads are overwritten with 1/L. The multiply-adds of baseline and engine are counted.
"""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask
from transformers.models.bert.modeling_bert import eager_attention_forward

from bertsecrets.ablation.head_sets import HeadSet
from bertsecrets.ablation.shared_prefix import plan
from bertsecrets.models.encoding import Batch, Encoded, collate

NAME = "plain_uniform"
_now: dict = {}


def _attention(module, query, key, value, attention_mask, **kwargs):
    layer = _now["layer"]
    _now["layer"] += 1
    output, weights = eager_attention_forward(module, query, key, value, attention_mask, **kwargs)
    heads = [head for at, head in _now["disabled"] if at == layer]
    if heads:
        weights[:, heads] = _now["uniform"].to(weights.dtype)
        output = torch.matmul(weights, value).transpose(1, 2).contiguous()
    return output, weights


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, eager_mask)


def in_file_order(encoded: Encoded, rows: int = 32) -> list[Batch]:
    """Return the batches of a data loader without shuffling, each padded to its longest example."""
    return [collate(encoded, np.arange(len(encoded))[i : i + rows]) for i in range(0, len(encoded), rows)]


def of_one_length(encoded: Encoded, rows: int = 32) -> list[Batch]:
    """Return batches of examples of equal length, without padding, as the engine uses them."""
    lengths = encoded.lengths
    groups = [np.flatnonzero(lengths == length) for length in np.unique(lengths)]
    return [collate(encoded, group[i : i + rows]) for group in groups for i in range(0, len(group), rows)]


def by_length(encoded: Encoded, rows: int = 32) -> list[Batch]:
    """Return full batches of examples of similar length, with little padding."""
    order = np.argsort(encoded.lengths, kind="stable")
    return [collate(encoded, order[i : i + rows]) for i in range(0, len(order), rows)]


def plain_passes(model, batches: Sequence[Batch], sets: Sequence[HeadSet], device: str = "cpu") -> np.ndarray:
    """Return the logits, [set, example, output], from one pass over all batches for every set."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    logits = np.empty((len(sets), sum(len(b.indices) for b in batches), model.config.num_labels), dtype=np.float32)
    with torch.inference_mode():
        for i, heads in enumerate(sets):
            for batch in batches:
                moved = batch.to(device)
                uniform = (moved.mask / moved.lengths[:, None])[:, None, None, :]
                _now.update(layer=0, disabled=heads, uniform=uniform)
                logits[i, batch.indices] = model(**moved.inputs()).logits.float().cpu().numpy()
    model.set_attn_implementation(before)
    return logits


def plain_count(config, batches: Sequence[Batch]) -> int:
    """Return the multiply-adds of one plain pass, including padding."""
    return sum(batch.mask.numel() * config.num_hidden_layers * _layer(config, batch.mask.shape[1]) for batch in batches)


def engine_count(config, encoded: Encoded, sets: Sequence[HeadSet]) -> int:
    """Return the multiply-adds of the engine's fast path, computed from its plan."""
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    steps, _ = plan(tuple(sets), config.num_hidden_layers)
    rest = 2 * width * inner
    total = 0
    for length in encoded.lengths.tolist():
        for splits in steps[:-1]:
            for leaving in splits.values():
                total += length * _layer(config, length)
                if len(leaving) > 1:
                    named = len({head for choice in leaving.values() for head in choice})
                    total += length * (named * width * width // heads + len(leaving) * named * width)
                    total += length * (len(leaving) - 1) * rest
        last = steps[-1]
        total += len(last) * (4 * width * width + 2 * heads * length * width)
        total += len(sets) * (width * width + rest)
    return total


def _layer(config, length: int) -> int:
    """Return a layer's multiply-adds per token, in its projections, attention and feed-forward network."""
    width = config.hidden_size
    return 4 * width * width + 2 * length * width + 2 * width * config.intermediate_size
