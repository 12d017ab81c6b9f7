"""Reference implementations of ablation to compare the engine with: one example at a time, no padding.

`plain_logits` overwrites the attention weights of a disabled head with 1/n. The other two do not use attention weights.
They replace a disabled head's input to the output projection: `logits_from_mean_values` with the mean of its values,
and `logits_from_other_vectors` as in the other kinds of ablation. None of them shares code with the engine.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from tiny import alone


@contextmanager
def changed_weights(layers: int, heads: int, change: Callable[[int, torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Patch softmax within the block, so that `change(layer, weights)` replaces the attention weights of an example."""
    tensor_softmax, softmax, calls = torch.Tensor.softmax, torch.softmax, 0

    def changed(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            nonlocal calls
            weights = own(logits, *args, **kwargs)
            if weights.dim() != 4 or tuple(weights.shape[:2]) != (1, heads):
                return weights
            calls += 1
            return change((calls - 1) % layers, weights)

        return call

    torch.Tensor.softmax, torch.softmax = changed(tensor_softmax), changed(softmax)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.softmax, torch.softmax = tensor_softmax, softmax  # type: ignore[method-assign]
    assert calls % layers == 0


def without_heads(disabled, heads: int) -> Callable[[int, torch.Tensor], torch.Tensor]:
    """Return a change of weights: in a disabled head, a token that may attend to n tokens gives 1/n to each of them."""

    def change(layer: int, weights: torch.Tensor) -> torch.Tensor:
        even = (weights > 0) / (weights > 0).sum(-1, keepdim=True)
        chosen = torch.tensor([(layer, head) in disabled for head in range(heads)])
        return torch.where(chosen[:, None, None], even, weights)

    return change


def plain_logits(model, encoded, sets) -> np.ndarray:
    """Return logits [set, example, output], from one forward pass with eager attention for each set and example."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    logits = []
    for disabled in sets:
        for i in range(len(encoded)):
            with torch.no_grad(), changed_weights(layers, heads, without_heads(disabled, heads)):
                logits.append(model(**alone(encoded, i)).logits[0].numpy())
    model.set_attn_implementation(before)
    return np.array(logits).reshape(len(sets), len(encoded), -1)


PROJECTIONS = (
    *("attention.output.dense", "attention.out_lin", "attention.dense", "attn.o", "attn.Wo"),
    *("attn.c_proj", "self_attn.o_proj", "attention.wo"),
)
VALUES = ("v", "value", "value_proj", "v_lin", "in_proj")


def run_changed(model, encoded, i: int, change) -> np.ndarray:
    """Return one example's logits, after `change(layer, vectors)` of the inputs [token, head, size] of projections.

    The output projections are found by name, layer by layer.
    """
    names = dict(model.named_modules())
    outputs = [names[name] for name in names if name.endswith(PROJECTIONS) and ".bottleneck." not in name]
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    assert len(outputs) in (1, layers)  # ALBERT's layers share one
    layer = -1

    def hook(_module, inputs):
        nonlocal layer
        layer += 1
        by_head = inputs[0].unflatten(-1, (heads, -1)).clone()
        change(layer, by_head[0])
        return (by_head.flatten(2), *inputs[1:])

    with ExitStack() as hooks, torch.no_grad():
        for module in outputs:
            hooks.callback(module.register_forward_pre_hook(hook).remove)
        logits = model(**alone(encoded, i)).logits[0]
    assert layer == layers - 1
    return logits.numpy()


def logits_from_other_vectors(model, encoded, sets, kind: str, draw: int = 1) -> np.ndarray:
    """Return logits [set, example, output] with the inputs of the output projections replaced for disabled heads.

    There is one forward pass for each set and example. All original inputs are stored, and `mean` and `resampled` are
    computed from them as defined.
    """
    rows: list[list[torch.Tensor]] = []  # for each example and layer: [token, head, size]
    for i in range(len(encoded)):
        rows.append([])
        run_changed(model, encoded, i, lambda _layer, vectors, kept=rows[-1]: kept.append(vectors.clone()))
    order = np.random.default_rng(draw).permutation(len(rows)).tolist()

    def other(i: int, layer: int) -> torch.Tensor:
        if kind == "zero":
            return torch.zeros_like(rows[i][layer])
        if kind == "mean":
            return torch.cat([row[layer] for row in rows]).mean(0).expand_as(rows[i][layer])
        taken = rows[order[(order.index(i) + 1) % len(order)]][layer]
        length = len(rows[i][layer])
        return torch.stack([taken[int(place * (len(taken) - 1) / (length - 1))] for place in range(length)])

    def disable(i: int, disabled):
        def change(layer, vectors):
            for at, head in disabled:
                if at == layer:
                    vectors[:, head] = other(i, layer)[:, head]

        return run_changed(model, encoded, i, change)

    return np.array([[disable(i, disabled) for i in range(len(encoded))] for disabled in sets])


def logits_from_mean_values(model, encoded, sets) -> np.ndarray:
    """Return logits [set, example, output] of a bidirectional model, from one forward pass for each set and example.

    A disabled head's output is the mean of its values. Value projections are found by name, layer by layer.
    """
    names = dict(model.named_modules())
    values = {name: module for name, module in names.items() if name.rpartition(".")[2] in VALUES}
    assert len(values) in (1, model.config.num_hidden_layers)

    def disable(i: int, disabled):
        means: list[torch.Tensor] = []  # for each layer so far

        def keep_mean(module, _inputs, projected):
            means.append(_values(names, module, projected, model.config.num_attention_heads)[0].mean(0))

        def change(layer, vectors):
            off = [head for at, head in disabled if at == layer]
            vectors[:, off] = means[layer][off]

        with ExitStack() as hooks:
            for module in values.values():
                hooks.callback(module.register_forward_hook(keep_mean).remove)
            return run_changed(model, encoded, i, change)

    return np.array([[disable(i, disabled) for i in range(len(encoded))] for disabled in sets])


def _values(names, module, projected, heads: int) -> torch.Tensor:
    """Return values [row, token, head, size] from a projection's output. DeBERTa v1 projects query, key and value."""
    owner = next((names[name.rpartition(".")[0]] for name in names if names[name] is module), None)
    by_head = projected.unflatten(-1, (heads, -1))
    if not hasattr(owner, "in_proj"):
        return by_head
    return by_head.chunk(3, dim=-1)[2] + owner.v_bias.unflatten(-1, (heads, -1))
