"""Sentences for K19's frame-semantic experiment.

Each sentence has a target word, and core frame elements that are far from the target. Sentences are read from JSON
lines, or selected from FrameNet's example sentences with the paper's filters. The selection is a pure function of the
annotations, which `bertsecrets.texts.framenet_xml` reads from a FrameNet distribution.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError, excerpt
from bertsecrets.reading import lines_of, read_text, unique_keys
from bertsecrets.store.files import digest
from bertsecrets.texts.glue import MADE_UP_COLUMN
from bertsecrets.types import Span

# The criteria for selecting sentences (K19 section 4.2), in tokens separated by white space. The criteria were found by
# comparing K19's 473 sentences with FrameNet 1.5, which contains 441 of them. They select 433 of the 441, and 5 others.
# Core elements are the members of a frame's core sets, and every overt element, core or not, must be short and far from
# the target. A literal reading of the paper (elements of type Core, ignoring all others) selects ten times as many.
SENTENCE_TOKENS, ELEMENT_TOKENS = 12, 3  # maximum numbers of tokens
NEAR_TOKENS = 2  # an element is too close if one of its tokens is at most this many tokens from the target
SENTENCE_LIMIT = 2000  # characters; more than most models can read (the paper's sentences have up to 12 tokens)
ELEMENT_LIMIT = 50  # core elements per sentence


@dataclass(frozen=True)
class FrameSentence:
    """A sentence with the character spans of its target and core elements. `made_up` marks synthetic sentences."""

    sentence: str
    target: Span
    core_elements: tuple[Span, ...]
    made_up: bool = False

    def words(self) -> tuple[str, tuple[str, ...]]:
        """Return the target and the core elements as text."""
        return self.sentence[slice(*self.target)], tuple(self.sentence[slice(*s)] for s in self.core_elements)


@dataclass(frozen=True)
class Annotation:
    """An annotated sentence. `elements` are the names and spans of overt frame elements (first annotation layer)."""

    sentence: str
    frame: str
    targets: tuple[Span, ...]
    elements: tuple[tuple[str, Span], ...]


def choose(
    annotations: Iterable[Annotation], core_sets: Mapping[str, frozenset[str]]
) -> tuple[list[FrameSentence], dict[str, int]]:
    """Return the sentences that pass the filters, in order, and the number of rejected sentences for each reason.

    `core_sets` has the names of each frame's core elements.
    """
    outcomes = [_judge(annotation, core_sets.get(annotation.frame, frozenset())) for annotation in annotations]
    sentences = [outcome for outcome in outcomes if isinstance(outcome, FrameSentence)]
    return sentences, Counter(outcome for outcome in outcomes if isinstance(outcome, str))


def _judge(annotation: Annotation, core: frozenset[str]) -> FrameSentence | str:
    """Return the annotated sentence, or the reason why the annotation is rejected."""
    text = annotation.sentence
    if len(text.split()) > SENTENCE_TOKENS:
        return f"more than {SENTENCE_TOKENS} tokens"
    if len(annotation.targets) != 1:
        return "not exactly one target"
    target = token_range(text, annotation.targets[0])
    if len(target) > 1:
        return "target of more than 1 token"
    places = [token_range(text, span) for _, span in annotation.elements]
    if any(len(place) > ELEMENT_TOKENS or distance(place, target) <= NEAR_TOKENS for place in places):
        return "an element that is too long or too close to the target"
    elements = tuple(sorted(span for name, span in annotation.elements if name in core))
    if not elements:
        return "no core element that is short enough and far enough from the target"
    return FrameSentence(text, annotation.targets[0], elements)


def token_range(text: str, span: Span) -> range:
    """Return which tokens, separated by white space and counted from 0, overlap a character span.

    >>> token_range("She sold the old boat .", (9, 16))
    range(2, 4)
    """
    first = len(re.findall(r"\S+", text[: span[0]]))
    if span[0] > 0 and not text[span[0] - 1].isspace() and not text[span[0] : span[0] + 1].isspace():
        first -= 1
    return range(first, max(first + 1, len(text[: span[1]].split())))


def distance(one: range, other: range) -> int:
    """Return the distance between two ranges of tokens: 0 if the ranges overlap, and 1 if they are adjacent.

    >>> distance(range(0, 2), range(4, 5))
    3
    >>> distance(range(4, 5), range(3, 6))
    0
    """
    return max(0, other.start - one.stop + 1, one.start - other.stop + 1)


def sentences_digest(sentences: Sequence[FrameSentence]) -> str:
    """Return a digest of the sentences with their targets and core elements. The order of sentences has no effect."""
    texts = ((sentence.sentence, *sentence.words()) for sentence in sentences)
    return digest(sorted([sentence, target, *elements] for sentence, target, elements in texts))


def read_jsonl(path: Path) -> list[FrameSentence]:
    """Read sentences from JSON lines with the fields `sentence`, `target` and `core_elements`.

    Targets and core elements are substrings of the sentence. If the target occurs more than once (as whole words), the
    first occurrence is used. If a core element occurs more than once, the occurrence closest to the target is used.
    An occurrence within `NEAR_TOKENS` tokens of the target is used only if all occurrences are this close. In 432 of
    433 sentences, these rules find the places that FrameNet annotates.
    """
    lines = lines_of(read_text(path))
    sentences = [_record(line, f"{path}, line {n}") for n, line in enumerate(lines, start=1) if line.strip()]
    if not sentences:
        raise UserError(f"{path} contains no sentences: expected one JSON object per line")
    return sentences


def _record(line: str, where: str) -> FrameSentence:
    form = 'expected {"sentence": text, "target": text, "core_elements": [text, ...]}'
    try:
        record: Any = json.loads(line, object_pairs_hook=unique_keys)
        json.dumps(record, ensure_ascii=False).encode()  # "\ud800", an unpaired surrogate, is valid JSON but not text
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON ({excerpt(error, 100)}): {form}") from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: found a JSON {type(record).__name__} instead of an object: {form}")
    entries: Any = map(record.get, ("sentence", "target", "core_elements"))
    sentence, target, elements = entries
    texts = [sentence, target, *(elements if isinstance(elements, list) else [None])]
    if not elements or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(f"{where}: an entry is missing, empty or not a string: {form}")
    if len(sentence) > SENTENCE_LIMIT or len(elements) > ELEMENT_LIMIT:
        raise UserError(
            f"{where}: a sentence has {len(sentence)} characters and {len(elements)} core elements, "
            f"but at most {SENTENCE_LIMIT} characters and {ELEMENT_LIMIT} core elements are allowed"
        )
    target_at = find_words(sentence, target)
    if not target_at:
        raise UserError(f"{where}: target {_quoted(target)} is not in the sentence {_quoted(sentence)}")
    target_tokens = token_range(sentence, target_at[0])
    spans = []
    for element in elements:
        places = find_words(sentence, element)
        if not places:
            raise UserError(f"{where}: core element {_quoted(element)} is not in the sentence {_quoted(sentence)}")
        distances = {place: distance(token_range(sentence, place), target_tokens) for place in places}
        far = [place for place in places if distances[place] > NEAR_TOKENS]
        spans.append(min(far or places, key=distances.__getitem__))
    return FrameSentence(sentence, target_at[0], tuple(spans), made_up=MADE_UP_COLUMN in record)


def _quoted(text: str) -> str:
    return repr(excerpt(text, 200))


def find_words(text: str, wanted: str) -> list[Span]:
    """Return the spans of `wanted` in `text`. If it occurs as a whole word, occurrences inside words are ignored.

    >>> find_words("art is an art", "art")
    [(0, 3), (10, 13)]
    >>> find_words("the parts", "art")
    [(5, 8)]
    """
    if len(wanted.strip()) > len(text):
        return []
    pattern = re.escape(wanted.strip())
    whole = [m.span() for m in re.finditer(rf"(?<!\w){pattern}(?!\w)", text)]
    return whole or [m.span() for m in re.finditer(pattern, text)]
