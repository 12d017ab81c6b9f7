"""The paper's example of a frame-semantic head: one sentence, one row, and what it attends to (K19 4.2; claim B5)."""

import re

from bertsecrets.measures.relations import PairAttention
from bertsecrets.models.alignment import Alignment, all_pairs

SENTENCE = "He was becoming agitated ."
ROW, COLUMNS = "He", ("was", "becoming", "agitated")


def example_attention(alignment: Alignment, token_ids: list[int], sep: int | None, layers: int, heads: int):
    """The observer of a pass over the sentence alone (encoded with `encode_words`).

    Its values are the weight that the row of "He" gives to each of `was`, `becoming`, `agitated` and `sep`, each
    [layer, head]; of a word in several pieces, the largest.
    """

    def word(text: str):
        return alignment.mark([[match.span() for match in re.finditer(rf"\b{text}\b", SENTENCE)]])

    columns = {text: word(text) for text in COLUMNS} | {"sep": alignment.tokens([token_ids], sep)}
    return PairAttention(1, layers, heads, {name: all_pairs(word(ROW), marks) for name, marks in columns.items()})
