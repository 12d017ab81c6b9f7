"""Attention to nouns, verbs, pronouns, subjects, objects and negations (K19 sections 4.4 and 4.5, figures 6 and 7).

The attention received by a token is its column sum divided by the number of rows L. If an input has several tokens of
one kind, the maximum over these tokens is used. In the last layer, the maximum weight from [CLS] to the tokens of each
kind is also measured. Inputs without tokens of a kind are excluded from the mean for that kind, whereas K19's code
counts these inputs as 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, PaperFigure, Repeats, published_and_measured
from bertsecrets.measures.base.needs import SpacyPipeline
from bertsecrets.measures.base.observers import SampleObserver, mark_words, max_over, of_batch, received
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, Marks
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.texts.parsing import NEGATIONS, WORD_FEATURES, Parse, Word

SPECIAL_KINDS = ("cls", "sep")
FIGURE_7_LABELS = {  # labels of the kinds in K19's figure 7
    "pronoun": "PRON",
    "noun": "NOUN",
    "verb": "VERB",
    "object": "OBJ",
    "subject": "SUBJ",
    "negation": "NEG",
    "cls": "CLS",
    "sep": "SEP",
}


@measure("features", title="attention to linguistic features", source="K19 4.4")
class Features(AttentionMeasure):
    """Values: `<kind>` [layer, head] and `cls_row_<kind>` [head]. `<name>_examples` is the number of inputs that each
    value is based on.

    Samples: `<kind>` [example, layer, head] and `cls_row_<kind>` [example, head]. Both are NaN for inputs without
    tokens of this kind.
    """

    class Options(AttentionMeasure.Options):
        """Options that reproduce details of K19's code that differ from the paper.

        With `substrings`, words that merely contain a negation, such as "another", also count as negations. With
        `absent`, inputs without tokens of the measured type are either excluded (`left out`) or count as 0 (`zero`).
        """

        substrings: bool = False
        absent: Literal["left out", "zero"] = "left out"

    needs = (SpacyPipeline(),)
    companions: ClassVar[tuple[str, ...]] = (*AttentionMeasure.companions, "relations")
    common: ClassVar[bool] = False
    other_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        f"cls_row_{kind}": ("head",) for kind in (*WORD_FEATURES, *SPECIAL_KINDS)
    }
    paper = PaperFigure(
        "7",
        "What [CLS] attends to in the last layer",
        "Attention of [CLS] to each kind of token in the last layer, averaged over inputs with such tokens.",
    )

    def observer(self, view: AttentionRun) -> Observer:
        options = self.options_in(view)
        marks = feature_marks(view.alignment, view.encoded.input_ids, view.special_ids, *view.parses)
        if options.substrings:
            marks["negation"] = mark_words(view.alignment, contains_negation, *view.parses)
        return FeatureObserver(*view.shape, marks, marks["cls"], absent=0.0 if options.absent == "zero" else np.nan)

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield the chart of attention from [CLS] by kind of token in the last layer, if the model has [CLS]."""
        kinds = [kind for kind in FIGURE_7_LABELS if f"cls_row_{kind}" in seeds.first.values]
        if kinds:
            published = seeds.published("fig7_CLS_last_layer")
            theirs = published and [published[FIGURE_7_LABELS[kind]] for kind in kinds]
            ours = np.array([seeds.mean(f"cls_row_{kind}") for kind in kinds])
            captions = ("K19, figure 7: last layer", "{who}: last layer")
            yield from published_and_measured(theirs, ours, "attention of [CLS]", captions, kinds)


def contains_negation(word: Word) -> bool:
    """Return whether a word contains a negation, even by chance ("another" contains "not"), as in K19's code."""
    text = word.text.lower().replace("\u2019", "'")
    return any(part in text for part in (*NEGATIONS, "n't"))


class FeatureObserver(SampleObserver):
    """Observer of one model. It stores the attention that each kind of token receives, overall and from [CLS].

    Only the first token in the mask `cls` is used; if it is None, attention from [CLS] is not stored. `absent` is
    stored for inputs without words of a kind, except for [CLS] and [SEP].
    """

    def __init__(
        self,
        examples: int,
        layers: int,
        heads: int,
        marks: Mapping[str, Marks],
        cls: Marks | None = None,
        *,
        absent: float = np.nan,
    ):
        super().__init__(examples, layers, heads, marks)
        self.absent, self.kinds, self.last = absent, list(marks), layers - 1
        self.marks = np.stack(list(marks.values()))
        self.cls = None if cls is None or not cls.any() else cls & (cls.cumsum(1) == 1)
        if self.cls is not None:
            self.samples |= {f"cls_row_{kind}": np.full((examples, heads), np.nan, dtype=np.float32) for kind in marks}

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        marks = of_batch(self.marks, batch).to(maps.device)
        for kind, paid in zip(self.kinds, max_over(received(maps, batch), marks), strict=True):
            self.record(kind, batch, layer, paid)
        if layer == self.last and self.cls is not None:
            cls = of_batch(self.cls[None], batch)[0].to(maps.device)
            row = (maps * cls[:, None, :, None]).sum(2)
            for kind, weights in zip(self.kinds, max_over(row, marks & cls.any(-1)[None, :, None]), strict=True):
                self.samples[f"cls_row_{kind}"][batch.indices] = weights.cpu().numpy()

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        if not np.isnan(self.absent):
            for name, sample in self.samples.items():
                if name.removeprefix("cls_row_") not in SPECIAL_KINDS:
                    np.nan_to_num(sample, copy=False, nan=self.absent)
        return super().compute()


def feature_marks(
    alignment: Alignment,
    token_ids: Sequence[Sequence[int]],
    special: Mapping[str, int | None],
    first: list[Parse],
    second: list[Parse] | None = None,
) -> dict[str, Marks]:
    """Return a mask for each kind of token: features, punctuation, and special tokens (see `encoding.special_ids`)."""
    marks = {kind: mark_words(alignment, wanted, first, second) for kind, wanted in WORD_FEATURES.items()}
    return marks | {kind: alignment.tokens(token_ids, token) for kind, token in special.items()}
