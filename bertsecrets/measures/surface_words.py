"""Attention to surface features: words that occur in both texts, and punctuation (open questions in the authors' blog).

Words are compared by their letters and digits, case-insensitively. For each token of a word that occurs in both texts,
`equal` is the token's attention to that word in the other text. `expected` is the attention expected by chance: the
token's attention to the whole other text, times the fraction of that text's tokens that belong to the word.
"""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.observers import SampleObserver, max_over, of_batch, received
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, Marks, TokenPairs
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.types import Span

WORD_PATTERN = re.compile(r"\w+")
SURFACE_KINDS = ("final", "other", "word")


@measure("surface-words", title="attention to equal words and to punctuation", source="blog")
class SurfaceWords(AttentionMeasure):
    """Values, each [layer, head]: `equal`, the mean weight from a word to the same word in the other text; `expected`,
    the mean weight that would be expected by chance; and `final`, `other` and `word`, the maximum attention received by
    final punctuation, other punctuation and words. `<name>_examples` is the number of inputs that each value is based
    on.

    Samples: the same values by input, of shape [example, layer, head]. They are NaN for inputs without such tokens.
    """

    companions: ClassVar[tuple[str, ...]] = ()
    common: ClassVar[bool] = False

    def observer(self, view: AttentionRun) -> Observer:
        rows = view.rows
        texts = [rows.sentence1, *([] if rows.sentence2 is None else [rows.sentence2])]
        return SurfaceObserver(*view.shape, view.alignment, texts)


def equal_words(alignment: Alignment, texts: Sequence[Sequence[str]]) -> TokenPairs:
    """Return the token pairs between equal words of the two texts, in both directions."""
    first, second = texts if len(texts) == 2 else (texts[0], [""] * len(texts[0]))
    links = [
        [(here, there) for word, spans in words.items() for here in spans for there in others.get(word, [])]
        for words, others in zip(map(_spans, first), map(_spans, second), strict=True)
    ]
    pairs = alignment.links(links, 0, 1)
    return pairs + pairs.reverse


def _spans(text: str) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = {}
    for match in WORD_PATTERN.finditer(text):
        spans.setdefault(match[0].lower(), []).append(match.span())
    return spans


def kinds(alignment: Alignment, texts: Sequence[Sequence[str]]) -> dict[str, Marks]:
    """Return masks of the tokens of each kind: final punctuation, other punctuation and words."""
    words, final = np.zeros((2, *alignment.part.shape), dtype=bool)
    for part, of_part in enumerate(texts):
        words |= alignment.mark([[match.span() for match in WORD_PATTERN.finditer(text)] for text in of_part], part)
        here = alignment.part == part
        final |= here & (np.cumsum(here[:, ::-1], axis=1)[:, ::-1] == 1)
    marks = alignment.part >= 0
    return {"final": final & ~words, "other": marks & ~final & ~words, "word": words}


class SurfaceObserver(SampleObserver):
    """Observer of one model. It stores attention between equal words, and attention to words and to punctuation.

    `texts` contains a list of each example's first text and, for tasks with two texts, a list of the second texts.
    """

    def __init__(self, examples: int, layers: int, heads: int, alignment: Alignment, texts: Sequence[Sequence[str]]):
        super().__init__(examples, layers, heads, ("equal", "expected", *SURFACE_KINDS))
        self.part, self.equal = alignment.part, equal_words(alignment, texts)
        marks = kinds(alignment, texts)
        self.marks = np.stack([marks[kind] for kind in SURFACE_KINDS])

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        for name, weights in self._between(batch, maps):
            self.record(name, batch, layer, weights)
        largest = max_over(received(maps, batch), of_batch(self.marks, batch).to(maps.device))
        for kind, weights in zip(SURFACE_KINDS, largest, strict=True):
            self.record(kind, batch, layer, weights)

    def _between(self, batch: Batch, maps: Maps) -> Iterator[tuple[str, Float[torch.Tensor, "rows heads"]]]:
        """Yield the observed and expected weights between equal words. Both are NaN for inputs without such words."""
        rows, source, target = (torch.from_numpy(part).to(maps.device) for part in self.equal.of_rows(batch.indices))
        same = torch.zeros(maps.shape[0], *maps.shape[2:], dtype=maps.dtype, device=maps.device)
        same[rows, source, target] = 1
        first, second = of_batch(np.stack([self.part == 0, self.part == 1]), batch).to(maps.device)
        across = (first[:, :, None] & second[:, None] | second[:, :, None] & first[:, None]).to(maps.dtype)
        sources = (same.sum(-1) > 0).to(maps.dtype)
        count = sources.sum(-1)[:, None]
        share = same.sum(-1) / across.sum(-1).clamp(min=1)
        to_same = torch.einsum("rhst,rst->rh", maps, same)
        to_other = torch.einsum("rhst,rst,rs->rh", maps, across, share * sources)
        for name, total in (("equal", to_same), ("expected", to_other)):
            yield name, torch.where(count > 0, total / count, torch.nan)
