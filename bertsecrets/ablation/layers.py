"""A classifier's layers in calling order, with hooks that replace a layer's work, for any architecture.

No layer is looked up by name. A tiny forward pass shows which module calls belong to which layer; after that a
forward pass can start at any layer, and the attention of any head can be made uniform: every supported model passes
queries, keys and values to transformers' attention interface, and a head with zeroed queries has equal logits, so its
softmax is exactly 1/L over the tokens that it may attend to (K19 section 4.6).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from bertsecrets.errors import MisreadError, NotApplicableError, UserError
from bertsecrets.models.families import ABLATABLE, LOGIT_TERMS

NAME = "bertsecrets_uniform"
Hidden = Float[torch.Tensor, "rows tokens width"]
StepIn = Callable[[int, Hidden], Hidden | None]

_see: ContextVar[Callable[[], torch.Tensor | None]] = ContextVar("see")


class PositionTermError(Exception):
    """Attention logits have a term without the query, so a zeroed query does not make them equal."""


def uniform_where_disabled(module, query, key, value, attention_mask, **kwargs):
    """Return transformers' SDPA attention, with the queries of disabled heads set to zero.

    Raises:
        PositionTermError: the logits have a term besides query times key.
    """
    keep = _see.get()()
    additive = attention_mask is not None and attention_mask.dtype != torch.bool
    if any(kwargs.get(name) is not None for name in LOGIT_TERMS) or (
        additive and bool(((attention_mask != 0) & (attention_mask > -1e4)).any())
    ):
        raise PositionTermError
    if keep is not None:
        query = query * keep[:, :, None, None]
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


AttentionInterface.register(NAME, uniform_where_disabled)
AttentionMaskInterface.register(NAME, sdpa_mask)  # without this, transformers makes no mask at all


class Skeleton:
    """The layers of a sequence classifier, from 0.

    `layers[i]` holds the modules that are called in layer i and in no other, outermost first; they are identified by
    their calls, so the modules that all of ALBERT's layers share are listed for every layer.
    """

    def __init__(self, model: Any, layers: int, heads: int):
        """
        Raises:
            NotApplicableError: heads of this architecture cannot be disabled.
        """
        self.model, self.heads = model, heads
        self.layers: list[list[nn.Module]] = []
        if model.training:
            raise UserError("the model is in training mode, where dropout changes every result: call eval() first")
        if getattr(model.config, "is_encoder_decoder", False):
            raise self._refusal("it is an encoder-decoder")
        frames = self._watch(probe(model))
        if len(frames) != layers:
            raise self._refusal(f"{len(frames)} of {layers} layers use transformers' attention interface")
        listed = {child for m in model.modules() if isinstance(m, nn.ModuleList) for child in m}
        for i, calls in enumerate(frames):
            elsewhere = {uid for j, frame in enumerate(frames) if j != i for uid, _ in frame}
            modules = [module for uid, module in calls if uid not in elsewhere]
            first = next((place for place, module in enumerate(modules) if module in listed), None)
            if first is None:
                raise self._refusal("its layers are not in a ModuleList")
            self.layers.append(modules[first:])

    def _refusal(self, why: str) -> NotApplicableError:
        return NotApplicableError(
            f"heads of {type(self.model).__name__} cannot be disabled: {why}; those of these families can: {ABLATABLE}"
        )

    def _watch(self, ids: Int[torch.Tensor, "rows tokens"]) -> list[list[tuple[int, nn.Module]]]:
        """Return the module calls around each call of attention, as (number of the call, module), outermost first."""
        uids = count()
        stack: list[tuple[int, nn.Module]] = []
        frames: list[list[tuple[int, nn.Module]]] = []

        def enter(module: nn.Module, _inputs: Any) -> None:
            stack.append((next(uids), module))

        def leave(*_: Any) -> None:
            stack.pop()

        def see() -> None:
            frames.append(list(stack))

        handles = []
        for module in self.model.modules():
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        try:
            self._forward(ids, None, see)
        finally:
            for handle in handles:
                handle.remove()
        return frames

    def _forward(self, ids, segments, see: Callable[[], torch.Tensor | None]) -> Float[torch.Tensor, "rows outputs"]:
        more = {} if segments is None else {"token_type_ids": segments}
        if getattr(self.model.config, "use_cache", False):
            more["use_cache"] = False
        before = self.model.config._attn_implementation
        token = _see.set(see)
        try:
            self.model.set_attn_implementation(NAME)
            with torch.inference_mode():
                return self.model(input_ids=ids, attention_mask=torch.ones_like(ids), **more).logits
        except PositionTermError:
            raise self._refusal("its attention adds a term for positions to the product of query and key") from None
        finally:
            _see.reset(token)
            self.model.set_attn_implementation(before)

    def run(
        self,
        ids: Int[torch.Tensor, "rows tokens"],
        segments: Int[torch.Tensor, "rows tokens"] | None = None,
        disabled: Bool[torch.Tensor, "rows layers heads"] | None = None,
        step_in: StepIn | None = None,
    ) -> Float[torch.Tensor, "rows outputs"]:
        """Return the logits of rows without padding.

        Args:
            disabled: the heads whose attention is made uniform, row by row.
            step_in: called with each layer's number and input; if it returns a tensor, that is the layer's output, and
                the layer itself does not run.

        Raises:
            MisreadError: attention was not called once in every layer that ran.
        """
        layer, expected, seen = -1, 0, 0
        dtype = next(self.model.parameters()).dtype
        keep = None if disabled is None else (~disabled).to(dtype)

        def see() -> torch.Tensor | None:
            nonlocal seen
            seen += 1
            return None if keep is None else keep[:, layer]

        def enter(hidden: Hidden) -> Hidden | None:
            nonlocal layer, expected
            layer += 1
            replacement = step_in(layer, hidden) if step_in else None
            expected += replacement is None
            return replacement

        with self._entered(enter):
            logits = self._forward(ids, segments, see)
        if seen != expected or layer != len(self.layers) - 1:
            raise MisreadError(f"attention was called {seen} times in {expected} of {layer + 1} layers")
        return logits

    @contextmanager
    def _entered(self, enter: Callable[[Hidden], Hidden | None]) -> Iterator[None]:
        """Make each layer call `enter` before it computes, within the block, and use what `enter` returns instead."""
        modules = {modules[0] for modules in self.layers}
        for module in modules:
            module.forward = _replaceable(module.forward, enter)
        try:
            yield
        finally:
            for module in modules:
                del module.forward


def _replaceable(forward: Callable[..., Any], enter: Callable[[Hidden], Hidden | None]) -> Callable[..., Any]:
    """Return a `forward` that calls `enter` with the layer's input, and computes only if that returns None."""

    def enter_first(*args: Any, **kwargs: Any) -> Any:
        replacement = enter(args[0] if args else kwargs["hidden_states"])
        return forward(*args, **kwargs) if replacement is None else replacement

    return enter_first


def probe(model: Any, rows: int = 2, tokens: int = 9) -> Int[torch.Tensor, "rows tokens"]:
    """Return fixed token ids, drawn at random but without special ones, to test a model on."""
    config = model.config
    special = {config.pad_token_id, config.eos_token_id, config.bos_token_id} | set(range(5))
    ordinary = torch.tensor([i for i in range(min(config.vocab_size, 1000)) if i not in special])
    picked = torch.randint(len(ordinary), (rows, tokens), generator=torch.Generator().manual_seed(2019))
    return ordinary[picked].to(next(model.parameters()).device)
