"""Attention between tokens that are linguistically related (K19 section 4.5).

For each head, the measure is the maximum weight over all (source, target) token pairs of an input, averaged over
inputs. Sources are rows of a map, and targets are columns. Inputs without such pairs are excluded.
"""

from typing import ClassVar

from bertsecrets.measures.base import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.needs import SpacyPipeline
from bertsecrets.measures.base.observers import PairObserver, mark_words
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, TokenPairs, all_pairs, zipped_pairs
from bertsecrets.models.attention import Observer
from bertsecrets.texts.parsing import WORD_FEATURES, Parse, verb_subject_links


@measure("relations", title="token-to-token attention", source="K19 4.5")
class Relations(AttentionMeasure):
    """Values: `noun_pronoun`, `pronoun_noun`, `verb_subject`, `subject_verb` [layer, head], and `<name>_examples`.

    Samples: the values of each input, under the same names, of shape [example, layer, head]. They are NaN for inputs
    without the relation.
    """

    class Options(AttentionMeasure.Options):
        """`zipped` pairs the k-th verb with the k-th subject, even if they are unrelated, as in K19's code."""

        zipped: bool = False

    needs = (SpacyPipeline(),)
    companions: ClassVar[tuple[str, ...]] = (*AttentionMeasure.companions, "features")
    common: ClassVar[bool] = False

    def observer(self, view: AttentionRun) -> Observer:
        zipped = self.options_in(view).zipped
        return PairObserver(*view.shape, relation_pairs(view.alignment, *view.parses, zipped=zipped))


def relation_pairs(
    alignment: Alignment, first: list[Parse], second: list[Parse] | None = None, *, zipped: bool = False
) -> dict[str, TokenPairs]:
    """Return the token pairs of K19 section 4.5 in both directions: noun and pronoun, verb and subject.

    As in K19's code, every noun is paired with every pronoun in either text of the input. Every verb is paired with the
    words of its subject. If `zipped` is True, the k-th verb is paired with the k-th subject instead, as in K19's code.
    """
    nouns, pronouns = (mark_words(alignment, WORD_FEATURES[kind], first, second) for kind in ("noun", "pronoun"))
    noun_pronoun = all_pairs(nouns, pronouns)
    if zipped:
        verbs, subjects = (mark_words(alignment, WORD_FEATURES[kind], first, second) for kind in ("verb", "subject"))
        verb_subject = zipped_pairs(verbs, subjects)
    else:
        in_first, in_second = ([*map(verb_subject_links, parses)] for parses in (first, second or ()))
        verb_subject = alignment.links(in_first, 0) + alignment.links(in_second, 1)
    return {
        "noun_pronoun": noun_pronoun,
        "pronoun_noun": noun_pronoun.reverse,
        "verb_subject": verb_subject,
        "subject_verb": verb_subject.reverse,
    }
