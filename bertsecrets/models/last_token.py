"""Classifiers that read the token which ends an input, [SEP], in place of the first one, [CLS].

After the last layer the hidden vector of the last token takes the place of the first one's, so that whatever follows
(a norm, a pooler, the classifier) reads it. The checkpoint's config.json says so under `classifies_from`; opened by
transformers alone, such a checkpoint reads [CLS].
"""

from typing import Any

import torch
from torch import nn

from bertsecrets.errors import NotApplicableError

SETTING, LAST = "classifies_from", "sep"  # in config.json


class _Move:
    """Hooks of one model: its encoder notes where each input ends, and the last layer's output is changed there."""

    def __init__(self) -> None:
        self.at: torch.Tensor | None = None

    def note(self, _encoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs["input_ids"] if kwargs.get("input_ids") is not None else args[0]
        mask = kwargs.get("attention_mask")
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        self.at = places.amax(1) if mask is None else (places * (mask != 0)).amax(1)

    def move(self, _layer: nn.Module, _args: Any, output: Any) -> Any:
        if self.at is None:  # the layer is called by itself
            return None
        hidden = output[0] if isinstance(output, tuple) else output
        last = hidden[torch.arange(len(hidden), device=hidden.device), self.at]
        moved = torch.cat([last[:, None], hidden[:, 1:]], dim=1)
        return (moved, *output[1:]) if isinstance(output, tuple) else moved

    def forget(self, *_: Any) -> None:
        self.at = None


def read_last_token(model: Any, tokenizer: Any, last_layer: nn.Module) -> None:
    """Let a classifier read the [SEP] that ends an input, from now on, and note it in the configuration.

    Raises:
        NotApplicableError: inputs do not end with [SEP], or the classifier does not read the first token.
    """
    name = type(model).__name__
    example = tokenizer("one two three", "four five", return_tensors="pt")
    if tokenizer.sep_token_id is None or int(example["input_ids"][0, -1]) != tokenizer.sep_token_id:
        raise NotApplicableError(f"{name} cannot classify from [SEP]: its inputs do not end with it")
    with torch.inference_mode():
        before = model.eval()(**example).logits
    hooks = _Move()
    encoder = model.base_model
    encoder.register_forward_pre_hook(hooks.note, with_kwargs=True)
    last_layer.register_forward_hook(hooks.move)
    encoder.register_forward_hook(hooks.forget)
    with torch.inference_mode():
        if torch.equal(before, model(**example).logits):
            raise NotApplicableError(f"{name} cannot classify from [SEP]: it does not read the first token")
    setattr(model.config, SETTING, LAST)
