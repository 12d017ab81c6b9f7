"""Attention to [CLS] and [SEP] (K19 section 4.4).

If an input has two [SEP]s, the kind `sep` is the larger of the two weights, and `sep_sum` is their sum.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from bertsecrets.claims.bootstrap import ratio
from bertsecrets.claims.estimand import Estimand, Extreme, Number, by_layer, clusters_of, flat
from bertsecrets.claims.quantities.likeness import likeness, panels
from bertsecrets.claims.quantities.pattern_shares import PATTERNS, PATTERNS_BEFORE
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.progress import counted
from bertsecrets.texts.published import ONE_SENTENCE_TASK, TWO_SENTENCE_TASKS
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

Kind = Literal["cls", "sep", "sep_sum"]
SPECIAL_TOKENS = Need("special-tokens")
STRIPED_CLASSES = ("vertical", "vertical-diagonal")


def _by_layer(special: Measurement, kind: Kind) -> Float[np.ndarray, "examples layers"]:
    if np.isnan(special.value(kind)).all():
        raise NotApplicableError(f"the model has no [{kind.removesuffix('_sum').upper()}]")
    return by_layer(special, kind)


@quantity("sep-growth", unit="attention", after=SPECIAL_TOKENS, before=Need("special-tokens", "against"))
def sep_growth(after: Measurement, before: Measurement, kind: Kind = "sep") -> Estimand:
    """Return how much fine-tuning increases the attention to [SEP] in the last two layers."""
    growth = _by_layer(after, kind) - _by_layer(before, kind)
    if growth.shape[1] < 3:
        raise NotApplicableError(
            f"the model has {counted(growth.shape[1], 'layer')}, so there are none before the last two"
        )
    return Estimand.from_block(growth, lambda mean: mean[..., -2:].mean(-1), clusters=clusters_of(after))


@quantity("depth-gap", unit="depth", special=SPECIAL_TOKENS)
def depth_gap(special: Measurement, kind: Kind = "sep") -> Estimand:
    """Return the depth of [SEP] attention minus that of [CLS] attention, as a fraction of the model's depth.

    Depth is the centre of mass over layers, from 0 (first layer) to 1 (last layer).
    """
    cls, sep = _by_layer(special, "cls"), _by_layer(special, kind)
    layers = cls.shape[1]
    if layers < 2:
        raise NotApplicableError(
            "the model has only one layer, so its layers cannot be divided into earlier and later ones"
        )
    depth = np.linspace(0, 1, layers)

    def gap(mean: np.ndarray) -> Number:
        to_cls, to_sep = mean[..., :layers], mean[..., layers:]
        return (to_sep @ depth) / to_sep.sum(-1) - (to_cls @ depth) / to_cls.sum(-1)

    return Estimand.from_block(np.hstack([cls, sep]), gap, clusters=clusters_of(special))


@quantity("heads-on-special-tokens", unit="percent", within=(0, 100), special=SPECIAL_TOKENS)
def heads_on_special(special: Measurement) -> Estimand:
    """Return the percentage of heads with more than half of their attention on [CLS] and all [SEP]s together."""
    return _of_special(special, lambda weights: 100 * (weights > 0.5).mean(-1))


@quantity("special-token-attention", unit="attention", within=(0, 1), special=SPECIAL_TOKENS)
def special_attention(special: Measurement) -> Estimand:
    """Return the attention to [CLS] and all [SEP]s together, averaged over heads."""
    return _of_special(special, lambda weights: weights.mean(-1))


def _of_special(special: Measurement, statistic: Callable[[np.ndarray], Number]) -> Estimand:
    """Compute a statistic from each head's attention to [CLS] and [SEP] together; a missing token counts as 0."""
    kinds = [flat(special, kind) for kind in ("cls", "sep_sum") if not np.isnan(special.value(kind)).all()]
    if not kinds:
        raise NotApplicableError("the model has neither [CLS] nor [SEP]")
    layers = np.sum(kinds, axis=0).reshape(len(kinds[0]), *np.shape(special.value("cls"))).mean(2)
    note = "from layer 1: " + ", ".join(f"{weight:.2f}" for weight in layers.mean(0))
    return Estimand.from_block(np.sum(kinds, axis=0), statistic, note, clusters=clusters_of(special))


@quantity("special-token-crossing", unit="attention", special=SPECIAL_TOKENS)
def crossing(special: Measurement) -> Estimand:
    """Return the smallest difference between attention to [CLS] and to [SEP] in layers 2 to 10, averaged over heads.

    The differences are [CLS] minus [SEP] in layers 2 and 3, and [SEP] minus [CLS] in layers 4 to 10. All are positive
    in K19's figure 6, on every task. The last two layers are not used: their differences are near 0 on some tasks.
    """
    cls, sep = _by_layer(special, "cls"), _by_layer(special, "sep")
    leads = (cls - sep)[:, 1:10]
    note = f"[CLS] minus [SEP], from layer 2: {', '.join(f'{lead:+.3f}' for lead in leads.mean(0))}"
    sign = np.where(np.arange(leads.shape[1]) < 2, 1.0, -1.0)
    return Estimand.from_block(leads * sign, lambda mean: mean, note, clusters=clusters_of(special), extreme="least")


@quantity(
    "sep-lead",
    unit="attention",
    one_sentence=Need("special-tokens", task=ONE_SENTENCE_TASK),
    two_sentences=Need("special-tokens", tasks=TWO_SENTENCE_TASKS, least=1),
)
def sep_lead(
    one_sentence: Measurement,
    two_sentences: tuple[Measurement, ...],
    kind: Kind = "sep",
    others: Literal["most", "mean"] = "most",
) -> Estimand:
    """Return the attention to [SEP], averaged over heads, on the one-sentence task minus that on two-sentence tasks.

    Args:
        others: Whether to subtract the largest of the two-sentence tasks' values (`most`) or their mean (`mean`).
    """
    tasks = (one_sentence, *two_sentences)
    blocks = tuple(_by_layer(special, kind).mean(1, keepdims=True) for special in tasks)

    def lead(of_one: np.ndarray, *of_two: np.ndarray) -> Number:
        on_two = np.concatenate(np.broadcast_arrays(*of_two), axis=-1)
        return of_one - on_two if others == "most" else of_one[..., 0] - on_two.mean(-1)

    titles = [TASKS[special.subject.task].title for special in tasks]
    note = ", ".join(f"{title} {block.mean():.3f}" for title, block in zip(titles, blocks, strict=True))
    extreme: Extreme | None = "least" if others == "most" else None
    return Estimand(blocks, lead, (note,), clusters=tuple(map(clusters_of, tasks)), extreme=extreme)


@quantity("stripes-on-special-tokens", unit="percent", within=(0, 100), special=SPECIAL_TOKENS, patterns=PATTERNS)
def stripes_on_special(special: Measurement, patterns: Measurement) -> Estimand:
    """Return the percentage of striped maps whose most attended token is [CLS] or [SEP] (K19 section 4.4).

    A map is striped if it is classified as vertical or vertical-diagonal with the reading `stripes`.
    """
    if np.isnan(special.value("brightest")).all():
        raise NotApplicableError("the model has neither [CLS] nor [SEP]")
    striped = _striped(patterns)
    block = np.stack([(striped * flat(special, "brightest")).mean(1), striped.mean(1)], axis=1)
    note = f"{100 * block[:, 1].mean():.0f} % of all maps have a stripe"
    return Estimand.from_block(block, _percent, note, clusters=clusters_of(special))


@quantity("stripes-from-pretraining", unit="percent", within=(0, 100), after=PATTERNS, before=PATTERNS_BEFORE)
def stripes_from_pretraining(after: Measurement, before: Measurement) -> Estimand:
    """Return the percentage of striped maps that are also striped in the pretrained model (K19 section 4.4).

    "Striped" is defined as in `stripes-on-special-tokens`. Both models are measured on the same examples.
    """
    tuned, plain = (_striped(patterns) for patterns in (after, before))
    block = np.stack([(tuned & plain).mean(1), tuned.mean(1)], axis=1)
    note = f"{100 * plain.mean():.0f} % of all maps before, {100 * tuned.mean():.0f} % after"
    return Estimand.from_block(block, _percent, note, clusters=clusters_of(after))


def _striped(patterns: Measurement) -> Bool[np.ndarray, "examples heads"]:
    return np.isin(flat(patterns, "stripes_predicted"), [CLASSES.index(name) for name in STRIPED_CLASSES])


def _percent(mean: Float[np.ndarray, "*any 2"]) -> Number:
    """Return the first number as a percentage of the second; NaN if the second is 0."""
    return 100 * ratio(mean[..., 0], mean[..., 1])


@quantity("figure-6-correlation", "published", unit="r", special=SPECIAL_TOKENS)
def figure_6(special: Measurement, kind: Literal["cls", "sep"]) -> Estimand:
    """Return the correlation of attention weights with K19's figure 6, minus the highest reference correlation."""
    _by_layer(special, kind)
    return likeness(special, flat(special, kind), panels(f"fig6_{kind.upper()}"))
