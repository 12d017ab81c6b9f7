"""Exact logits of a classifier for many sets of disabled heads.

A disabled head attends to each of the L tokens with weight 1/L. For token i of a causal model, the weight is 1/(i+1);
with windowed attention, it is 1/window. Other kinds of ablation replace the head's vectors instead (see `kinds`).
Batches contain examples of equal length, so no padding is needed. There are two implementations with the same results:
a fast path (`shared_prefix`) for BERT-style models, and a general path for all architectures with full attention. The
general path starts each run at the lowest layer that has a disabled head.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from bertsecrets.ablation import shared_prefix
from bertsecrets.ablation.bert_layer import Block, is_unmodified, position_term
from bertsecrets.ablation.head_sets import BASELINE, HeadSet, check_sets, lowest_layer, single_heads, whole_layers
from bertsecrets.ablation.kinds import UNIFORM, Ablation, Instead
from bertsecrets.ablation.skeleton import Skeleton, Vectors, probe
from bertsecrets.errors import MisreadError, ran_out
from bertsecrets.models.encoding import Encoded, check_finite, collate
from bertsecrets.models.layers import hooked
from bertsecrets.models.memory import Budget, too_small
from bertsecrets.models.opening import OpenModel

# Maximum difference between two computations of the same logits, relative to the largest logit.
PATH_TOLERANCE, HALF_TOLERANCE = 1e-4, 0.1  # in float32, and in half precision


@dataclass(frozen=True)
class Engine:
    """A classifier prepared for ablation. Its weights must not change afterwards.

    `blocks` is None if only the general path supports the model. `scale` is the largest absolute logit of a small test
    input, or of other inputs if that is larger.
    """

    skeleton: Skeleton
    blocks: Sequence[Block] | None
    budget: Budget
    ablation: Ablation = UNIFORM
    scale: float = 0.0

    @classmethod
    def open(
        cls, classifier: OpenModel, device: torch.device | str = "cpu", ablation: Ablation = UNIFORM, scale: float = 0.0
    ) -> "Engine":
        """Return the engine for a classifier, after testing it on a probe.

        If the model is in half precision, `scale` should be the largest absolute logit of typical inputs in float32.
        The fast path is used if it agrees with the general path and the model is unmodified. For all other models, runs
        start at the first layer, because their code may act on only a few inputs. Batches use up to half of the free
        memory.
        """
        model = classifier.model.to(device)
        known = is_unmodified(model)
        skeleton = Skeleton(model, classifier.layers, classifier.heads)
        budget = Budget.of(torch.device(device), model.config.hidden_size)
        largest = float(skeleton.run(probe(model)).abs().max())
        slow = cls(skeleton, None, budget, ablation, max(scale, largest))
        if model.dtype == torch.float32:  # half precision may round a small change to 0
            slow.check_layers()
        skeleton.resumes = known and slow.resumes()
        term = position_term(model)
        block_of = cache(partial(Block.from_module, heads=classifier.heads, term=term))  # layers may share a module
        recognised = (next(filter(None, map(block_of, modules)), None) for modules in skeleton.layers)
        fast = replace(slow, blocks=[*filter(None, recognised)])
        complete = known and len(fast.blocks or ()) == len(skeleton.layers)
        return fast if complete and fast.agrees_with(slow) else slow

    def check_layers(self) -> None:
        """Check that disabling all heads of any layer changes the output of the last layer."""
        layers, heads = len(self.skeleton.layers), self.skeleton.heads
        ids = probe(self.skeleton.model)[:1].expand(layers + 1, -1)
        last: list[torch.Tensor] = []
        disabled = _disabled([BASELINE, *whole_layers(layers, heads)], layers, heads).to(ids.device)

        def note(_module: Any, _inputs: Any, output: Any) -> None:
            last.append(output[0] if isinstance(output, tuple | list) else output)

        with hooked([self.skeleton.layers[-1][0]], note):
            self.skeleton.run(ids, disabled=disabled, vectors=self._other_vectors(ids[:1]))
        plain, *without_layer = last[-1].float()
        unchanged = [i + 1 for i, hidden in enumerate(without_layer) if torch.equal(plain, hidden)]
        if unchanged:
            raise MisreadError(f"disabling all heads of layers {unchanged} does not change the output")

    def resumes(self) -> bool:
        """Return whether runs that start at a later layer give the same logits as full runs."""
        skeleton, ids = self.skeleton, probe(self.skeleton.model)
        sets = whole_layers(len(skeleton.layers), skeleton.heads)
        full = _general(skeleton, sets, ids, None, tokens=self.budget.tokens, resume=False)
        try:
            resumed = _general(skeleton, sets, ids, None, tokens=self.budget.tokens, resume=True)
        except Exception:  # the model's own code may need more than hidden states from skipped layers
            return False
        return self._close(resumed.float(), full.float())

    def agrees_with(self, other: "Engine") -> bool:
        """Return whether both engines give equal logits for a probe, with and without disabled heads."""
        layers, heads = len(self.skeleton.layers), self.skeleton.heads
        wanted = [BASELINE, *whole_layers(layers, heads), *single_heads(layers, heads)[:: heads + 1]]
        sets, ids = list(dict.fromkeys(wanted)), probe(self.skeleton.model)
        vectors = self._other_vectors(ids)
        ours, others = (engine.logits(sets, ids, None, vectors) for engine in (self, other))
        return self._close(ours.float(), others.float())

    def _other_vectors(self, ids: Int[torch.Tensor, "rows tokens"]) -> list[Vectors] | None:
        """Return replacement vectors for checks, computed from the reversed token ids. None for `uniform`."""
        return None if self.ablation.kind == UNIFORM.kind else self.skeleton.vectors(ids.flip(1))

    def instead(self, encoded: Encoded) -> Instead:
        """Return a function that computes replacement vectors for rows of `encoded`."""
        return self.ablation.instead(self.skeleton, encoded, self.budget.tokens)

    def check_longest(self, encoded: Encoded) -> None:
        """Check that the engine reproduces the model's own logits on the longest example, with no heads disabled."""
        if not len(encoded):
            return
        batch = collate(encoded, np.array([encoded.lengths.argmax()])).to(self.skeleton.model.device)
        try:
            with torch.inference_mode():
                own = self.skeleton.model(**batch.inputs()).logits.float()
            ours = self.logits([BASELINE], batch.input_ids, batch.segments)[0].float()
        except (MemoryError, RuntimeError) as error:
            raise (too_small(error) if ran_out(error) else error) from None
        check_finite(own)
        if not self._close(ours, own):
            raise MisreadError(f"the ablation engine returns {ours.tolist()}, but the model returns {own.tolist()}")

    def _close(self, one: torch.Tensor, two: torch.Tensor) -> bool:
        slack = PATH_TOLERANCE if self.skeleton.model.dtype == torch.float32 else HALF_TOLERANCE
        return one.shape == two.shape and bool((one - two).abs().max() <= slack * two.abs().max().clamp(min=self.scale))

    def logits(
        self,
        sets: Sequence[HeadSet],
        ids: Int[torch.Tensor, "rows tokens"],
        segments: Int[torch.Tensor, "rows tokens"] | None,
        vectors: list[Vectors] | None = None,
    ) -> Float[torch.Tensor, "sets rows outputs"]:
        """Return the logits of rows of equal length for different sets. Without `vectors`, heads attend uniformly."""
        skeleton, tokens = self.skeleton, self.budget.tokens
        if self.blocks is not None:
            return shared_prefix.run(
                skeleton, self.blocks, sets, ids=ids, segments=segments, tokens=tokens, vectors=vectors
            )
        return _general(skeleton, sets, ids, segments, tokens=tokens, resume=skeleton.resumes, vectors=vectors)


def ablate(
    engine: Engine,
    encoded: Encoded,
    sets: Sequence[HeadSet],
    *,
    instead: Instead | None = None,
    progress: Callable[[float], Any] | None = None,
) -> Float[np.ndarray, "sets examples outputs"]:
    """Return the logits of every example for every set of disabled heads, in the given order (K19 section 4.6).

    The empty set gives the model's own logits. Apart from the logits themselves, memory use does not depend on the
    number of examples. Batches that do not fit into memory are split.

    Args:
        sets: Sets of heads. A head is given as (layer, head), counted from 0. Duplicate sets are allowed.
        instead: Function that computes replacement vectors. By default, they are computed from `encoded`, according to
            the engine's kind of ablation.
        progress: Progress callback, called with the number of sets completed since the last call, which may be a
            fraction.
    """
    layers = len(engine.skeleton.layers)
    check_sets(sets, layers, engine.skeleton.heads)
    if not sets:
        return np.zeros((0, len(encoded), engine.skeleton.model.config.num_labels), dtype=np.float32)
    engine.check_longest(encoded)
    different = sorted(set(sets), key=lambda heads: (lowest_layer(heads, layers), sorted(heads)))
    place_of = {heads: i for i, heads in enumerate(different)}
    if instead is None:
        instead = engine.instead(encoded)
    parts: list[tuple[np.ndarray, slice, torch.Tensor]] = []  # copied at the end, because a copy waits for the GPU

    def put(rows: np.ndarray, portion: slice, logits: torch.Tensor) -> None:
        parts.append((rows, portion, logits.float()))
        if progress:
            progress(len(sets) * logits.shape[0] / len(different) * len(rows) / len(encoded))

    with engine.skeleton.attending():
        for rows, portion in _portions(encoded, len(different), engine.budget, engine.ablation.states(layers)):
            _cover(engine, encoded, different, rows=rows, portion=portion, instead=instead, put=put)
    result = np.zeros((len(different), len(encoded), engine.skeleton.model.config.num_labels), dtype=np.float32)
    for rows, portion, logits in parts:
        result[portion, rows] = logits.cpu().numpy()
    return result[[place_of[heads] for heads in sets]]


def _portions(encoded: Encoded, sets: int, budget: Budget, more: int) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield examples of equal length with some of the sets. An example needs `sets + more` states."""
    lengths = encoded.lengths
    for length in np.unique(lengths):
        examples = np.flatnonzero(lengths == length)
        while len(examples):
            count = max(1, min(budget.tokens // length, budget.kept // (length * (sets + more))))
            rows, examples = examples[:count], examples[count:]
            first = 0
            while first < sets:
                last = first + max(1, budget.kept // (length * len(rows)))
                yield rows, slice(first, min(last, sets))
                first = last


def _cover(
    engine: Engine,
    encoded: Encoded,
    sets: Sequence[HeadSet],
    *,
    rows: np.ndarray,
    portion: slice,
    instead: Instead,
    put: Callable[[np.ndarray, slice, torch.Tensor], None],
) -> None:
    """Compute the logits of some rows for some of the sets. If memory runs out, split the work into two halves."""
    batch = collate(encoded, rows).to(engine.skeleton.model.device)
    try:
        put(rows, portion, engine.logits(sets[portion], batch.input_ids, batch.segments, instead(rows)))
        return
    except (MemoryError, RuntimeError) as error:
        engine.budget.halve(error)
    # Continue outside the handler: inside it, the traceback would keep the large tensors alive.
    middle = len(rows) // 2
    if middle:
        halves = [(rows[:middle], portion), (rows[middle:], portion)]
    elif portion.stop - portion.start > 1:
        middle = (portion.start + portion.stop) // 2
        halves = [(rows, slice(portion.start, middle)), (rows, slice(middle, portion.stop))]
    else:
        halves = [(rows, portion)]
    for half_rows, half_portion in halves:
        _cover(engine, encoded, sets, rows=half_rows, portion=half_portion, instead=instead, put=put)


def _general(
    skeleton: Skeleton, sets, ids, segments, *, tokens: int, resume: bool, vectors: list[Vectors] | None = None
) -> Float[torch.Tensor, "sets rows outputs"]:
    """Return the logits, batching sets with the same lowest layer. If `resume` is True, runs start at this layer."""
    layers, rows = len(skeleton.layers), len(ids)
    starts = [lowest_layer(heads, layers) if resume or not heads else 0 for heads in sets]
    entering: dict[int, torch.Tensor] = {}

    def note(layer: int, hidden: torch.Tensor) -> tuple[torch.Tensor, bool]:
        if layer in starts:
            entering[layer] = hidden
        return hidden, True

    plain = skeleton.run(ids, segments, enter=note)
    logits = plain.repeat(len(sets), 1, 1)
    at_once = max(1, tokens // ids.numel())
    for start in sorted(entering):
        members = [i for i, first in enumerate(starts) if first == start]
        for chunk in (members[i : i + at_once] for i in range(0, len(members), at_once)):
            disabled = _disabled([sets[i] for i in chunk], layers, skeleton.heads).to(ids.device)

            def skip(layer: int, hidden: torch.Tensor, start=start, disabled=disabled) -> tuple[torch.Tensor, bool]:
                first = layer == start and start > 0
                return entering[start].repeat(len(disabled), 1, 1) if first else hidden, layer >= start

            answers = skeleton.run(
                ids.repeat(len(chunk), 1),
                None if segments is None else segments.repeat(len(chunk), 1),
                disabled.repeat_interleave(rows, 0),
                skip,
                vectors,
            )
            logits[chunk] = answers.unflatten(0, (len(chunk), rows))
    return logits


def _disabled(sets: Sequence[HeadSet], layers: int, heads: int) -> Bool[torch.Tensor, "sets layers heads"]:
    table = torch.zeros(len(sets), layers, heads, dtype=torch.bool)
    for i, members in enumerate(sets):
        for layer, head in members:
            table[i, layer, head] = True
    return table
