"""Architecture-independent access to a classifier's layers, for runs that start at any layer or disable heads.

Layers are identified not by name, but by tracing the module calls of a small forward pass. There are two ways to make
the attention of a head uniform (K19 section 4.6):

- `zeroed`: the model passes queries, keys and values to transformers' attention interface. If a head's queries are set
  to zero, all its attention logits are equal. The softmax is then exactly 1/L for each token that the head can attend
  to, even in a fused kernel.
- `written`: the model runs with eager attention, and the softmax output of disabled heads is overwritten. This way is
  used if the model bypasses the interface, or if its attention logits have a position term that does not depend on the
  query.

Other kinds of ablation (see `kinds`) replace what a head passes to the output projection. They replace the output of
the attention function (`zeroed`), or the product of weights and values (`written`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from itertools import count
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import nn
from torch.overrides import TorchFunctionMode

from bertsecrets.errors import MisreadError, NotApplicableError, UserError
from bertsecrets.models.families import LOGIT_TERMS, why_no_maps

ATTENTION_NAME = "bertsecrets_uniform"
SOFTMAXES = (torch.softmax, torch.Tensor.softmax, nn.functional.softmax)
MASKED_LOGIT_GAP = 5000  # logits this far below the maximum of their row belong to masked tokens
Way = Literal["zeroed", "written"]
Hidden = Float[torch.Tensor, "rows tokens width"]
Enter = Callable[[int, Hidden], tuple[Hidden, bool]]
PerHead = Float[torch.Tensor, "rows heads tokens size"]
Vectors = Float[torch.Tensor, "_ _ _ _"]  # like PerHead, with dimensions of size 1 broadcast
Gates = Float[torch.Tensor, "rows layers heads"]
PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm)


class Watch:
    """Callbacks that run whenever attention is computed, in a run that disables heads. `layer` is the current layer.

    `change` takes a layer and the vectors of its heads, and returns the vectors to pass to the output projection. If it
    is None, disabled heads attend uniformly. If `gradients` is True, the forward pass is differentiable.
    """

    def __init__(
        self,
        disabled: Bool[torch.Tensor, "rows layers heads"] | None = None,
        change: Callable[[int, PerHead], PerHead] | None = None,
        gradients: bool = False,
    ):
        self.layer, self.expected, self.seen, self.read = -1, 0, 0, 0
        self.disabled, self.change, self.gradients = disabled, change, gradients

    def kept_heads(self) -> Bool[torch.Tensor, "rows heads"] | None:
        """Return a mask of the heads that keep their weights (None if all do). Called before attention is computed."""
        self.seen += 1
        return None if self.disabled is None or self.change else ~self.disabled[:, self.layer]

    def vectors(self, context: PerHead) -> PerHead:
        """Return the vectors to pass to the output projection."""
        self.read += 1
        return self.change(self.layer, context) if self.change else context


_watch: ContextVar[Watch] = ContextVar("watch")


class PositionTermError(Exception):
    """Attention logits have a term that does not depend on the query, so zero queries do not make the logits equal."""


def uniform_where_disabled(module, query, key, value, attention_mask, **kwargs):
    """Call the transformers library's SDPA implementation, with the queries of disabled heads set to zero."""
    watch = _watch.get()
    keep = watch.kept_heads()
    additive = attention_mask is not None and attention_mask.dtype != torch.bool
    if any(kwargs.get(name) is not None for name in LOGIT_TERMS) or (
        additive and bool(((attention_mask != 0) & (attention_mask > -1e4)).any())
    ):
        raise PositionTermError
    if keep is not None:
        query = query * keep[:, :, None, None]
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    context, weights = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if watch.change:
        context = watch.vectors(context.transpose(1, 2)).transpose(1, 2).contiguous()
    return context, weights


@cache
def register_attention() -> None:
    """Register `uniform_where_disabled` with transformers, which is imported only here because the import is slow."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION_NAME, uniform_where_disabled)
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)  # otherwise transformers creates no mask


class WrittenWeights(TorchFunctionMode):
    """A context manager that overwrites the softmax output of disabled heads.

    The output of a softmax over the last dimension is taken to be attention weights if its shape is (rows, heads,
    tokens, tokens). `watch` selects the heads that keep their weights. `watch` may also replace the heads' vectors,
    which are the result of the next product of the weights with a matrix.
    """

    def __init__(self, watch: Watch, shape: tuple[int, ...]):
        super().__init__()
        self.watch, self.shape = watch, shape
        self._weights: torch.Tensor | None = None  # weights that have not been multiplied with values yet

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._weights is not None and func in PRODUCTS and args and args[0].data_ptr() == self._weights.data_ptr():
            self._weights = None
            return self.watch.vectors(result.reshape(*self.shape[:3], -1)).reshape(result.shape)
        if func not in SOFTMAXES or tuple(result.shape) != self.shape:
            return result
        if (args[1] if len(args) > 1 else kwargs.get("dim")) not in (-1, len(self.shape) - 1):
            return result
        weights, keep = result, self.watch.kept_heads()
        if keep is not None:
            logits = args[0] if args else kwargs["input"]
            allowed = logits > logits.amax(-1, keepdim=True) - MASKED_LOGIT_GAP
            uniform = allowed / allowed.sum(-1, keepdim=True)
            weights = torch.where(keep[:, :, None, None], result, uniform.to(result.dtype))
        if self.watch.change:
            self._weights = weights
        return weights


def put(context: PerHead, disabled: Bool[torch.Tensor, "rows heads"], vectors: Vectors) -> PerHead:
    """Return `context`, whose rows are repeated for each set, with the vectors of disabled heads replaced."""
    rows = vectors.shape[0]
    unchanged, mask = context.unflatten(0, (-1, rows)), disabled.unflatten(0, (-1, rows))
    return torch.where(mask[..., None, None], vectors, unchanged).flatten(0, 1)


class Skeleton:
    """The layers of a sequence classifier.

    `layers[i]` lists the modules whose calls belong to layer i alone, starting with the outermost. If all layers share
    a module, as in ALBERT, it is listed for each layer. `way` names the method that makes the attention of heads
    uniform (`zeroed` or `written`). `resumes` is True if runs can start at any layer, and False if a layer needs more
    than hidden states from the previous layer.
    """

    def __init__(self, model: Any, layers: int, heads: int):
        register_attention()
        self.model, self.heads = model, heads
        self.layers: list[list[nn.Module]] = []
        self.way: Way = "zeroed"
        self.resumes = True
        self._fields: dict[nn.Module, int | None] = {}  # length of the tuple that a module returns, or None
        if model.training:
            raise UserError("the model is in training mode, in which dropout changes results: call eval() first")
        if (why := why_no_maps(model.config)) is not None:
            raise self._refusal(why)
        listed = {child for m in model.modules() if isinstance(m, nn.ModuleList) for child in m}
        frames = self._frames(layers)
        for i, calls in enumerate(frames):
            elsewhere = {uid for j, frame in enumerate(frames) if j != i for uid, _ in frame}
            modules = [module for uid, module in calls if uid not in elsewhere]
            first = next((place for place, module in enumerate(modules) if module in listed), None)
            if first is None:
                raise self._refusal("its layers are not in a ModuleList")
            self.layers.append(modules[first:])

    def _refusal(self, why: str) -> NotApplicableError:
        return NotApplicableError(f"heads of {type(self.model).__name__} cannot be disabled: {why}")

    def _frames(self, layers: int) -> list[list[tuple[int, nn.Module]]]:
        """Return the result of `_watch` for the first `Way` that finds one attention call per layer."""
        counts = []
        for self.way in ("zeroed", "written"):
            try:
                frames = self._watch(probe(self.model))
            except PositionTermError:
                continue
            if len(frames) == layers:
                return frames
            counts.append(len(frames))
        seen = max(counts, default=0)
        raise self._refusal(f"its {layers} layers compute {seen} full token-by-token attention maps")

    def _watch(self, ids: Int[torch.Tensor, "rows tokens"]) -> list[list[tuple[int, nn.Module]]]:
        """Return the (call index, module) of calls that enclose each attention call, starting with the outermost."""
        uids = count()
        stack: list[tuple[int, nn.Module]] = []
        frames: list[list[tuple[int, nn.Module]]] = []

        def enter(module: nn.Module, _inputs: Any) -> None:
            stack.append((next(uids), module))

        def leave(module: nn.Module, _inputs: Any, output: Any) -> None:
            stack.pop()
            self._fields[module] = len(output) if isinstance(output, tuple | list) else None

        class Note(Watch):
            def kept_heads(self) -> None:
                frames.append(list(stack))

        with ExitStack() as hooks:
            for module in self.model.modules():
                hooks.enter_context(module.register_forward_pre_hook(enter))
                hooks.enter_context(module.register_forward_hook(leave))
            self._forward(ids, None, Note())
        return frames

    def _forward(self, ids, segments, watch: Watch) -> Float[torch.Tensor, "rows outputs"]:
        more = {} if segments is None else {"token_type_ids": segments}
        rows, tokens = ids.shape
        written = WrittenWeights(watch, (rows, self.heads, tokens, tokens)) if self.way == "written" else nullcontext()
        config, token = self.model.config, _watch.set(watch)
        cached = getattr(config, "use_cache", None)  # not an argument, which a family's own code may not accept
        try:
            if cached:
                config.use_cache = False
            with self.attending(), torch.inference_mode(not watch.gradients), written:
                return self.model(input_ids=ids, attention_mask=torch.ones_like(ids), **more).logits
        finally:
            if cached:
                config.use_cache = cached
            _watch.reset(token)

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Switch to the required attention implementation, so that runs inside the `with` block need not switch."""
        before, needed = self.model.config._attn_implementation, ATTENTION_NAME if self.way == "zeroed" else "eager"
        if before == needed:
            yield
            return
        try:
            self.model.set_attn_implementation(needed)
            yield
        finally:
            self.model.set_attn_implementation(before)

    def run(
        self,
        ids: Int[torch.Tensor, "rows tokens"],
        segments: Int[torch.Tensor, "rows tokens"] | None = None,
        disabled: Bool[torch.Tensor, "rows layers heads"] | None = None,
        enter: Enter | None = None,
        vectors: Sequence[Vectors] | None = None,
    ) -> Float[torch.Tensor, "rows outputs"]:
        """Return the logits of rows without padding.

        Args:
            disabled: Mask of disabled heads for each row.
            enter: Hook that is called with the index and input of each layer. The hook returns a replacement for the
                input, and whether to run the layer. If the layer is not run, the replacement is used as the layer's
                output.
            vectors: Replacement vectors for each layer. If None, disabled heads attend uniformly.
        """
        watch = Watch(disabled)
        if disabled is not None and vectors is not None:
            watch.change = lambda layer, context: put(context, disabled[:, layer], vectors[layer])
        return self._run(ids, segments, watch, enter)

    def vectors(
        self, ids: Int[torch.Tensor, "rows tokens"], segments: Int[torch.Tensor, "rows tokens"] | None = None
    ) -> list[PerHead]:
        """Return the vectors that the heads of each layer pass to the output projection, for rows without padding."""
        recorded: list[PerHead] = []

        def record(layer: int, context: PerHead) -> PerHead:
            recorded.append(context.clone())
            return context

        self._run(ids, segments, Watch(change=record))
        return recorded

    def gated(
        self, ids: Int[torch.Tensor, "rows tokens"], segments: Int[torch.Tensor, "rows tokens"] | None, gates: Gates
    ) -> Float[torch.Tensor, "rows outputs"]:
        """Return the logits of rows without padding, differentiable with respect to `gates`.

        Each head's vectors are multiplied by its gate: 1 leaves the head unchanged, and 0 disables it (Michel, Levy and
        Neubig 2019).
        """
        gated = Watch(change=lambda layer, context: context * gates[:, layer][..., None, None], gradients=True)
        return self._run(ids, segments, gated)

    def _run(self, ids, segments, run: Watch, enter: Enter | None = None) -> Float[torch.Tensor, "rows outputs"]:
        def enter_next(hidden: Hidden) -> tuple[Hidden, bool]:
            run.layer += 1
            state, computes = enter(run.layer, hidden) if enter else (hidden, True)
            run.expected += computes
            return state, computes

        modules = {modules[0] for modules in self.layers}
        for module in modules:
            module.forward = partial(_enter_first, module.forward, enter_next, self._fields[module])
        try:
            logits = self._forward(ids, segments, run)
        finally:
            for module in modules:
                del module.forward
        if run.seen != run.expected or run.layer != len(self.layers) - 1:
            raise MisreadError(
                f"{run.expected} of {run.layer + 1} layers were run, but attention was computed {run.seen} times"
            )
        if run.change and run.read != run.expected:
            raise self._refusal(
                "its products of attention weights and values cannot be replaced, so only kind=uniform is possible"
            )
        return logits


def _enter_first(forward, enter, fields, *args, **kwargs):
    """Call `enter` (see `Skeleton.run`) with a layer's input, and then `forward`. A layer returns `fields` items."""
    state, computes = enter(args[0] if args else kwargs["hidden_states"])
    if not computes:
        return state if fields is None else (state, *[None] * (fields - 1))
    if args:
        return forward(state, *args[1:], **kwargs)
    return forward(**{**kwargs, "hidden_states": state})


def probe(model: Any, rows: int = 2, tokens: int = 9) -> Int[torch.Tensor, "rows tokens"]:
    """Return token ids for testing a model: random but always the same, and without special tokens."""
    config = model.config
    special = set(range(5))
    for role in ("pad", "bos", "eos"):
        named = getattr(config, f"{role}_token_id", None)
        special |= {*(named if isinstance(named, list) else [named])}
    ordinary = torch.tensor([i for i in range(min(config.vocab_size, 1000)) if i not in special])
    picked = torch.randint(len(ordinary), (rows, tokens), generator=torch.Generator().manual_seed(2019))
    return ordinary[picked].to(next(model.parameters()).device)
