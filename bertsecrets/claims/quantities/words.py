"""Attention to linguistic features (K19 section 4.4) and along relations (4.5); inputs without them are left out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import column_means
from bertsecrets.claims.estimand import CHOOSING, JUDGING, Estimand, Number, flat
from bertsecrets.claims.heads import name_of
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

LINGUISTIC = ("noun", "verb", "pronoun", "subject", "object", "negation")
FIGURE_7 = {
    "PRON": "pronoun", "NOUN": "noun", "VERB": "verb", "OBJ": "object", "SUBJ": "subject", "NEG": "negation",
    "CLS": "cls", "SEP": "sep",
}  # fmt: skip
RELATIONS = ("verb_subject", "noun_pronoun")
DIAGONAL = ("diagonal", "vertical-diagonal")
FEATURES = Need("features")


def _means(block: Float[np.ndarray, "examples k"]) -> Float[np.ndarray, " k"]:
    return column_means(block)[0]


def _present(means: np.ndarray) -> np.ndarray:
    """Return means with NaN replaced by minus infinity, so that a maximum ignores it."""
    return np.where(np.isnan(means), -np.inf, means)


@quantity("best-feature-growth", unit="attention", after=FEATURES, before=Need("features", "against"))
def best_growth(after: Measurement, before: Measurement, kinds: Sequence[str]) -> Estimand:
    """Return the largest increase, over heads, of attention to a kind of word; the smallest of several kinds.

    The increase is over the pretrained model. The largest of many heads would be positive by luck, so the head is
    chosen on every other example and judged on the rest.
    """
    columns, notes = [], []
    for kind in kinds:
        growth = flat(after, kind) - flat(before, kind)
        chosen = int(_present(_means(growth[CHOOSING])).argmax())
        columns.append(growth[JUDGING, chosen])
        naive = float(_present(_means(growth)).max())
        present = int((~np.isnan(growth).any(1)).sum())
        notes.append(f"{kind} {name_of(after, chosen, kind)}, naive best {naive:+.4f}, {present} inputs")
    return replace(Estimand.of(np.stack(columns, axis=1), lambda mean: mean, *notes), extreme="least")


@quantity("feature-ratio", unit="ratio", features=FEATURES)
def best_against_special(features: Measurement) -> Estimand:
    """Return attention to the most attended linguistic feature divided by that to the less attended of [CLS] and [SEP].

    Each is taken in the head that attends to it most.
    """
    kinds = ("cls", "sep", *LINGUISTIC)
    for kind in kinds[:2]:
        if np.isnan(features.value(kind)).all():
            raise NotApplicableError(f"the model has no [{kind.upper()}]")
    block = np.hstack([flat(features, kind) for kind in kinds])

    def best(mean: np.ndarray) -> np.ndarray:
        return _present(mean.reshape(*mean.shape[:-1], len(kinds), -1)).max(-1)

    def ratio(mean: np.ndarray) -> Number:
        weights = best(mean)
        return weights[..., 2:].max(-1) / weights[..., :2].min(-1)

    by_kind = zip(kinds, best(_means(block)), strict=True)
    return Estimand.of(block, ratio, "best heads: " + ", ".join(f"{kind} {weight:.3f}" for kind, weight in by_kind))


def _cls_row(features: Measurement) -> dict[str, Float[np.ndarray, "examples heads"]]:
    """Return the weights in the last layer's [CLS] row, by kind of token."""
    prefix = "cls_row_"
    rows = {name.removeprefix(prefix): row for name, row in features.samples.items() if name.startswith(prefix)}
    if not rows or any(np.isnan(features.sample(prefix + kind)).all() for kind in ("cls", "sep")):
        raise NotApplicableError("the model has no [CLS] or no [SEP]")
    return {kind: row.astype(np.float64) for kind, row in rows.items()}


@quantity("cls-row-lead", unit="attention", features=FEATURES)
def cls_row_lead(features: Measurement, kind: str = "sep") -> Estimand:
    """Return the last layer's [CLS] row's weight on a kind (mean over heads) minus that on the best other kind.

    Kinds are K19's features, [CLS], [SEP] and punctuation.
    """
    rows = _cls_row(features)
    if kind not in rows:
        raise NotApplicableError(f"{kind} is not among the features {', '.join(rows)}")
    names = [kind, *(name for name in rows if name != kind)]
    block = np.stack([rows[name].mean(1) for name in names], axis=1)
    by_kind = sorted(zip(names, _means(block), strict=True), key=lambda pair: -np.nan_to_num(pair[1]))
    note = ", ".join(f"{name} {weight:.3f}" for name, weight in by_kind)
    return Estimand.of(block, lambda mean: mean[..., 0] - _present(mean[..., 1:]).max(-1), note)


@quantity("figure-7-correlation", unit="r", features=FEATURES)
def figure_7(features: Measurement, ranks: bool = False) -> Estimand:
    """Return the correlation with K19's figure 7, over its eight features and all heads of the last layer."""
    rows = _cls_row(features)
    panel = published_figures()["fig7_CLS_last_layer"][TASKS[features.subject.task].folder]
    block = np.hstack([rows[kind] for kind in FIGURE_7.values()])
    return likeness(block, np.concatenate([panel[name] for name in FIGURE_7]).astype(np.float64), ranks)


@quantity("relation-heads-diagonal", unit="percent", attention=Need("relations"), patterns=Need("patterns"))
def relation_heads(attention: Measurement, patterns: Measurement, relations: Sequence[str] = RELATIONS) -> Estimand:
    """Return the percentage of diagonal maps of the head that is best at a relation; the smallest over the relations.

    Diagonal maps are those of the classes diagonal and vertical-diagonal.
    """
    weights = np.hstack([flat(attention, name) for name in relations])
    diagonal = np.isin(flat(patterns, "predicted"), [CLASSES.index(name) for name in DIAGONAL]).astype(np.float64)

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
    return Estimand((weights, diagonal), statistic, tuple(notes), extreme="least")
