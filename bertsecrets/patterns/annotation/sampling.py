"""Maps drawn for annotation: balanced over checkpoints and heads, each from an input of its own, nothing else kept.

A draw is decided before any model runs: heads come round in shuffled turns that go on from one checkpoint to the next,
inputs in shuffled order. One pass per checkpoint over the drawn inputs then keeps the drawn maps alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from bertsecrets.ablation.head_sets import check_sets
from bertsecrets.errors import UserError
from bertsecrets.models import loading, locations
from bertsecrets.models.attention import Maps, Pass
from bertsecrets.models.encoding import Batch, Encoded, encode
from bertsecrets.patterns.annotation.map_set import MapSet, PatternMap
from bertsecrets.session import Workbench
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject, slug

MAX_TOKENS = 100  # longer inputs are passed over: their maps show no more, and a set of them would be large


@dataclass
class Keep:
    """An observer that keeps the wanted heads' maps: `wanted` has, per example, (layer, head) pairs from 0."""

    wanted: Mapping[int, Sequence[tuple[int, int]]]
    kept: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)
    pairs: bool = False

    def observe(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Keep what is wanted of one layer of one batch, cropped to the real tokens (float16)."""
        for row, example in enumerate(batch.indices.tolist()):
            tokens = int(batch.lengths[row])
            for at, head in self.wanted.get(example, ()):
                if at == layer:
                    found = maps[row, head, :tokens, :tokens]
                    self.kept[example, layer, head] = found.half().cpu().numpy().copy()

    def result(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Nothing: this observer measures nothing."""
        return {}, {}


def in_turns(things: Sequence, rng: np.random.Generator) -> Iterator:
    """All things in shuffled order, then again in another, without end: counts never differ by more than one."""
    while True:
        yield from (things[i] for i in rng.permutation(len(things)))


def draw(
    bench: Workbench,
    plan: Mapping[Subject, int],
    seed: int = 1,
    max_tokens: int = MAX_TOKENS,
    only: Sequence[tuple[int, int]] | None = None,
) -> MapSet:
    """Draw so many maps of each subject's checkpoint on its task's validation set (K19 section 4.1).

    An `untrained` subject gives the pretrained encoder's maps on that task's inputs.

    Args:
        plan: how many maps of each subject; subjects of one model share the turns in which heads come.
        max_tokens: longer inputs are passed over.
        only: these heads alone, (layer, head) from 1, one named twice coming twice as often; all, where None. For more
            maps of a class that few heads show.

    Raises:
        UserError: a count below 1, a head that the model lacks, no input short enough, or no such checkpoint.
    """
    rng = np.random.default_rng(seed)
    turns: dict[tuple[str, int, int], Iterator] = {}
    maps: list[PatternMap] = []
    for subject, count in plan.items():
        if count < 1:
            raise UserError(f"{count} maps of {subject} leave nothing to look at: ask for 1 or more")
        opened = loading.open_checkpoint(bench.checkpoint(subject), task(subject.task), locations.locate(subject.model))
        opened.model.to(bench.device)
        key = (subject.model, opened.layers, opened.heads)
        if key not in turns:
            every = [(layer, head) for layer in range(opened.layers) for head in range(opened.heads)]
            chosen = every if only is None else [(layer - 1, head - 1) for layer, head in only]
            check_sets([frozenset(chosen)], opened.layers, opened.heads)
            turns[key] = in_turns(chosen, rng)
        maps += _of_checkpoint(subject, opened, bench, count, turns[key], rng, max_tokens)
    return MapSet(tuple(maps))


def _of_checkpoint(
    subject: Subject,
    opened: loading.Classifier,
    bench: Workbench,
    count: int,
    heads: Iterator,
    rng: np.random.Generator,
    max_tokens: int,
) -> list[PatternMap]:
    split = bench.texts.split(subject.task, "dev")
    limit = opened.fit(bench.settings.attention.max_length)
    examples, encoded = draw_inputs(split, opened, count, rng, limit, max_tokens)
    wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    drawn: list[tuple[int, int, int]] = []
    for place, (layer, head) in zip(islice(in_turns(range(len(examples)), rng), 100 * count), heads, strict=False):
        if (layer, head) not in wanted[place]:
            wanted[place].append((layer, head))
            drawn.append((place, layer, head))
        if len(drawn) == count:
            break
    else:
        raise UserError(f"{split.origin}: {len(drawn)} maps to be had where {count} were asked for: ask for fewer")
    keep = Keep(wanted)
    Pass(opened.model, opened.layers, opened.heads).feed(encoded, [keep])
    separator = loading.special_ids(opened.tokenizer)["sep"]
    state = "pretrained" if subject.initialisation == "untrained" else "fine-tuned"
    return [
        PatternMap(
            f"{subject}_l{layer + 1}_h{head + 1}_x{examples[place]}",
            slug(subject.model),
            subject.task,
            state,
            layer + 1,
            head + 1,
            examples[place],
            boundary(encoded.input_ids[place], separator),
            keep.kept[place, layer, head],
        )
        for place, layer, head in drawn
    ]


def draw_inputs(
    split: Split, opened: loading.Classifier, count: int, rng: np.random.Generator, limit: int, max_tokens: int
) -> tuple[list[int], Encoded]:
    """Up to `count` rows of a split, drawn at random among those of at most `max_tokens` tokens, and their encoding.

    Only rows that are looked at are encoded.

    Raises:
        UserError: every row is longer.
    """
    order = rng.permutation(len(split)).tolist()
    examples: list[int] = []
    ids: list[Sequence[int]] = []
    kinds: list[Sequence[int]] = []
    padding = 0
    for start in range(0, len(order), count):
        looked_at = order[start : start + count]
        coded = encode(_rows(split, looked_at), opened.tokenizer, limit)
        padding = coded.padding_id
        for place, example in enumerate(looked_at):
            if len(coded.input_ids[place]) <= max_tokens and len(examples) < count:
                examples.append(example)
                ids.append(coded.input_ids[place])
                if coded.segments is not None:
                    kinds.append(coded.segments[place])
        if len(examples) == count:
            break
    if not examples:
        raise UserError(f"{split.origin}: no row has {max_tokens} tokens or fewer: allow longer ones")
    return examples, Encoded(ids, kinds or None, padding)


def _rows(split: Split, places: list[int]) -> Split:
    second = split.sentence2
    return replace(
        split,
        sentence1=[split.sentence1[i] for i in places],
        sentence2=None if second is None else [second[i] for i in places],
        labels=[str(split.labels[i]) for i in places],  # not looked at
    )


def boundary(ids: Sequence[int], separator: int | None) -> int:
    """The index of the second text's first token; the number of tokens where there is no second text."""
    place = next((i for i, token in enumerate(ids) if token == separator), len(ids))
    while place < len(ids) and ids[place] == separator:
        place += 1
    return place
