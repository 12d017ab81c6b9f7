"""The paper's example of a frame-semantic head: attention weights in a single sentence (K19 section 4.2; claim B5)."""

import re

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base import EncoderMeasure, MeasureContext, Results
from bertsecrets.measures.base.observers import PairObserver
from bertsecrets.measures.base.probe import check_attention
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import all_pairs, encode_words
from bertsecrets.models.attention import Pass
from bertsecrets.models.encoding import special_ids
from bertsecrets.models.opening import OpenModel
from bertsecrets.store.files import digest

EXAMPLE_SENTENCE = "He was becoming agitated ."
ROW_WORD, COLUMN_WORDS = "He", ("was", "becoming", "agitated")


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
            raise NotApplicableError("its tokens do not attend to later tokens")

    def run(self, context: MeasureContext) -> Results:
        encoder = self.open_encoder(context)
        encoded, alignment = encode_words(encoder.tokenizer, [EXAMPLE_SENTENCE])
        he, *others = (
            alignment.mark([[match.span() for match in re.finditer(rf"\b{word}\b", EXAMPLE_SENTENCE)]])
            for word in (ROW_WORD, *COLUMN_WORDS)
        )
        sep = alignment.tokens(encoded.input_ids, special_ids(encoder.tokenizer)["sep"])
        relations = {
            name: all_pairs(he, marks) for name, marks in zip((*COLUMN_WORDS, "sep"), (*others, sep), strict=True)
        }
        relations["he_from_agitated"] = all_pairs(others[-1], he)
        relations["rest_from_agitated"] = all_pairs(others[-1], ~he)
        observer = PairObserver(1, encoder.layers, encoder.heads, relations)
        Pass(encoder).feed(encoded, [observer])
        return {self.name: observer.compute()}, len(encoded)
