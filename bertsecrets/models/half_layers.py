"""Layers that are built like BERT's, trained in bfloat16 on a CPU: forward and backward pass written out by hand.

A CPU with bfloat16 multiplies matrices so fast that the rest of a training step takes longer: casts of weights, copies,
random numbers for dropout. Here the matrices of a layer are kept in bfloat16 beside the model's own float32 weights,
those of query, key and value as one, and the activations are passed over as rarely as possible. LayerNorms and biases
stay in float32.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int16
from torch import nn

from bertsecrets.models.families import ACTIVATION, BERT_LAYOUTS

BERT = "BERT, RoBERTa, ELECTRA, ERNIE"  # the layout whose dropout is known:
DROPOUTS = ("attention.self.dropout", "attention.output.dropout", "output.dropout")
LEVELS = 2**16  # of the random numbers that dropout is drawn by
PROBE, TOLERANCE = (2, 9), 1e-4  # rows and tokens on which a layer is compared with the model's own

Hidden = Float[torch.Tensor, "rows tokens width"]
Flat = Float[torch.Tensor, "tokens width"]
Changed = Float[torch.Tensor, "tokens outputs"]
Mask = Bool[torch.Tensor, "rows tokens"]
Keep = Int16[torch.Tensor, "*shape"]  # 1 where dropout keeps a number, else 0


class Dropout:
    """Dropout of one step; its random numbers depend on the seed and the number of the step alone."""

    def __init__(self, seed: int, step: int):
        """Begin the random numbers of a step."""
        self.generator = np.random.Generator(np.random.SFC64([seed, step]))

    def draw(self, shape: tuple[int, ...], rate: float) -> Keep | None:
        """Return which numbers are kept; None where all are."""
        dropped = round(rate * LEVELS)
        if dropped == 0:
            return None
        count = math.prod(shape)
        drawn = self.generator.integers(0, 2**64, -(-count // 4), dtype=np.uint64)
        return torch.from_numpy(drawn).view(torch.int16)[:count].view(shape).ge_(dropped - LEVELS // 2)


def factor(rate: float) -> float:
    """Return what the numbers that dropout keeps are multiplied by."""
    return LEVELS / (LEVELS - round(rate * LEVELS))


def drop_(x: Float[torch.Tensor, "*shape"], keep: Keep | None) -> Float[torch.Tensor, "*shape"]:
    """Set to 0 what dropout does not keep, in place."""
    if keep is None:
        return x
    if x.dtype == torch.bfloat16:  # the bits times 1 or 0, which is four times as fast
        x.view(torch.int16).mul_(keep)
        return x
    return x.mul_(keep)


class Matrix:
    """The weights of one Linear, or of several of one input stacked, in half precision; and their last gradient."""

    def __init__(self, linears: list[nn.Linear], dtype: torch.dtype):
        """Copy the weights."""
        self.linears = linears
        self.sizes = [linear.out_features for linear in linears]
        self.weight = torch.cat([linear.weight.detach() for linear in linears]).to(dtype)
        self.grad = torch.zeros_like(self.weight)

    def apply(self, x: Flat) -> Changed:
        """Return the product of x and the weights, plus the biases."""
        bias = torch.cat([linear.bias.detach() for linear in self.linears]).to(x.dtype)
        return torch.addmm(bias, x, self.weight.t())

    def learn(self, x: Flat, change: Changed) -> None:
        """Set the gradients of weights and biases from the input and the gradient of the output."""
        turned = change.t()
        if change.shape[1] <= x.shape[1]:
            turned = turned.contiguous()  # faster, if it is the smaller of the two
        torch.mm(turned, x, out=self.grad)
        for linear, part in zip(self.linears, change.sum(0).split(self.sizes), strict=True):
            linear.bias.grad = part.to(linear.bias.dtype)

    def twins(self) -> Iterator[tuple[nn.Parameter, torch.Tensor, torch.Tensor]]:
        """Yield each weight of the model with its half-precision twin and its gradient."""
        parts: Any = zip(self.linears, self.weight.split(self.sizes), self.grad.split(self.sizes), strict=True)
        for linear, twin, grad in parts:
            yield linear.weight, twin, grad


@dataclass(frozen=True)
class Step:
    """What all layers need to know of a step."""

    mask: Mask | None  # True on real tokens; None without padding
    dropout: Dropout | None  # None: nothing is dropped


class HalfLayer:
    """One layer: `norm(outer(gelu(inner(y))) + y)`, `y` being `attention_norm(output(attention(x)) + x)`."""

    def __init__(self, module: nn.Module, heads: int, dtype: torch.dtype = torch.bfloat16):
        """Copy the matrices of a transformers layer that `fits`."""
        parts = [attrgetter(name)(module) for name in BERT_LAYOUTS[BERT]]
        query, key, value, output, self.attention_norm, inner, _, outer, self.norm = parts
        self.module, self.heads = module, heads
        self.qkv, self.output = Matrix([query, key, value], dtype), Matrix([output], dtype)
        self.inner, self.outer = Matrix([inner], dtype), Matrix([outer], dtype)
        self.rates = [attrgetter(name)(module).p for name in DROPOUTS]
        self.logit_scale = 1 / math.sqrt(query.out_features // heads)

    @classmethod
    def fits(cls, module: nn.Module) -> bool:
        """Return whether a module has the parts of such a layer."""
        try:
            parts = [attrgetter(name)(module) for name in BERT_LAYOUTS[BERT]]
            dropouts = [attrgetter(name)(module) for name in DROPOUTS]
        except AttributeError:
            return False
        weights = parts[:ACTIVATION] + parts[ACTIVATION + 1 :]
        return (
            all(type(part) in (nn.Linear, nn.LayerNorm) and part.bias is not None for part in weights)
            and all(type(one) is nn.Dropout for one in dropouts)
            and all(weight.requires_grad for weight in module.parameters())
        )

    def matrices(self) -> tuple[Matrix, ...]:
        """Return all matrices of the layer."""
        return self.qkv, self.output, self.inner, self.outer

    def heads_first(self, x: Flat, rows: int) -> Float[torch.Tensor, "each rows_and_heads length size"]:
        """Return projected tokens head by head; `each` is 3 for query, key and value together."""
        size = self.output.weight.shape[0] // self.heads
        split = x.view(rows, len(x) // rows, -1, self.heads, size).permute(2, 0, 3, 1, 4)
        return split.reshape(split.shape[0], rows * self.heads, len(x) // rows, size)

    def tokens_first(self, x: Float[torch.Tensor, "each rows_and_heads length size"], rows: int) -> Flat:
        """Return the inverse of `heads_first`."""
        each, _, length, size = x.shape
        joined = x.view(each, rows, self.heads, length, size).permute(1, 3, 0, 2, 4)
        return joined.reshape(rows * length, each * self.heads * size)

    def __call__(self, x: Hidden, step: Step) -> Hidden:
        """Return the layer's output, with a gradient for the input; those of the weights are set on the way."""
        return _Layer.apply(x, self, step)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Hidden, layer: HalfLayer, step: Step) -> Hidden:
        rows, length, width = hidden.shape
        x = hidden.reshape(rows * length, width)
        shapes = [(rows * layer.heads, length, length), x.shape, x.shape]
        keeps = [step.dropout.draw(s, r) if step.dropout else None for s, r in zip(shapes, layer.rates, strict=True)]
        factors = [1.0 if keep is None else factor(rate) for keep, rate in zip(keeps, layer.rates, strict=True)]

        heads = layer.heads_first(layer.qkv.apply(x), rows)
        query, key, value = heads
        logits = x.new_empty(shapes[0])
        if step.mask is None:
            torch.baddbmm(logits, query, key.transpose(1, 2), beta=0, alpha=layer.logit_scale, out=logits)
        else:
            away = torch.zeros(step.mask.shape, dtype=x.dtype).masked_fill_(~step.mask, torch.finfo(x.dtype).min)
            away = away.repeat_interleave(layer.heads, 0)[:, None]
            torch.baddbmm(away, query, key.transpose(1, 2), alpha=layer.logit_scale, out=logits)
        maps = logits.softmax(-1)
        kept = drop_(torch.mul(maps, factors[0], out=logits), keeps[0]) if keeps[0] is not None else maps
        context = layer.tokens_first(torch.bmm(kept, value)[None], rows)

        sum1 = drop_(layer.output.apply(context), keeps[1])
        torch.add(x, sum1, alpha=factors[1], out=sum1)
        y, *moments1 = _norm(sum1, layer.attention_norm)
        wide = layer.inner.apply(y)
        active = F.gelu(wide)
        sum2 = drop_(layer.outer.apply(active), keeps[2])
        torch.add(y, sum2, alpha=factors[2], out=sum2)
        z, *moments2 = _norm(sum2, layer.norm)
        ctx.save_for_backward(x, heads, maps, kept, context, sum1, *moments1, y, wide, active, sum2, *moments2)
        ctx.layer, ctx.keeps, ctx.factors, ctx.rows = layer, keeps, factors, rows
        return z.view(rows, length, width)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        layer, rows, keeps, factors = ctx.layer, ctx.rows, ctx.keeps, ctx.factors
        x, heads, maps, kept, context, sum1, mean1, root1, y, wide, active, sum2, mean2, root2 = ctx.saved_tensors
        query, key, value = heads
        change = grads[0].reshape(x.shape)

        d_sum2 = _norm_backward(change, sum2, mean2, root2, layer.norm)
        d_outer = _dropped(d_sum2, keeps[2], factors[2])
        layer.outer.learn(active, d_outer)
        d_wide = torch.mm(d_outer, layer.outer.weight)
        torch.ops.aten.gelu_backward(d_wide, wide, grad_input=d_wide)
        layer.inner.learn(y, d_wide)
        d_y = d_sum2.addmm_(d_wide, layer.inner.weight)

        d_sum1 = _norm_backward(d_y, sum1, mean1, root1, layer.attention_norm)
        d_output = _dropped(d_sum1, keeps[1], factors[1])
        layer.output.learn(context, d_output)
        d_context = layer.heads_first(torch.mm(d_output, layer.output.weight), rows)[0]
        d_heads = torch.empty_like(heads)
        torch.bmm(kept.transpose(1, 2), d_context, out=d_heads[2])
        d_maps = torch.empty_like(maps)
        torch.baddbmm(d_maps, d_context, value.transpose(1, 2), beta=0, alpha=factors[0], out=d_maps)
        d_logits = torch._softmax_backward_data(drop_(d_maps, keeps[0]), maps, -1, maps.dtype)
        for place, one, other in ((0, d_logits, key), (1, d_logits.transpose(1, 2), query)):
            torch.baddbmm(d_heads[place], one, other, beta=0, alpha=layer.logit_scale, out=d_heads[place])
        d_qkv = layer.tokens_first(d_heads, rows)
        layer.qkv.learn(x, d_qkv)
        return d_sum1.addmm_(d_qkv, layer.qkv.weight).view(grads[0].shape), None, None


def _norm(x: Flat, norm: nn.LayerNorm) -> tuple[torch.Tensor, ...]:
    return torch.native_layer_norm(x, norm.normalized_shape, norm.weight.detach(), norm.bias.detach(), norm.eps)


def _norm_backward(change: Flat, x: Flat, mean: torch.Tensor, root: torch.Tensor, norm: nn.LayerNorm) -> Flat:
    """Return the gradient of a LayerNorm's input, and set those of its weights."""
    weight, bias = norm.weight.detach(), norm.bias.detach()
    before, norm.weight.grad, norm.bias.grad = torch.ops.aten.native_layer_norm_backward(
        change, x, norm.normalized_shape, mean, root, weight, bias, [True, True, True]
    )
    return before


def _dropped(change: Flat, keep: Keep | None, times: float) -> Flat:
    return change if keep is None else drop_(torch.mul(change, times), keep)


def layers_like_berts(model: Any) -> list[nn.Module]:
    """Return the layers of a model if each has the parts of BERT's, by their names and kinds alone; otherwise none."""
    config = model.config
    modules = [module for module in model.base_model.modules() if HalfLayer.fits(module)]
    plain = config.__dict__.get("hidden_act") == "gelu" and not getattr(config, "is_decoder", False)
    return modules if plain and len(modules) == config.num_hidden_layers else []


class HalfEncoder:
    """All layers of a model in half precision."""

    def __init__(self, layers: list[HalfLayer]):
        """Take the layers in their order."""
        self.layers = layers

    @classmethod
    def of(cls, model: Any) -> "HalfEncoder | None":
        """Return the layers of a model whose every layer is built like BERT's; None for others.

        Having BERT's parts does not prove anything (there may be rotary positions besides), so each layer is compared
        with the model's own, in float32.
        """
        modules, heads = layers_like_berts(model), model.config.num_attention_heads
        if not modules or not all(_equal(module, heads) for module in modules):
            return None
        return cls([HalfLayer(module, heads) for module in modules])

    def twins(self) -> Iterator[tuple[nn.Parameter, torch.Tensor, torch.Tensor]]:
        """Yield each matrix of the model with its half-precision twin and its gradient."""
        for layer in self.layers:
            for matrix in layer.matrices():
                yield from matrix.twins()

    @contextmanager
    def in_place_of_the_models(self, step: Step) -> Iterator[None]:
        """Let the model compute with these layers within the block."""

        def forward(layer: HalfLayer, hidden: Hidden, *_: Any, **__: Any) -> Hidden:
            out = layer(hidden.to(torch.bfloat16), step)
            return out.float() if layer is self.layers[-1] else out

        for layer in self.layers:
            layer.module.forward = partial(forward, layer)
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.module.forward


@torch.no_grad()
def _equal(module: Any, heads: int) -> bool:
    """Return whether a layer computes what `HalfLayer` does."""
    layer = HalfLayer(module, heads, torch.float32)
    hidden = torch.randn(*PROBE, layer.output.weight.shape[0], generator=torch.Generator().manual_seed(0))
    mask = torch.ones(PROBE, dtype=torch.bool)
    mask[0, PROBE[1] // 2 :] = False
    away = torch.zeros(PROBE).masked_fill_(~mask, torch.finfo(torch.float32).min)[:, None, None]
    training = module.training
    try:
        expected = module.eval()(hidden, away)
    except (TypeError, ValueError, RuntimeError):  # it wants more than a BERT layer does
        return False
    finally:
        module.train(training)
    got = layer(hidden, Step(mask, None))
    return isinstance(expected, torch.Tensor) and torch.allclose(got[mask], expected[mask], rtol=0, atol=TOLERANCE)
