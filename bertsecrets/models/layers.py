"""Functions that inspect a model's layers, heads and weights, and that change which token its classifier reads.

Layers are found by inspecting the modules of the model, not by the name of its architecture.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bertsecrets.errors import NotApplicableError
from bertsecrets.models.families import why_no_maps

SETTING, LAST = "classifies_from", "sep"  # in config.json


def architecture(config: Any) -> str:
    """Return the name of the architecture that a configuration describes.

    >>> from transformers import BertConfig
    >>> architecture(BertConfig())
    'Bert'
    """
    return type(config).__name__.removesuffix("Config")


SIZE_SETTINGS = ("model_type", "num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")


def size_difference(config: Any, base: Any) -> str | None:
    """Return how a model differs in architecture or size from its supposed base model, or None if they agree."""
    for name in SIZE_SETTINGS:
        own, other = getattr(config, name, None), getattr(base, name, None)
        if own != other:
            return f"its {name} is {own} instead of {other}"
    return None


def weight_cosine(model: Any, base: Any) -> float:
    """Return the mean cosine similarity between the weight matrices of two models, excluding embeddings.

    The value is about 0 for independently trained models. After fine-tuning, the value is still close to 1, because
    fine-tuning barely changes the direction of a matrix. Matrices that only one of the models has are ignored.
    """
    others = dict(base.base_model.named_parameters())
    cosines = [
        torch.cosine_similarity(weight.detach().flatten(), others[name].detach().flatten(), dim=0)
        for name, weight in model.base_model.named_parameters()
        if layer_of(name) and weight.ndim == 2 and name in others and others[name].shape == weight.shape
    ]
    return float(torch.stack(cosines).mean()) if cosines else 1.0


def unreadable(config: Any, why: str) -> NotApplicableError:
    """Return the error to raise for an architecture whose attention maps cannot be read."""
    return NotApplicableError(f"the attention of {architecture(config)} cannot be read: {why}")


def attention_shape(model: Any) -> tuple[int, int]:
    """Return a model's number of layers and its number of heads per layer."""
    layers, heads = (getattr(model.config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
    if layers is None or heads is None:
        why = why_no_maps(model.config) or "its configuration does not contain the numbers of layers and heads"
        raise unreadable(model.config, why)
    return int(layers), int(heads)


def layer_of(name: str) -> tuple[str, int] | None:
    """Return a weight's name with `*` instead of its layer index, and the layer index, or None if it has none.

    >>> layer_of("encoder.layer.11.output.dense.bias")
    ('encoder.layer.*.output.dense.bias', 11)
    """
    match = re.search(r"\.(\d+)\.", f".{name}")
    return (f".{name}"[1 : match.start()] + ".*." + f".{name}"[match.end() :], int(match[1])) if match else None


@contextmanager
def hooked(modules: Iterable[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    """Register a forward hook on each of the modules until the `with` block ends."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def last_layers(model: Any, number: int = 2) -> list[nn.Module]:
    """Return the last `number` layers of a model."""
    depth = model.config.num_hidden_layers
    stacks = (m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == depth)
    stack = next(stacks, None)
    if stack is None or depth < number:
        raise NotApplicableError(f"{architecture(model.config)} does not have {number} layers with separate weights")
    return list(stack)[-number:]


# ---------------------------------------------------------------------- classifying from [SEP]


class _Move:
    """Hooks that, after the last layer, replace the hidden state of the first token with that of the last token."""

    def __init__(self) -> None:
        self.at: torch.Tensor | None = None

    def note(self, _encoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs["input_ids"] if kwargs.get("input_ids") is not None else args[0]
        mask = kwargs.get("attention_mask")
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        self.at = places.amax(1) if mask is None else (places * (mask != 0)).amax(1)

    def move(self, _layer: nn.Module, _args: Any, output: Any) -> Any:
        if self.at is None:  # the layer is called outside a forward pass of the model
            return None
        hidden = output[0] if isinstance(output, tuple | list) else output
        last = hidden[torch.arange(len(hidden), device=hidden.device), self.at]
        moved = torch.cat([last[:, None], hidden[:, 1:]], dim=1)
        return (moved, *output[1:]) if isinstance(output, tuple | list) else moved

    def forget(self, *_: Any) -> None:
        self.at = None


def read_last_token(model: Any, tokenizer: Any) -> None:
    """Make a classifier read the final [SEP] instead of [CLS], and record this change in the configuration.

    Everything after the last layer (a norm, a pooler, the classifier head) then reads [SEP]. If such a checkpoint is
    opened by transformers without this suite, the classifier reads [CLS].
    """
    name = type(model).__name__
    example = tokenizer("one two three", "four five", return_tensors="pt")
    if tokenizer.sep_token_id is None or int(example["input_ids"][0, -1]) != tokenizer.sep_token_id:
        raise NotApplicableError(f"{name} cannot classify from [SEP]: its inputs do not end with [SEP]")
    with torch.inference_mode():
        before = model.eval()(**example).logits
    hooks = _Move()
    encoder = model.base_model
    encoder.register_forward_pre_hook(hooks.note, with_kwargs=True)
    last_layers(model, 1)[0].register_forward_hook(hooks.move)
    encoder.register_forward_hook(hooks.forget)
    with torch.inference_mode():
        if torch.equal(before, model(**example).logits):
            raise NotApplicableError(f"{name} cannot classify from [SEP]: its classifier does not read the first token")
    setattr(model.config, SETTING, LAST)
