"""The alignment of character spans in texts with word-piece tokens.

Tokens are located by the tokenizer's character offsets, never by comparing strings. Contractions, accents and repeated
words are therefore handled correctly. A token belongs to a span if they share at least one character.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bertsecrets.models.encoding import Encoded, tokenize
from bertsecrets.types import Span

Marks = Bool[np.ndarray, "examples tokens"]


@dataclass(frozen=True)
class Alignment:
    """The position of every token in its text.

    `offsets` are the character positions at which each token starts and ends (exclusive). `part` is the index of the
    text that contains the token (0 or 1), or -1 for special tokens and padding. The number of columns is the length of
    the longest example.
    """

    offsets: Int[np.ndarray, "examples tokens 2"]
    part: Int[np.ndarray, "examples tokens"]

    def mark(self, spans: Sequence[Sequence[Span]], part: int = 0) -> Marks:
        """Return a mask of the tokens that overlap at least one span of their example.

        Args:
            spans: Spans of each example, in its first text (`part` 0) or its second text (`part` 1). A span
                whose text was cut off by truncation overlaps no token.
        """
        flat = [(i, *span) for i, of_example in enumerate(spans) for span in of_example]
        table = np.array(flat, dtype=np.int64).reshape(-1, 3)
        span, token = np.nonzero(self._hits(table[:, 0], table[:, 1:], part))
        marks = np.zeros(self.part.shape, dtype=bool)
        marks[table[span, 0], token] = True
        return marks

    def tokens(self, token_ids: Sequence[Sequence[int]], wanted: int | None) -> Marks:
        """Return a mask of the tokens with a given id, such as that of [CLS]. If the id is None, the mask is empty."""
        marks = np.zeros(self.part.shape, dtype=bool)
        if wanted is not None:
            for example, ids in enumerate(token_ids):
                marks[example, : len(ids)] = np.asarray(ids) == wanted
        return marks

    def links(self, spans: Sequence[Sequence[tuple[Span, Span]]], part: int = 0, to: int | None = None) -> "TokenPairs":
        """For each pair of spans, pair every token of the first span with every token of the second span.

        Args:
            part: Index of the text that contains the first span.
            to: Index of the text that contains the second span. By default, it is the text of the first span.
        """
        flat = [(i, *first, *second) for i, of_example in enumerate(spans) for first, second in of_example]
        table = np.array(flat, dtype=np.int64).reshape(-1, 5)
        link, source = np.nonzero(self._hits(table[:, 0], table[:, 1:3], part))
        place, target = np.nonzero(self._hits(table[link, 0], table[link, 3:5], part if to is None else to))
        return TokenPairs.unique(table[link[place], 0], source[place], target)

    def _hits(
        self, examples: Int[np.ndarray, " spans"], spans: Int[np.ndarray, "spans 2"], part: int
    ) -> Bool[np.ndarray, "spans tokens"]:
        """Return a mask for each span. The mask selects the tokens of the span's example that overlap the span."""
        start, stop = self.offsets[examples, :, 0], self.offsets[examples, :, 1]
        return (self.part[examples] == part) & (start < spans[:, 1:]) & (stop > spans[:, :1]) & (stop > start)


@dataclass(frozen=True)
class TokenPairs:
    """Pairs of tokens, sorted by example. `source` is a row of the attention map, and `target` is a column."""

    example: Int[np.ndarray, " pairs"]
    source: Int[np.ndarray, " pairs"]
    target: Int[np.ndarray, " pairs"]

    @classmethod
    def unique(cls, example: np.ndarray, source: np.ndarray, target: np.ndarray) -> "TokenPairs":
        """Return the pairs in sorted order, without duplicates."""
        table = np.unique(np.stack([example, source, target], axis=1).astype(np.int64).reshape(-1, 3), axis=0)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    @property
    def reverse(self) -> "TokenPairs":
        """The same pairs with source and target swapped."""
        return TokenPairs.unique(self.example, self.target, self.source)

    def __add__(self, other: "TokenPairs") -> "TokenPairs":
        """Return the union of two sets of pairs."""
        sides = [(self.example, other.example), (self.source, other.source), (self.target, other.target)]
        return TokenPairs.unique(*(np.concatenate(side) for side in sides))

    def of_rows(
        self, indices: Int[np.ndarray, " rows"]
    ) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """Return the pairs of the given examples as (rows, sources, targets). Rows are positions in `indices`."""
        first = np.searchsorted(self.example, indices)
        counts = np.searchsorted(self.example, indices, side="right") - first
        rows = np.repeat(np.arange(len(indices)), counts)
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        return rows, self.source[places], self.target[places]


def all_pairs(sources: Marks, targets: Marks) -> TokenPairs:
    """Pair every token in `sources` with every token in `targets` of the same example, but never with itself."""
    example, source = np.nonzero(sources)
    pair, target = np.nonzero(targets[example])
    distinct = source[pair] != target
    return TokenPairs.unique(example[pair][distinct], source[pair][distinct], target[distinct])


def zipped_pairs(sources: Marks, targets: Marks) -> TokenPairs:
    """Pair the k-th token in `sources` with the k-th token in `targets` of the same example, as in K19's code."""
    rank = np.where(sources, sources.cumsum(1), 0)[:, :, None]
    same = (rank > 0) & (rank == np.where(targets, targets.cumsum(1), -1)[:, None, :])
    return TokenPairs.unique(*np.nonzero(same))


def encode_words(
    tokenizer: Any, first: Sequence[str], second: Sequence[str] | None = None, max_length: int = 512
) -> tuple[Encoded, Alignment]:
    """Encode texts (or pairs of texts) as `encoding.encode` does. Return the token ids and their alignment."""
    encoded, encodings = tokenize(tokenizer, first, second, max_length)
    longest = int(encoded.lengths.max(initial=1))
    offsets = np.zeros((len(encoded), longest, 2), dtype=np.int64)
    part = np.full((len(encoded), longest), -1, dtype=np.int64)
    for example, encoding in enumerate(encodings):
        offsets[example, : len(encoding.ids)] = encoding.offsets
        part[example, : len(encoding.ids)] = [-1 if text is None else text for text in encoding.sequence_ids]
    return encoded, Alignment(offsets, part)
