"""The attention paid to nouns, verbs, pronouns, subjects, objects, negations (K19 sections 4.4, 4.5, figures 6, 7).

The attention received by a token is the sum of its column, divided by the number L of rows. If an input has several
tokens of one kind, the largest value counts. For the last layer, the [CLS] row's own weight on each kind (again the
largest) is measured too. Inputs without the feature are left out; K19's code counts them as 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.figures import Figure, PaperFigure, Repeats, pair
from bertsecrets.measures.base.needs import SpacyPipeline
from bertsecrets.measures.base.observers import mark_words, max_over, mean_over_present, of_batch, received
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, Marks
from bertsecrets.models.attention import Maps, Observer
from bertsecrets.models.encoding import Batch
from bertsecrets.texts.parsing import FEATURES, NEGATIONS, Parses, Word

SPECIAL = ("cls", "sep")
FIGURE_7 = {  # names of the kinds in K19's figure 7
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
    """Values: `<kind>` [layer, head], `cls_row_<kind>` [head], and for each the number of inputs, `..._examples`.

    Samples: the same names, [example, layer, head] and [example, head], NaN for inputs without the kind.
    """

    class Options(AttentionMeasure.Options):
        """Differences in K19's code.

        `substrings`: words that contain a negation count, such as "another". `absent`: inputs without the feature
        are `left out`, or count as `zero`.
        """

        substrings: bool = False
        absent: Literal["left out", "zero"] = "left out"

    needs = (SpacyPipeline(),)
    companions: ClassVar[tuple[str, ...]] = (*AttentionMeasure.companions, "relations")
    common: ClassVar[bool] = False
    paper = PaperFigure(
        "7",
        "What [CLS] attends to in the last layer",
        "The attention of [CLS] to each kind of token, by head of the last layer, averaged over inputs that have it.",
    )

    def observer(self, view: AttentionRun) -> Observer:
        """Return the observer of all kinds of token."""
        options = self.options_in(view)
        marks = feature_marks(view.alignment, view.encoded.input_ids, view.special_ids, *view.parses)
        if options.substrings:
            marks["negation"] = mark_words(view.alignment, contains_negation, *view.parses)
        return FeatureObserver(*view.shape, marks, marks["cls"], absent=0.0 if options.absent == "zero" else np.nan)

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield the last layer's [CLS] row by kind of token; nothing if the model has no such token."""
        kinds = [kind for kind in FIGURE_7 if f"cls_row_{kind}" in seeds.first.values]
        if kinds:
            published = seeds.published("fig7_CLS_last_layer")
            theirs = [published[FIGURE_7[kind]] for kind in kinds]
            ours = np.array([seeds.mean(f"cls_row_{kind}") for kind in kinds])
            captions = ("K19, figure 7: last layer", "{who}: last layer")
            yield from pair(theirs, ours, "attention of [CLS]", captions, kinds)


def contains_negation(word: Word) -> bool:
    """Return whether a word contains a negation, as K19's code tests: `another` and `notice` do."""
    text = word.text.lower().replace("\u2019", "'")
    return any(part in text for part in (*NEGATIONS, "n't"))


class FeatureObserver:
    """Observer of one model: attention received by each kind of token, and the last layer's [CLS] row on it."""

    pairs = False

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
        """
        Args:
            absent: the value for a kind of word that an input does not have.
            marks: the tokens of each kind.
            cls: the token whose row is read in the last layer (the first such token of an example); None for none.
        """
        self.absent = absent
        self.kinds = list(marks)
        self.marks = np.stack([marks[kind] for kind in self.kinds])
        self.cls = None if cls is None or not cls.any() else cls & (cls.cumsum(1) == 1)
        self.last = layers - 1
        self.paid = np.full((len(self.kinds), examples, layers, heads), np.nan, dtype=np.float32)
        self.row = np.full((len(self.kinds), examples, heads), np.nan, dtype=np.float32)

    def update(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer of one batch."""
        marks = of_batch(self.marks, batch).to(maps.device)
        self.paid[:, batch.indices, layer] = max_over(received(maps, batch), marks).cpu().numpy()
        if layer == self.last and self.cls is not None:
            cls = of_batch(self.cls[None], batch)[0].to(maps.device)
            row = (maps * cls[:, None, :, None]).sum(2)
            weights = max_over(row, marks & cls.any(-1)[None, :, None])
            self.row[:, batch.indices] = weights.cpu().numpy()

    def compute(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return values: `<kind>` [layer, head], `cls_row_<kind>` [head], and for each the number `..._examples`.

        Samples: the same names, [example, layer, head] and [example, head], NaN for inputs without the kind.
        """
        for place, kind in enumerate(self.kinds):
            if kind not in SPECIAL and not np.isnan(self.absent):
                np.nan_to_num(self.paid[place], copy=False, nan=self.absent)
                np.nan_to_num(self.row[place], copy=False, nan=self.absent)
        samples = dict(zip(self.kinds, self.paid, strict=True))
        if self.cls is not None:
            samples |= {f"cls_row_{kind}": row for kind, row in zip(self.kinds, self.row, strict=True)}
        return mean_over_present(samples), samples


def feature_marks(
    alignment: Alignment,
    token_ids: Sequence[Sequence[int]],
    special: Mapping[str, int | None],
    first: Parses,
    second: Parses | None = None,
) -> dict[str, Marks]:
    """Return the tokens of each kind: K19's linguistic features, punctuation, and the special tokens.

    Args:
        token_ids: of each example (`Encoded.input_ids`).
        special: token id of `cls` and `sep`, or None (`encoding.special_ids`).
    """
    marks = {kind: mark_words(alignment, wanted, first, second) for kind, wanted in FEATURES.items()}
    return marks | {kind: alignment.tokens(token_ids, token) for kind, token in special.items()}
