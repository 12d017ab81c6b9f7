"""The plain way to disable heads, which the engine is compared with: one example at a time, no padding, every
attention weight written out, the disabled head's row overwritten with the constant. Shares no code with the engine.
"""

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

_current: dict = {}


def explicit_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """Eager attention; a token that may look at n tokens gives each of them 1/n where its head is disabled."""
    layer = _current["layer"]
    _current["layer"] += 1
    tokens = query.shape[2]
    logits = query @ key.transpose(2, 3) * (scaling if scaling is not None else query.shape[-1] ** -0.5)
    allowed = torch.ones(tokens, tokens, dtype=torch.bool)
    if attention_mask is not None:
        allowed = attention_mask[0, 0] > -1 if attention_mask.dtype != torch.bool else attention_mask[0, 0]
    weights = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    for at, head in _current["disabled"]:
        if at == layer:
            weights[:, head] = allowed / allowed.sum(1, keepdim=True)
    return (weights @ value).transpose(1, 2).contiguous(), weights


AttentionInterface.register("explicit", explicit_attention)
AttentionMaskInterface.register("explicit", eager_mask)


def plain_logits(model, encoded, sets) -> np.ndarray:
    """[set, example, output], with one forward pass for every set and example."""
    before = model.config._attn_implementation
    model.set_attn_implementation("explicit")
    found = []
    for disabled in sets:
        for i in range(len(encoded)):
            _current.update(layer=0, disabled=disabled)
            inputs = {"input_ids": torch.tensor([encoded.input_ids[i]])}
            if encoded.segments is not None:
                inputs["token_type_ids"] = torch.tensor([encoded.segments[i]])
            with torch.no_grad():
                found.append(model(**inputs).logits[0].numpy())
            assert _current["layer"] == model.config.num_hidden_layers
    model.set_attn_implementation(before)
    return np.array(found).reshape(len(sets), len(encoded), -1)
