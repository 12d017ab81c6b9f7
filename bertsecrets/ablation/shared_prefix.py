"""The fast path of ablation, for models of BERT's own kind: whatever two sets of heads share is computed once.

Two sets are the same run of the model up to the first layer in which they differ. So the runs form a tree: one state
(the hidden tokens of some rows) enters layer 0, and every layer splits a state into one per choice of its own heads.
A state that splits has its attention computed once, and each choice only adds W_o[h] (mean of V - context_h). In the
last layer only the first token is computed, for that is all that the classifier reads. Rows have equal lengths, so
there is no padding and no mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.ablation.bert_layer import Block
from bertsecrets.ablation.head_sets import HeadSet
from bertsecrets.ablation.layers import Skeleton

Choice = tuple[int, ...]  # the heads disabled in one layer


@dataclass(frozen=True)
class Step:
    """One layer: every state that enters it, with the states that leave it, each under its choice of heads.

    States live in numbered places. The first to leave takes the place of the one that entered, others take new ones.
    """

    splits: dict[int, dict[int, Choice]]


def plan(sets: Sequence[HeadSet], layers: int) -> tuple[list[Step], list[int]]:
    """The tree of runs, layer by layer, and the place in which each set ends; sets must differ."""
    place: dict[HeadSet, int] = {frozenset(): 0}
    steps, used = [], 1
    for layer in range(layers):
        splits: dict[int, dict[int, Choice]] = {}
        after: dict[HeadSet, int] = {}
        for heads in sets:
            upto = frozenset(head for head in heads if head[0] <= layer)
            if upto in after:
                continue
            start = place[frozenset(head for head in upto if head[0] < layer)]
            leaving = splits.setdefault(start, {})
            if leaving:
                used += 1
            after[upto] = used - 1 if leaving else start
            leaving[after[upto]] = tuple(sorted(h for at, h in upto if at == layer))
        place = after
        steps.append(Step(splits))
    return steps, [place[heads] for heads in sets]


def run(
    skeleton: Skeleton,
    blocks: Sequence[Block],
    sets: Sequence[HeadSet],
    ids: Int[torch.Tensor, "rows tokens"],
    segments: Int[torch.Tensor, "rows tokens"] | None,
    tokens: int,
) -> Float[torch.Tensor, "sets rows outputs"]:
    """Logits of rows of equal length under each set.

    Args:
        tokens: about how many token places to compute at once.
    """
    steps, ends = plan(sets, len(blocks))
    at_once = max(1, tokens // ids.numel())
    with torch.inference_mode():
        first = _embed(skeleton, ids, segments)
        states = first.new_empty(len(sets), *first.shape)
        states[0] = first
        for block, step in zip(blocks[:-1], steps[:-1], strict=True):
            _pass(block, step, states, at_once)
        last = _pass_last(blocks[-1], steps[-1], states, at_once)[ends]
        logits = _classify(skeleton, last.flatten(0, 1), ids, segments)
    return logits.unflatten(0, (len(sets), -1))


def _pass(block: Block, step: Step, states: Float[torch.Tensor, "sets rows tokens width"], at_once: int) -> None:
    """Take all states through a layer."""
    straight = [(start, leaving[start]) for start, leaving in step.splits.items() if len(leaving) == 1]
    for some in _chunks(straight, at_once):
        x = states[[start for start, _ in some]].flatten(0, 1)
        context, _ = block.attend(x, _keep(block, [choice for _, choice in some], states))
        states[[start for start, _ in some]] = block.finish(block.project(context).add_(x)).unflatten(
            0, (len(some), -1)
        )
    for start, leaving in step.splits.items():
        if len(leaving) > 1:
            _split(block, start, leaving, states, at_once)


def _split(block: Block, start: int, leaving: dict[int, Choice], states, at_once: int) -> None:
    """Take one state through a layer under several choices of heads."""
    context, value = block.attend(states[start])
    plain = block.project(context).add_(states[start])
    named = sorted({head for choice in leaving.values() for head in choice})
    deltas = block.deltas(context, value, named).flatten(1)
    for some in _chunks(list(leaving.items()), at_once):
        member = deltas.new_tensor([[head in choice for head in named] for _, choice in some])
        mixed = (member @ deltas).view(len(some), *plain.shape).add_(plain)
        states[[place for place, _ in some]] = block.finish(mixed)


def _pass_last(block: Block, step: Step, states, at_once: int) -> Float[torch.Tensor, "sets rows width"]:
    """The first token of every set after the last layer."""
    after = states.new_empty(states.shape[0], states.shape[1], states.shape[3])
    for some in _chunks(list(step.splits.items()), at_once):
        x = states[[start for start, _ in some]]
        context, mean = (each.unflatten(0, x.shape[:2]) for each in block.attend_first(x.flatten(0, 1)))
        parent = [number for number, (_, leaving) in enumerate(some) for _ in leaving]
        choices = [choice for _, leaving in some for choice in leaving.values()]
        disabled = torch.tensor(_table(block, choices), device=x.device)[:, None, :, None]
        mixed = torch.where(disabled, mean[parent], context[parent]).flatten(2)
        after[[place for _, leaving in some for place in leaving]] = block.finish(
            block.output(mixed).add_(x[:, :, 0][parent])
        )
    return after


def _table(block: Block, choices: Sequence[Choice]) -> np.ndarray:
    """[choice, head]: whether it is disabled."""
    table = np.zeros((len(choices), block.heads), dtype=bool)
    for row, choice in enumerate(choices):
        table[row, list(choice)] = True
    return table


def _keep(block: Block, choices: Sequence[Choice], states) -> torch.Tensor | None:
    """[choice x row, head]: whether it is left alone; None where all are."""
    if not any(choices):
        return None
    keep = torch.tensor(~_table(block, choices), device=states.device)
    return keep.repeat_interleave(states.shape[1], 0)


def _chunks(items: list, size: int):
    return (items[start : start + size] for start in range(0, len(items), size))


def _embed(skeleton: Skeleton, ids, segments) -> Float[torch.Tensor, "rows tokens width"]:
    """What enters layer 0."""
    found = []

    def step_in(layer, hidden):
        if layer == 0:
            found.append(hidden)
        return hidden

    skeleton.run(ids, segments, step_in=step_in)
    return found[0]


def _classify(skeleton: Skeleton, first, ids, segments) -> Float[torch.Tensor, "rows outputs"]:
    """The classifier's answer to first tokens that have been through all layers."""
    one = ids[:1, :1].expand(len(first), 1)
    kind = None if segments is None else segments[:1, :1].expand(len(first), 1)
    last = len(skeleton.layers) - 1
    return skeleton.run(one, kind, step_in=lambda i, hidden: first[:, None] if i == last else hidden)
