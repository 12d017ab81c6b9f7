"""Attention from token to token along a relation (K19 section 4.5).

For each head, the maximum weight over the (source, target) token pairs of an input: row = source, column = target.
Inputs without a pair are left out. Averaged over inputs.
"""

from typing import ClassVar

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.needs import SpacyPipeline
from bertsecrets.measures.base.observers import PairObserver, mark_words
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, TokenPairs, all_pairs
from bertsecrets.models.attention import Observer
from bertsecrets.texts.parsing import FEATURES, Parses, verb_subject_links
from bertsecrets.types import Span


@measure("relations", title="token-to-token attention", source="K19 4.5")
class Relations(AttentionMeasure):
    """Values: `noun_pronoun`, `pronoun_noun`, `verb_subject`, `subject_verb`, each [layer, head], and `..._examples`.

    Samples: the same names, [example, layer, head], NaN for inputs without the relation.
    """

    needs = (SpacyPipeline(),)
    companions: ClassVar[tuple[str, ...]] = (*AttentionMeasure.companions, "features")
    common: ClassVar[bool] = False

    def observer(self, view: AttentionRun) -> Observer:
        """Return the observer of all four relations."""
        return PairObserver(*view.shape, relation_pairs(view.alignment, *view.parses))


def relation_pairs(alignment: Alignment, first: Parses, second: Parses | None = None) -> dict[str, TokenPairs]:
    """Return the relations of K19 section 4.5 in both directions: noun and pronoun, verb and its own subject.

    Nouns and pronouns pair freely within an input (its two texts included, as in K19's code); a verb pairs with the
    words that are its subject, where K19's code zips the lists of all subjects and all verbs.
    """
    nouns, pronouns = (mark_words(alignment, FEATURES[kind], first, second) for kind in ("noun", "pronoun"))
    noun_pronoun = all_pairs(nouns, pronouns)
    verb_subject = alignment.links(_links(first), 0)
    if second is not None:
        verb_subject = verb_subject + alignment.links(_links(second), 1)
    return {
        "noun_pronoun": noun_pronoun,
        "pronoun_noun": noun_pronoun.reverse,
        "verb_subject": verb_subject,
        "subject_verb": verb_subject.reverse,
    }


def _links(parses: Parses) -> list[list[tuple[Span, Span]]]:
    return [verb_subject_links(words) for words in parses.sentences]
