"""The paper's example of a frame-semantic head: attention weights in a single sentence (K19 section 4.2; claim B5)."""

import re

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base import EncoderMeasure, MeasureContext, Results
from bertsecrets.measures.base.observers import PairObserver
from bertsecrets.measures.base.probe import CAUSAL_REASON, Ahead, check_attention
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, Marks, all_pairs, encode_words
from bertsecrets.models.attention import Pass
from bertsecrets.models.encoding import special_ids
from bertsecrets.models.opening import OpenModel
from bertsecrets.store.files import digest

EXAMPLE_SENTENCE = "He was becoming agitated ."
ROW_WORD, COLUMN_WORDS, TARGET_WORD = "He", ("was", "becoming", "agitated"), "agitated"


@measure("example-sentence", title="attention of one word in the paper's example sentence", source="K19 4.2")
class ExampleSentence(EncoderMeasure):
    """Values of shape [layer, head]: the weights from "He" to `was`, `becoming`, `agitated` and `sep`; the weight from
    "agitated" to "He" (`he_from_agitated`); and the largest weight from "agitated" to any other token except itself
    (`rest_from_agitated`).

    If a word is split into several pieces, the largest weight counts.
    """

    def fingerprint(self, context: MeasureContext) -> str:
        return digest(EXAMPLE_SENTENCE)

    def check_model(self, classifier: OpenModel) -> None:
        """Check that maps can be read, and that words can attend to later words."""
        if not check_attention(classifier):
            raise NotApplicableError(CAUSAL_REASON)

    def run(self, context: MeasureContext) -> Results:
        encoder = self.open_encoder(context)
        encoded, alignment = encode_words(encoder.tokenizer, [EXAMPLE_SENTENCE])
        sep = special_ids(encoder.tokenizer)["sep"]
        ids = list(encoded.input_ids[0])
        observer = example_observer(alignment, ids, sep, layers=encoder.layers, heads=encoder.heads)
        ahead = Ahead()
        Pass(encoder).feed(encoded, [observer, ahead])
        if not ahead.most:
            raise NotApplicableError(f"{context.subject.model} cannot be measured on this sentence: {CAUSAL_REASON}")
        return {self.name: observer.compute()}, len(encoded)


def example_observer(
    alignment: Alignment, token_ids: list[int], sep: int | None, *, layers: int, heads: int
) -> PairObserver:

    def word(text: str) -> Marks:
        return alignment.mark([[match.span() for match in re.finditer(rf"\b{text}\b", EXAMPLE_SENTENCE)]])

    columns = {text: word(text) for text in COLUMN_WORDS} | {"sep": alignment.tokens([token_ids], sep)}
    relations = {name: all_pairs(word(ROW_WORD), marks) for name, marks in columns.items()}
    relations["he_from_agitated"] = all_pairs(word(TARGET_WORD), word(ROW_WORD))
    relations["rest_from_agitated"] = all_pairs(word(TARGET_WORD), ~word(ROW_WORD))
    return PairObserver(1, layers, heads, relations)
