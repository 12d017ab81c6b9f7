"""Sampling of maps for annotation, balanced over checkpoints, heads and inputs.

Maps are drawn before any model runs. Heads are drawn in shuffled rounds that continue across checkpoints, and inputs in
shuffled order. Each checkpoint then processes the drawn inputs once, and only the drawn maps are kept.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch

from bertsecrets.errors import UserError
from bertsecrets.models import opening
from bertsecrets.models.attention import Maps, Pass
from bertsecrets.models.encoding import Batch, Encoded, encode, special_ids
from bertsecrets.patterns.map_stack import second_text
from bertsecrets.progress import counted
from bertsecrets.session import Session
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject, slug
from instruments.annotation.map_set import MapSet, PatternMap

MAX_TOKENS = 100  # tokens per input; longer inputs add no information and enlarge the set


@dataclass
class Keep:
    """An observer that keeps the maps at the wanted places (example, layer, head), counted from 0."""

    wanted: Collection[tuple[int, int, int]]
    kept: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)
    pairs: bool = False

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """Keep the wanted maps of a layer and batch as float16, cropped to the real tokens."""
        for row, example in enumerate(batch.indices.tolist()):
            tokens = int(batch.lengths[row])
            for head in range(maps.shape[1]):
                if (example, layer, head) in self.wanted:
                    cropped = maps[row, head, :tokens, :tokens]
                    self.kept[example, layer, head] = cropped.half().cpu().numpy().copy()

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return no values or samples."""
        return {}, {}


def in_turns(items: Sequence, rng: np.random.Generator) -> Iterator:
    """Yield all items in endless shuffled rounds, so that the items' counts never differ by more than one."""
    while True:
        yield from (items[i] for i in rng.permutation(len(items)))


def draw(session: Session, plan: Mapping[Subject, int], *, seed: int = 1, max_tokens: int = MAX_TOKENS) -> MapSet:
    """Return maps of each subject's checkpoint on inputs drawn from the task's validation set (K19 section 4.1).

    An `untrained` subject gives the pretrained encoder's maps on that task's inputs.

    Args:
        session: Session that provides checkpoints and rows.
        plan: Number of maps per subject. Subjects of the same model share the rounds of heads.
        max_tokens: Maximum length of inputs. Longer inputs are skipped.

    Raises:
        UserError: If a count is below 1, all inputs are too long, or a checkpoint is missing.
    """
    rng = np.random.default_rng(seed)
    turns: dict[str, Iterator] = {}
    maps: list[PatternMap] = []
    for subject, count in plan.items():
        if count < 1:
            raise UserError(f"cannot draw {counted(count, 'map')} of {subject}: draw 1 or more")
        classifier = opening.open_checkpoint(
            session.checkpoint(subject), task(subject.task), session.ref(subject.model)
        )
        classifier.model.to(session.resources.device)
        all_heads = [(layer, head) for layer in range(classifier.layers) for head in range(classifier.heads)]
        heads = turns.setdefault(subject.model, in_turns(all_heads, rng))
        split = session.resources.rows.split(subject.task, "dev")
        limit = classifier.fit(session.settings.attention.max_length)
        examples = draw_inputs(split, classifier, count=count, rng=rng, limit=limit, max_tokens=max_tokens)
        encoded = encode(split.select(examples), classifier.tokenizer, limit)
        places = _pair(len(examples), heads, rng, count=count, origin=split.origin)
        maps += _kept_maps(subject, classifier, encoded, examples=examples, places=places)
    return MapSet(tuple(maps))


def _pair(
    inputs: int, heads: Iterator, rng: np.random.Generator, *, count: int, origin: str
) -> list[tuple[int, int, int]]:
    """Return `count` distinct (input, layer, head) triples, drawing both inputs and heads in shuffled rounds."""
    pairs: dict[tuple[int, int, int], None] = {}
    for place, (layer, head) in zip(islice(in_turns(range(inputs), rng), 100 * count), heads, strict=False):
        pairs[place, layer, head] = None
        if len(pairs) == count:
            return list(pairs)
    raise UserError(f"{origin} has inputs for only {len(pairs)} of {count} maps: draw fewer")


def _kept_maps(
    subject: Subject,
    classifier: opening.OpenModel,
    encoded: Encoded,
    *,
    examples: Sequence[int],
    places: Sequence[tuple[int, int, int]],
) -> list[PatternMap]:
    """Return the maps at the given (input, layer, head) triples from a single pass over the inputs."""
    keep = Keep({*places})
    Pass(classifier).feed(encoded, [keep])
    separator = special_ids(classifier.tokenizer)["sep"]

    def boundary(place: int) -> int:
        ids = torch.tensor([list(encoded.input_ids[place])])
        return int(second_text(ids, torch.tensor([ids.shape[1]]), separator))

    return [
        PatternMap(
            name=f"{subject}_l{layer + 1}_h{head + 1}_x{examples[place]}",
            model=slug(subject.model),
            task=subject.task,
            state="pretrained" if subject.initialisation == "untrained" else "fine-tuned",
            layer=layer + 1,
            head=head + 1,
            example=examples[place],
            boundary=boundary(place),
            values=keep.kept[place, layer, head],
        )
        for place, layer, head in places
    ]


def draw_inputs(
    split: Split, classifier: opening.OpenModel, *, count: int, rng: np.random.Generator, limit: int, max_tokens: int
) -> list[int]:
    """Return the indices of up to `count` random rows with at most `max_tokens` tokens.

    Rows are encoded one by one until enough are found.

    Raises:
        UserError: If every row has more tokens.
    """
    order = rng.permutation(len(split)).tolist()
    examples: list[int] = []
    for start in range(0, len(order), count):
        candidates = order[start : start + count]
        ids = encode(split.select(candidates), classifier.tokenizer, limit).input_ids
        examples += [example for example, own in zip(candidates, ids, strict=True) if len(own) <= max_tokens]
        if len(examples) >= count:
            break
    if not examples:
        raise UserError(
            f"{split.origin} has no row of at most {max_tokens} tokens: allow longer ones with --max-tokens"
        )
    return examples[:count]
