"""The paper's example of a frame-semantic head: the weights in one row of one sentence (K19 section 4.2; claim B5)."""

import re

from bertsecrets.measures.base import EncoderMeasure, Resources, Results, Run
from bertsecrets.measures.base.observers import PairObserver
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, Marks, all_pairs, encode_words
from bertsecrets.models.attention import Pass
from bertsecrets.models.loading import special_ids
from bertsecrets.store.files import digest

SENTENCE = "He was becoming agitated ."
ROW, COLUMNS = "He", ("was", "becoming", "agitated")


@measure("example-sentence", title="attention of one word in the paper's example sentence", source="K19 4.2")
class ExampleSentence(EncoderMeasure):
    """Values: the weight that the row of "He" gives to each of `was`, `becoming`, `agitated` and `sep`, [layer, head].

    If a word has several pieces, its largest weight counts.
    """

    def fingerprint(self, run: Run) -> str:
        """Return a digest of the sentence."""
        return digest(SENTENCE)

    def origin(self, resources: Resources) -> str | None:
        """Return None: the sentence comes from the paper, not from a file."""
        return None

    def run(self, run: Run) -> Results:
        """Run the encoder over the sentence."""
        encoder = self.open_encoder(run)
        encoded, alignment = encode_words(encoder.tokenizer, [SENTENCE])
        sep = special_ids(encoder.tokenizer)["sep"]
        ids = list(encoded.input_ids[0])
        observer = example_observer(alignment, ids, sep, layers=encoder.layers, heads=encoder.heads)
        Pass(encoder).feed(encoded, [observer])
        return {self.name: observer.compute()}, len(encoded)


def example_observer(
    alignment: Alignment, token_ids: list[int], sep: int | None, *, layers: int, heads: int
) -> PairObserver:
    """Return the observer of a pass over the sentence, encoded with `encode_words`."""

    def word(text: str) -> Marks:
        return alignment.mark([[match.span() for match in re.finditer(rf"\b{text}\b", SENTENCE)]])

    columns = {text: word(text) for text in COLUMNS} | {"sep": alignment.tokens([token_ids], sep)}
    return PairObserver(1, layers, heads, {name: all_pairs(word(ROW), marks) for name, marks in columns.items()})
