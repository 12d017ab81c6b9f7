"""Attention from token to token along a relation (K19 section 4.5; 4.2 uses the same measure for frame elements).

For each head, the maximum weight over the (source, target) token pairs of an input: row = source, column = target.
Inputs without a pair are left out. Averaged over inputs.
"""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float

from bertsecrets.models.alignment import Alignment, TokenPairs, all_pairs
from bertsecrets.models.attention import Maps
from bertsecrets.models.encoding import Batch
from bertsecrets.texts.parsing import FEATURES, Parses, verb_subject_links
from bertsecrets.types import Span


def max_weight(maps: Maps, batch: Batch, pairs: TokenPairs) -> Float[torch.Tensor, "rows heads"]:
    """The largest weight over each row's token pairs, per head; NaN for a row without pairs."""
    rows, source, target = (torch.from_numpy(part).to(maps.device) for part in pairs.of_rows(batch.indices))
    weights = maps[rows, :, source, target]
    empty = torch.full(maps.shape[:2], torch.nan, dtype=maps.dtype, device=maps.device)
    return empty.scatter_reduce(0, rows[:, None].expand_as(weights), weights, "amax", include_self=False)


class PairAttention:
    """Observer of one model: for each named relation the maximum weight over its pairs, [example, layer, head]."""

    pairs = False

    def __init__(self, examples: int, layers: int, heads: int, relations: Mapping[str, TokenPairs]):
        self.relations = dict(relations)
        self.weights = {name: np.full((examples, layers, heads), np.nan, dtype=np.float32) for name in self.relations}

    def observe(self, batch: Batch, layer: int, maps: Maps, other: Maps | None) -> None:
        """See one layer of one batch."""
        for name, pairs in self.relations.items():
            self.weights[name][batch.indices, layer] = max_weight(maps, batch, pairs).cpu().numpy()

    def result(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Values: the mean over inputs that have the relation, [layer, head], and their number `<name>_examples`.

        Samples: `<name>`, [example, layer, head], NaN for inputs without the relation.
        """
        return mean_over_present(self.weights), dict(self.weights)


def mean_over_present(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The mean over the examples that are not NaN, and under `<name>_examples` how many these are."""
    values: dict[str, np.ndarray] = {}
    for name, sample in samples.items():
        present = ~np.isnan(sample)
        count = present.sum(0)
        total = np.where(present, sample, 0).sum(0, dtype=np.float64)
        values[name] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        values[f"{name}_examples"] = np.asarray(int(present.reshape(len(sample), -1).any(1).sum()))
    return values


def relation_pairs(alignment: Alignment, first: Parses, second: Parses | None = None) -> dict[str, TokenPairs]:
    """The relations of K19 section 4.5 in both directions: noun and pronoun, verb and its own subject.

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


def mark_words(alignment: Alignment, wanted, first: Parses, second: Parses | None = None) -> np.ndarray:
    """The tokens of the wanted words of both texts, [example, token]."""
    marks = alignment.mark(first.spans(wanted), 0)
    return marks if second is None else marks | alignment.mark(second.spans(wanted), 1)
