"""The fast path of ablation for BERT-style models. Runs for different sets of heads share their first layers.

The runs for two sets are identical up to the first layer in which the sets differ. All runs therefore form a tree. One
state (the hidden vectors of all tokens) enters layer 0, and each layer splits a state into several, one for each choice
of disabled heads. Attention is computed once per state. Head h is disabled by adding W_o[h] (replacement - context),
where `context` is the head's context vector. The replacement is the mean of V or, for other kinds of ablation, another
vector. In the last layer, only the first token is computed, because the classifier uses no other token. Rows have equal
lengths, so neither padding nor a mask is needed.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.ablation.bert_layer import Block
from bertsecrets.ablation.head_sets import HeadSet
from bertsecrets.ablation.skeleton import Skeleton, Vectors, put

Choice = tuple[int, ...]  # disabled heads of one layer
# The splits of one layer: `splits[entering][leaving]` is the choice of heads that leads from one state to another.
# States are identified by their index in a tensor. The first output state overwrites the input state, and the others
# get new indices. As a result, the tensor stores one state per set instead of one per set and layer.
Splits = dict[int, dict[int, Choice]]


@lru_cache(maxsize=8)  # groups of rows usually share a plan
def plan(sets: tuple[HeadSet, ...], layers: int) -> tuple[tuple[Splits, ...], tuple[int, ...]]:
    """Return the tree of runs by layer, and the index of each set's final state. All sets must be different.

    >>> steps, ends = plan((frozenset(), frozenset({(0, 1)}), frozenset({(1, 0)})), layers=2)
    >>> steps
    ({0: {0: (), 1: (1,)}}, {0: {0: (), 2: (0,)}, 1: {1: ()}})
    >>> ends
    (0, 1, 2)
    """
    place_of: dict[HeadSet, int] = {frozenset(): 0}
    steps, used = [], 1
    for layer in range(layers):
        splits: Splits = {}
        after: dict[HeadSet, int] = {}
        for heads in sets:
            prefix = frozenset(head for head in heads if head[0] <= layer)
            if prefix in after:
                continue
            entering = place_of[frozenset(head for head in prefix if head[0] < layer)]
            leaving = splits.setdefault(entering, {})
            if leaving:  # the index of the entering state is already in use
                used += 1
            after[prefix] = used - 1 if leaving else entering
            leaving[after[prefix]] = tuple(sorted(head for at, head in prefix if at == layer))
        place_of = after
        steps.append(splits)
    return tuple(steps), tuple(place_of[heads] for heads in sets)


def run(
    skeleton: Skeleton,
    blocks: Sequence[Block],
    sets: Sequence[HeadSet],
    *,
    ids: Int[torch.Tensor, "rows tokens"],
    segments: Int[torch.Tensor, "rows tokens"] | None,
    tokens: int,
    vectors: Sequence[Vectors] | None = None,
) -> Float[torch.Tensor, "sets rows outputs"]:
    """Return the logits of rows of equal length for each set of disabled heads, in batches of about `tokens` tokens.

    If `vectors` is None, disabled heads attend uniformly: their outputs are the mean value vectors.
    """
    steps, ends = plan(tuple(sets), len(blocks))
    at_once = max(1, tokens // ids.numel())
    with torch.inference_mode():
        embedded = _embed(skeleton, ids, segments)
        states = embedded.new_empty(len(sets), *embedded.shape)
        states[0] = embedded
        of_layers: Sequence[Vectors | None] = vectors or [None] * len(blocks)
        for block, splits, instead in zip(blocks[:-1], steps[:-1], of_layers[:-1], strict=True):
            _pass(block, splits, states, at_once, instead)
        last = _pass_last(blocks[-1], steps[-1], states, at_once, of_layers[-1])[_indices(ends, states.device)]
        logits = _classify(skeleton, last.flatten(0, 1), ids, segments)
    return logits.unflatten(0, (len(sets), -1))


def _pass(
    block: Block,
    splits: Splits,
    states: Float[torch.Tensor, "sets rows tokens width"],
    at_once: int,
    instead: Vectors | None,
) -> None:
    """Run all states through a layer, and overwrite them with the resulting states."""
    unsplit = [(entering, leaving[entering]) for entering, leaving in splits.items() if len(leaving) == 1]
    for chunk in _chunks(unsplit, at_once):
        places = _indices([place for place, _ in chunk], states.device)
        x = states[places].flatten(0, 1)
        choices = [choice for _, choice in chunk]
        context, value = block.attend(x)
        if any(choices):
            disabled = _members(choices, range(block.heads), states.device).repeat_interleave(states.shape[1], 0)
            context = put(context, disabled, value.mean(2, keepdim=True) if instead is None else instead)
        states[places] = block.finish(block.project(context).add_(x)).unflatten(0, (len(chunk), -1))
    for entering, leaving in splits.items():
        if len(leaving) > 1:
            _split(block, states, entering=entering, leaving=leaving, at_once=at_once, instead=instead)


def _split(
    block: Block, states, *, entering: int, leaving: dict[int, Choice], at_once: int, instead: Vectors | None
) -> None:
    """Run one state through a layer for several choices of disabled heads."""
    context, value = block.attend(states[entering])
    plain = block.project(context).add_(states[entering])
    disabled = sorted({head for choice in leaving.values() for head in choice})
    if instead is None:
        instead = value.mean(2, keepdim=True)
    deltas = block.deltas(context, instead, _indices(disabled, states.device)).flatten(1)
    for chunk in _chunks(list(leaving.items()), at_once):
        member = _members([choice for _, choice in chunk], disabled, states.device).to(deltas.dtype)
        mixed = (member @ deltas).view(len(chunk), *plain.shape).add_(plain)
        states[_indices([place for place, _ in chunk], states.device)] = block.finish(mixed)


def _pass_last(
    block: Block, splits: Splits, states, at_once: int, instead: Vectors | None
) -> Float[torch.Tensor, "sets rows width"]:
    """Return the last layer's output for the first token of every state, ordered by state index."""
    after = states.new_empty(states.shape[0], states.shape[1], states.shape[3])
    for chunk in _chunks(list(splits.items()), at_once):
        x = states[_indices([entering for entering, _ in chunk], states.device)]
        context, mean = (vectors.unflatten(0, x.shape[:2]) for vectors in block.attend_first(x.flatten(0, 1)))
        parent = _indices([number for number, (_, leaving) in enumerate(chunk) for _ in leaving], states.device)
        choices = [choice for _, leaving in chunk for choice in leaving.values()]
        disabled = _members(choices, range(block.heads), states.device)[:, None, :, None]
        replaced = mean[parent] if instead is None else instead[:, :, 0]
        mixed = torch.where(disabled, replaced, context[parent]).flatten(2)
        places = _indices([place for _, leaving in chunk for place in leaving], states.device)
        after[places] = block.finish(block.output(mixed).add_(x[:, :, 0][parent]))
    return after


def _indices(values: Sequence[int], device: torch.device) -> Int[torch.Tensor, " indices"]:
    return _constant(tuple(values), device)


def _members(
    choices: Sequence[Choice], heads: Sequence[int], device: torch.device
) -> Bool[torch.Tensor, "choices heads"]:
    """Return a mask of the heads that each choice disables."""
    return _constant(tuple(tuple(head in choice for head in heads) for choice in choices), device)


@lru_cache(maxsize=1024)
def _constant(values: tuple, device: torch.device) -> torch.Tensor:
    """Return the values as a tensor. The tensor is cached because a copy to a GPU waits for all queued work."""
    return torch.tensor(values, device=device)


def _chunks(items: list, size: int):
    return (items[start : start + size] for start in range(0, len(items), size))


def _embed(skeleton: Skeleton, ids, segments) -> Float[torch.Tensor, "rows tokens width"]:
    """Return the input of layer 0, obtained from a run in which all layers are skipped."""
    inputs = []

    def enter(layer, hidden):
        inputs.append(hidden)
        return hidden, False

    skeleton.run(ids, segments, enter=enter)
    return inputs[0]


def _classify(skeleton: Skeleton, first, ids, segments) -> Float[torch.Tensor, "rows outputs"]:
    """Return the classifier's logits, given the last layer's output for the first token.

    The modules after the last layer (norm, pooler, dropout, classifier) differ between model families. To use the
    model's own modules, the whole model is run on one dummy token per row. In this run, all layers are skipped, and
    `first` replaces the output of the last layer.
    """
    dummy = ids[:1, :1].expand(len(first), 1)
    dummy_segments = None if segments is None else segments[:1, :1].expand(len(first), 1)
    last = len(skeleton.layers) - 1
    return skeleton.run(
        dummy, dummy_segments, enter=lambda layer, hidden: (first[:, None] if layer == last else hidden, False)
    )
