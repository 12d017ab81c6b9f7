"""What a classifier answers when heads are switched off: every set of heads, exact, and without doing work twice.

A disabled head's attention weights are the constant 1/L over the L real tokens (1/(i+1) in a causal model, 1/window
where a head sees only a window). Examples of one length are computed together, so nothing is ever padded. Two paths
give the same logits: `prefixes` for models of BERT's own kind, and a general one for every architecture whose
attention logits are query times key, which starts each run at the lowest layer with a disabled head.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.ablation import shared_prefix
from bertsecrets.ablation.bert_layer import Block
from bertsecrets.ablation.head_sets import BASELINE, HeadSet, check_sets, lowest_layer, single_heads, whole_layers
from bertsecrets.ablation.layers import Skeleton, probe
from bertsecrets.errors import UserError
from bertsecrets.models.encoding import Encoded, collate
from bertsecrets.models.loading import OpenModel
from bertsecrets.models.memory import Budget, ran_out, too_small

Route = Literal["auto", "fast", "general"]
TOLERANCE = 1e-4  # between two ways to the same logits, relative to the largest


@dataclass(frozen=True)
class Engine:
    """A classifier made ready for ablation; `blocks` is None where only the general path applies."""

    skeleton: Skeleton
    blocks: Sequence[Block] | None
    budget: Budget

    @classmethod
    def open(
        cls,
        classifier: OpenModel,
        device: torch.device | str = "cpu",
        path: Route = "auto",
        budget: Budget | None = None,
    ) -> "Engine":
        """Find the model's layers and try both paths on a probe.

        Args:
            path: `auto` takes the fast path where it agrees with the general one.

        Raises:
            UserError: heads of this architecture cannot be disabled, or not on the path asked for.
            RuntimeError: disabling all heads of some layer changes nothing, so the model does not work as it seems to.
        """
        model = classifier.model.to(device)
        skeleton = Skeleton(model, classifier.layers, classifier.heads)
        budget = budget or Budget.of(torch.device(device), model.config.hidden_size)
        slow = cls(skeleton, None, budget)
        if model.dtype == torch.float32:  # in half precision a small change may round to none
            slow.check_layers()
        found = [next(filter(None, (Block.of(m, classifier.heads) for m in own)), None) for own in skeleton.layers]
        blocks = [block for block in found if block is not None]
        if path != "general" and len(blocks) == len(found):
            fast = replace(slow, blocks=blocks)
            if fast.agrees_with(slow):
                return fast
        if path == "fast":
            raise UserError(
                f"{type(model).__name__} is not of BERT's own kind: its heads are disabled on the general path"
            )
        return slow

    def check_layers(self) -> None:
        """Make sure that disabling all heads of any one layer changes what leaves the last layer.

        Raises:
            RuntimeError: it does not.
        """
        layers, heads = len(self.skeleton.layers), self.skeleton.heads
        ids = probe(self.skeleton.model)[:1].expand(layers + 1, -1)
        last: list[torch.Tensor] = []
        handle = self.skeleton.layers[-1][0].register_forward_hook(lambda _m, _i, output: last.append(output))
        try:
            disabled = _disabled([BASELINE, *whole_layers(layers, heads)], layers, heads).to(ids.device)
            self.skeleton.run(ids, disabled=disabled)
        finally:
            handle.remove()
        plain, *others = last[-1].float()
        deaf = [i + 1 for i, other in enumerate(others) if torch.equal(plain, other)]
        if deaf:
            raise RuntimeError(f"disabling all heads of layers {deaf} changes nothing: attention does not act there")

    def agrees_with(self, other: "Engine") -> bool:
        """Whether both give the same logits for a probe, with nothing, every layer and some single heads disabled."""
        layers, heads = len(self.skeleton.layers), self.skeleton.heads
        sets = [BASELINE, *whole_layers(layers, heads), *single_heads(layers, heads)[:: heads + 1]]
        sets = list(dict.fromkeys(sets))
        ids = probe(self.skeleton.model)
        one, two = (engine.logits(sets, ids, None).float() for engine in (self, other))
        return self._close(one, two)

    def check_longest(self, encoded: Encoded) -> None:
        """Make sure that with nothing disabled the longest example gets the model's own logits.

        Raises:
            RuntimeError: it does not: the model treats long inputs in a way that the probe was too short to show.
            UserError: it does not fit into memory.
        """
        if not len(encoded):
            return
        batch = collate(encoded, np.array([encoded.lengths.argmax()])).to(self.skeleton.model.device)
        try:
            with torch.inference_mode():
                own = self.skeleton.model(**batch.inputs()).logits.float()
            found = self.logits([BASELINE], batch.input_ids, batch.segments)[0].float()
        except (MemoryError, RuntimeError) as error:
            raise (too_small(error) if ran_out(error) else error) from None
        if not self._close(found, own):
            raise RuntimeError(f"the engine gives {found.tolist()} where the model itself gives {own.tolist()}")

    def _close(self, one: torch.Tensor, two: torch.Tensor) -> bool:
        slack = TOLERANCE if self.skeleton.model.dtype == torch.float32 else 0.1
        return one.shape == two.shape and bool((one - two).abs().max() <= slack * two.abs().max().clamp(min=1))

    def logits(
        self,
        sets: Sequence[HeadSet],
        ids: Int[torch.Tensor, "rows tokens"],
        segments: Int[torch.Tensor, "rows tokens"] | None,
    ) -> Float[torch.Tensor, "sets rows outputs"]:
        """Logits of rows of equal length under each of some different sets."""
        if self.blocks is not None:
            return shared_prefix.run(self.skeleton, self.blocks, sets, ids, segments, self.budget.tokens)
        return _general(self.skeleton, sets, ids, segments, self.budget.tokens)


def ablate(
    engine: Engine | OpenModel,
    encoded: Encoded,
    sets: Sequence[HeadSet],
    device: torch.device | str = "cpu",
    progress: Callable[[float], Any] | None = None,
) -> Float[np.ndarray, "sets examples outputs"]:
    """The logits of every example under every set of disabled heads (K19 section 4.6), in the given orders.

    The empty set gives the model's own logits. Besides the result, memory does not grow with the number of examples;
    where a batch does not fit, it is halved.

    Args:
        sets: heads as (layer, head), counted from 0.
        progress: called with the number of sets' worth of work done since the last call; the calls sum to `len(sets)`.

    Raises:
        UserError: the model has no such head, its heads cannot be disabled, or memory is too small for one example.
        RuntimeError: the engine does not reproduce the model's own logits.
    """
    if isinstance(engine, OpenModel):
        engine = Engine.open(engine, device)
    check_sets(sets, len(engine.skeleton.layers), engine.skeleton.heads)
    if not sets:
        return np.zeros((0, len(encoded), engine.skeleton.model.config.num_labels), dtype=np.float32)
    engine.check_longest(encoded)
    layers = len(engine.skeleton.layers)
    different = sorted(set(sets), key=lambda heads: (lowest_layer(heads, layers), sorted(heads)))
    place = {heads: i for i, heads in enumerate(different)}
    result = np.zeros((len(different), len(encoded), engine.skeleton.model.config.num_labels), dtype=np.float32)

    def put(rows: np.ndarray, some: slice, logits: torch.Tensor) -> None:
        result[some, rows] = logits.float().cpu().numpy()
        if progress:
            progress(len(sets) * logits.shape[0] / len(different) * len(rows) / len(encoded))

    for rows, some in _portions(encoded, len(different), engine.budget):
        _cover(engine, encoded, different, rows, some, put)
    return result[[place[heads] for heads in sets]]


def _portions(encoded: Encoded, sets: int, budget: Budget) -> Iterator[tuple[np.ndarray, slice]]:
    """All examples under all sets: examples of one length, as many as fit, under as many sets as fit."""
    lengths = encoded.lengths
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        start = 0
        while start < len(alike):
            stop = start + max(1, min(budget.tokens // length, budget.kept // (length * sets)))
            rows = alike[start:stop]
            first = 0
            while first < sets:
                last = first + max(1, budget.kept // (length * len(rows)))
                yield rows, slice(first, min(last, sets))
                first = last
            start = stop


def _cover(
    engine: Engine,
    encoded: Encoded,
    sets: Sequence[HeadSet],
    rows: np.ndarray,
    some: slice,
    put: Callable[[np.ndarray, slice, torch.Tensor], None],
) -> None:
    """Compute some rows under some sets; in halves, where memory runs out."""
    batch = collate(encoded, rows).to(engine.skeleton.model.device)
    try:
        put(rows, some, engine.logits(sets[some], batch.input_ids, batch.segments))
        return
    except (MemoryError, RuntimeError) as error:
        engine.budget.halve(error)
    # Here, not in the handler: the error's traceback would hold on to the tensors that did not fit.
    middle = len(rows) // 2
    if middle:
        parts = [(rows[:middle], some), (rows[middle:], some)]
    elif some.stop - some.start > 1:
        middle = (some.start + some.stop) // 2
        parts = [(rows, slice(some.start, middle)), (rows, slice(middle, some.stop))]
    else:
        parts = [(rows, some)]
    for part_rows, part_sets in parts:
        _cover(engine, encoded, sets, part_rows, part_sets, put)


def _general(skeleton: Skeleton, sets, ids, segments, tokens: int) -> Float[torch.Tensor, "sets rows outputs"]:
    """The path for every architecture: each set starts at its lowest layer, sets that start together run together."""
    layers, rows = len(skeleton.layers), len(ids)
    starts = [lowest_layer(heads, layers) for heads in sets]
    entering: dict[int, torch.Tensor] = {}

    def note(layer: int, hidden: torch.Tensor) -> None:
        if layer in starts:
            entering[layer] = hidden

    plain = skeleton.run(ids, segments, step_in=note)
    logits = plain.repeat(len(sets), 1, 1)
    at_once = max(1, tokens // ids.numel())
    for start in sorted(entering):
        members = [i for i, first in enumerate(starts) if first == start]
        for some in (members[i : i + at_once] for i in range(0, len(members), at_once)):
            disabled = _disabled([sets[i] for i in some], layers, skeleton.heads).to(ids.device)

            def skip(layer: int, hidden: torch.Tensor, start=start, disabled=disabled) -> torch.Tensor | None:
                if layer >= start:
                    return None
                return entering[start].repeat(len(disabled), 1, 1) if layer == start - 1 else hidden

            found = skeleton.run(
                ids.repeat(len(some), 1),
                None if segments is None else segments.repeat(len(some), 1),
                disabled.repeat_interleave(rows, 0),
                skip,
            )
            logits[some] = found.unflatten(0, (len(some), rows))
    return logits


def _disabled(sets: Sequence[HeadSet], layers: int, heads: int) -> Bool[torch.Tensor, "sets layers heads"]:
    table = torch.zeros(len(sets), layers, heads, dtype=torch.bool)
    for i, members in enumerate(sets):
        for layer, head in members:
            table[i, layer, head] = True
    return table
