"""Attention to linguistic features (K19 section 4.4) and between related words (K19 section 4.5).

Each feature or relation is measured only in inputs that contain it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.estimand import (
    Clusters,
    ColumnSelection,
    Estimand,
    best_index,
    both,
    by_layer,
    clusters_of,
    cross_fitted,
    each_pair,
    flat,
    half_means,
    halves,
    of_other_half,
)
from bertsecrets.claims.quantities.ablation_gains import STSB_AND_RTE, TOP_HEADS
from bertsecrets.claims.quantities.head_ranking import Heads, name_of, place
from bertsecrets.claims.quantities.likeness import likeness, panels
from bertsecrets.claims.quantities.pattern_shares import PATTERNS
from bertsecrets.claims.quantity import Need, OneOrMore, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import Reading
from bertsecrets.texts.metrics import FEWEST_EXAMPLES
from bertsecrets.texts.published import HARMFUL_HEADS
from bertsecrets.types import Measurement

Feature = Literal["noun", "verb", "pronoun", "subject", "object", "negation"]
LINGUISTIC_FEATURES: tuple[Feature, ...] = get_args(Feature)
Kind = Literal[Feature, "punctuation", "cls", "sep"]
Relation = Literal["noun_pronoun", "pronoun_noun", "verb_subject", "subject_verb"]
DIAGONAL_RELATIONS: tuple[Relation, ...] = ("verb_subject", "noun_pronoun")
DIAGONAL_CLASSES = ("diagonal", "vertical-diagonal")
FEATURE_WEIGHTS = Need("features")
SURFACE_WORDS = Need("surface-words")


def _means(block: Float[np.ndarray, "examples k"]) -> Float[np.ndarray, " k"]:
    return column_means(block)[0]


def _present(means: np.ndarray) -> np.ndarray:
    """Return means with NaN replaced by minus infinity, so that a maximum ignores missing means."""
    return np.where(np.isnan(means), -np.inf, means)


def _frequent(samples: Mapping[str, Float[np.ndarray, "examples heads"]]) -> tuple[list[str], list[str]]:
    """Return the kinds of words that occur in enough inputs, and a note that lists the excluded kinds.

    If no kind occurs often enough, return all kinds that occur. The verdict then says that there are too few examples.
    """
    inputs = {kind: int((~np.isnan(sample)).any(1).sum()) for kind, sample in samples.items()}
    frequent = [kind for kind, count in inputs.items() if count >= FEWEST_EXAMPLES]
    if not frequent:
        return [kind for kind, count in inputs.items() if count], []
    few = ", ".join(f"{kind} (in {count} inputs)" for kind, count in inputs.items() if kind not in frequent)
    return frequent, [f"left out: {few}"] if few else []


@quantity("best-feature-growth", unit="attention", after=FEATURE_WEIGHTS, before=Need("features", "against"))
def best_growth(
    after: Measurement, before: Measurement, kinds: Annotated[OneOrMore[Feature], Field(max_length=5)]
) -> Estimand:
    """Return the largest increase in a head's attention to a kind of word, compared with 0 and with two other changes.

    The increase is relative to the pretrained model. There are three parts for each kind of word, and the claim is
    judged by the smallest of all parts:

    - the increase,
    - the increase minus the same head's increase for other kinds of words, because a head may attend more to all words,
    - the increase minus the largest decrease in any head, because random changes go both ways.

    The largest increase among many heads would be positive by chance alone. Therefore, the inputs that contain this
    kind of word are split into halves. The head with the largest increase on one half, averaged across seeds, is
    measured on the other half.
    """
    clusters = clusters_of(after)
    others = [flat(after, kind) - flat(before, kind) for kind in LINGUISTIC_FEATURES if kind not in kinds]
    of_others = np.ma.masked_invalid(np.stack(others)).mean(0).filled(np.nan)  # of the kinds that an input contains
    growths = [flat(after, kind) - flat(before, kind) for kind in kinds]
    firsts = [_first_half(~np.isnan(growth).any(1), clusters) for growth in growths]
    halved = zip(growths, firsts, strict=True)
    means = [half_means(sign * growth, first) for growth, first in halved for sign in (1, -1)]

    def leads(mean: np.ndarray) -> np.ndarray:
        by_kind = mean.reshape(*mean.shape[:-1], len(kinds), 3)
        increase = by_kind[..., :1]
        return np.concatenate([increase, increase - by_kind[..., 1:]], axis=-1).reshape(*mean.shape[:-1], -1)

    def build(chosen: Sequence[int]) -> Estimand:
        columns, notes = [], []
        by_kind = zip(kinds, growths, firsts, chosen[::4], chosen[1::4], chosen[2::4], chosen[3::4], strict=True)
        for kind, growth, first, *heads_by_half in by_kind:
            grown_by, lost_by = heads_by_half[:2], heads_by_half[2:]
            present = ~np.isnan(growth).any(1)
            contrast = np.where(present, of_other_half(of_others, first, *grown_by), np.nan)
            columns += [of_other_half(growth, first, *grown_by), contrast, of_other_half(-growth, first, *lost_by)]
            naive = float(_present(_means(growth)).max())
            heads = both([name_of(after, head, kind) for head in grown_by])
            grown, elsewhere, lost = _means(np.stack(columns[-3:], axis=1))
            notes.append(
                f"{kind} in {heads}: {grown:+.4f}, other words there {elsewhere:+.4f}, largest decrease {lost:.4f}, "
                f"naive best {naive:+.4f}, {present.sum()} inputs"
            )
        return Estimand.from_block(np.stack(columns, axis=1), leads, *notes, clusters=clusters, extreme="least")

    return ColumnSelection(tuple(mean for of_sign in means for mean in of_sign), build).estimand


def _first_half(present: Bool[np.ndarray, " examples"], clusters: Clusters) -> Bool[np.ndarray, " examples"]:
    """Split the examples that are True in `present` into two halves, and return a mask of the first half."""
    first = np.zeros(len(present), dtype=bool)
    first[present] = halves(int(present.sum()), None if clusters is None else clusters[present])
    return first


@quantity("feature-depth", unit="attention", features=FEATURE_WEIGHTS)
def feature_depth(features: Measurement, kinds: OneOrMore[Kind]) -> Estimand:
    """Return the attention to each kind of word in the upper half of the layers minus that in the lower half.

    The claim is judged by the kind with the smallest difference. Kinds that occur in too few inputs are excluded.
    """
    frequent, notes = _frequent({kind: flat(features, kind) for kind in kinds})
    layers = [by_layer(features, kind) for kind in frequent]
    half = layers[0].shape[1] // 2 if layers else 0
    if not half:
        raise NotApplicableError("a model with one layer has no upper half" if layers else "no input has such words")
    block = np.stack([each[:, -half:].mean(1) - each[:, :half].mean(1) for each in layers], axis=1)
    note = ", ".join(f"{kind} {value:+.4f}" for kind, value in zip(frequent, _means(block), strict=True))
    return Estimand.from_block(block, lambda mean: mean, note, *notes, clusters=clusters_of(features), extreme="least")


@quantity("feature-ratio", unit="ratio", features=FEATURE_WEIGHTS)
def best_against_special(features: Measurement) -> Estimand:
    """Return the largest ratio between attention to a linguistic feature and attention to [CLS] or [SEP].

    Each kind of token is measured in the head that attends to it most. This head is selected on one half of the
    examples and measured on the other half. Kinds that occur in too few inputs are excluded.
    """
    special = ("cls", "sep")
    for kind in special:
        if np.isnan(features.value(kind)).all():
            raise NotApplicableError(f"the model has no [{kind.upper()}]")
    frequent, notes = _frequent({kind: flat(features, kind) for kind in LINGUISTIC_FEATURES})
    kinds, clusters = (*special, *frequent), clusters_of(features)
    first = halves(features.examples, clusters)
    block = np.stack([cross_fitted(flat(features, kind), first) for kind in kinds], axis=1)
    ratios = lambda mean: each_pair(np.divide, mean[..., 2:], mean[..., :2])  # noqa: E731
    weights = ", ".join(f"{kind} {weight:.3f}" for kind, weight in zip(kinds, _means(block), strict=True))
    return Estimand.from_block(block, ratios, f"best heads: {weights}", *notes, clusters=clusters, extreme="most")


def _cls_row(features: Measurement) -> dict[str, Float[np.ndarray, "examples heads"]]:
    """Return the weights in the last layer's [CLS] row, by kind of token."""
    prefix = "cls_row_"
    rows = {name.removeprefix(prefix): row for name, row in features.samples.items() if name.startswith(prefix)}
    if not rows or any(np.isnan(features.sample(prefix + kind)).all() for kind in ("cls", "sep")):
        raise NotApplicableError("the model has no [CLS] or no [SEP]")
    return {kind: row.astype(np.float64) for kind, row in rows.items()}


@quantity("cls-row-lead", unit="attention", features=FEATURE_WEIGHTS)
def cls_row_lead(features: Measurement, kind: Kind = "sep") -> Estimand:
    """Return the last layer's attention from [CLS] to one kind of token minus the largest attention to another kind.

    Weights are averaged over heads. Other kinds are left out if they occur in too few inputs.
    """
    rows = _cls_row(features)
    if kind not in rows:
        raise NotApplicableError(f"{kind} is not among the features {', '.join(rows)}")
    others, notes = _frequent({name: row for name, row in rows.items() if name != kind})
    names = [kind, *others]
    block = np.stack([rows[name].mean(1) for name in names], axis=1)
    by_kind = sorted(zip(names, _means(block), strict=True), key=lambda pair: -np.nan_to_num(pair[1]))
    note = ", ".join(f"{name} {weight:.3f}" for name, weight in by_kind)
    leads = lambda mean: mean[..., :1] - mean[..., 1:]  # noqa: E731
    return Estimand.from_block(block, leads, note, *notes, clusters=clusters_of(features), extreme="least")


@quantity("final-punctuation-heads", unit="percent", within=(0, 100), words=SURFACE_WORDS)
def final_punctuation(words: Measurement) -> Estimand:
    """Return the percentage of heads in the last two layers that attend more to final punctuation than to any word.

    In each input, only the most attended word is considered. Inputs without final punctuation are excluded.
    """
    final, word = (words.sample(kind)[:, -2:] for kind in ("final", "word"))
    lead = (final - word).reshape(len(final), -1).astype(np.float64)
    best = best_index(_means(lead))
    note = f"final punctuation minus the most attended word: at most {_means(lead)[best]:+.3f}"
    share = lambda mean: 100 * np.where(np.isnan(mean), np.nan, mean > 0).mean(-1)  # noqa: E731
    return Estimand.from_block(lead, share, note, clusters=clusters_of(words))


@quantity("named-equal-word-attention", unit="attention", words=SURFACE_WORDS)
def equal_words_of_named_heads(words: Measurement, heads: Heads = HARMFUL_HEADS) -> Estimand:
    """Return the weakest named head's attention to the same word in the other text, minus the chance level."""
    columns = [place(words, layer, head, "equal") for layer, head in heads]
    excess = (flat(words, "equal") - flat(words, "expected"))[:, columns]
    values = zip(columns, _means(excess), strict=True)
    notes = [f"{name_of(words, column, 'equal')} {value:+.4f}" for column, value in values]
    return Estimand.from_block(excess, lambda mean: mean, *notes, clusters=clusters_of(words), extreme="least")


@quantity("equal-word-attention", unit="attention", words=SURFACE_WORDS, ablations=STSB_AND_RTE)
def equal_words(words: Measurement, ablations: tuple[Measurement, ...]) -> Estimand:
    """Return the attention to the same word in the other text minus the chance level, averaged over the top heads.

    Heads are ranked by the score without them, lowest first. The top heads have the lowest sum of ranks on two tasks.
    """
    ranks = sum(np.asarray(ablation.value("score")).ravel().argsort(kind="stable").argsort() for ablation in ablations)
    heads = np.argsort(ranks, kind="stable")[:TOP_HEADS]
    excess = flat(words, "equal") - flat(words, "expected")
    every = _means(excess)
    names = " and ".join(f"{name_of(words, int(head), 'equal')} {every[head]:+.4f}" for head in heads)
    share = 100 * float((every > 0).mean())
    notes = (f"most harmful on both tasks: {names}", f"{share:.0f} % of all heads are above chance")
    return Estimand.from_block(excess[:, heads], lambda mean: mean.mean(-1), *notes, clusters=clusters_of(words))


@quantity("figure-7-correlation", "published", unit="r", features=FEATURE_WEIGHTS)
def figure_7(features: Measurement) -> Estimand:
    """Return the correlation of the last layer's weights with K19's figure 7, minus the highest reference correlation.

    Features that occur in too few inputs are excluded.
    """
    from bertsecrets.measures.features import FIGURE_7_LABELS  # imports torch

    rows = _cls_row(features)
    frequent, notes = _frequent({kind: rows[kind] for kind in FIGURE_7_LABELS})
    figures = panels("fig7_CLS_last_layer", [FIGURE_7_LABELS[kind] for kind in frequent])
    estimand = likeness(features, np.hstack([rows[kind] for kind in frequent]), figures)
    return replace(estimand, notes=(*estimand.notes, *notes))


@quantity("relation-heads-diagonal", unit="percent", within=(0, 100), attention=Need("relations"), patterns=PATTERNS)
def relation_heads(
    attention: Measurement,
    patterns: Measurement,
    relations: OneOrMore[Relation] = DIAGONAL_RELATIONS,
    reading: Reading = "special",
) -> Estimand:
    """Find the best head for each relation, and return the smallest percentage of diagonal maps in any of these heads.

    The best head for a relation is the one with the most attention between words in this relation. A map counts as
    diagonal if it is classified as diagonal or vertical-diagonal with the given `reading`.
    """
    weights = np.hstack([flat(attention, name) for name in relations])
    predicted = flat(patterns, f"{reading}_predicted")
    diagonal = np.isin(predicted, [CLASSES.index(name) for name in DIAGONAL_CLASSES]).astype(np.float64)

    def by_relation(weight: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        by_head = weight.reshape(*weight.shape[:-1], len(relations), -1)
        best = _present(by_head).argmax(-1)
        absent = np.isnan(by_head).all(-1)
        return best, np.where(absent, np.nan, 100 * np.take_along_axis(share, best, axis=-1))

    heads, shares = by_relation(_means(weights), _means(diagonal))
    notes = [
        f"{name}: {name_of(attention, int(head), name)}, {share:.0f} % of its maps diagonal"
        for name, head, share in zip(relations, heads, shares, strict=True)
    ]
    statistic = lambda weight, share: by_relation(weight, share)[1]  # noqa: E731
    clusters = (clusters_of(attention), clusters_of(patterns))
    return Estimand((weights, diagonal), statistic, tuple(notes), clusters=clusters, extreme="least")
