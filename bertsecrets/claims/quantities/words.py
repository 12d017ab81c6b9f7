"""Attention to linguistic features (K19 4.4) and along relations (4.5). Inputs without a feature are left out."""

from collections.abc import Sequence

import numpy as np

from bertsecrets.claims.estimand import NotApplicableError, Number, Reading, column_means, flat
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.claims.quantities.ablation import CHOOSING, JUDGING
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


def _means(block: np.ndarray) -> np.ndarray:
    return column_means(block, np.ones((1, len(block))))[0]


def _head(found: Measurement, name: str, column: int) -> str:
    layer, head = np.unravel_index(column, np.shape(found.values[name]))
    return f"layer {int(layer) + 1} head {int(head) + 1}"


def _present(means: np.ndarray) -> np.ndarray:
    """Means with what no example has out of the way of a maximum."""
    return np.where(np.isnan(means), -np.inf, means)


def best_growth(found: Sequence[Measurement], task_name: str, kinds: Sequence[str]) -> Reading:
    """The largest per-head increase over the pretrained model of attention to a kind; of several kinds the least.

    The largest of so many heads is positive by luck, so it is chosen on every other example and judged on the rest.
    """
    columns, notes = [], []
    for kind in kinds:
        growth = flat(found[0], kind) - flat(found[1], kind)
        chosen = int(_present(_means(growth[CHOOSING])).argmax())
        columns.append(growth[JUDGING, chosen])
        naive = float(_present(_means(growth)).max())
        present = int((~np.isnan(growth).any(1)).sum())
        notes.append(f"{kind} {_head(found[0], kind, chosen)}, naive best {naive:+.4f}, {present} inputs")
    return Reading.of(np.stack(columns, axis=1), lambda mean: mean.min(-1), *notes)


def best_against_special(found: Sequence[Measurement], task_name: str) -> Reading:
    """Attention to the most attended linguistic feature over that to the less attended of [CLS] and [SEP].

    Each taken in its best head.
    """
    kinds = ("cls", "sep", *LINGUISTIC)
    for kind in kinds[:2]:
        if np.isnan(found[0].values[kind]).all():
            raise NotApplicableError(f"the model has no [{kind.upper()}]")
    block = np.hstack([flat(found[0], kind) for kind in kinds])

    def best(mean: np.ndarray) -> np.ndarray:
        return _present(mean.reshape(*mean.shape[:-1], len(kinds), -1)).max(-1)

    def ratio(mean: np.ndarray) -> Number:
        each = best(mean)
        return each[..., 2:].max(-1) / each[..., :2].min(-1)

    each = zip(kinds, best(_means(block)), strict=True)
    return Reading.of(block, ratio, "best heads: " + ", ".join(f"{kind} {value:.3f}" for kind, value in each))


def _cls_row(found: Measurement) -> dict[str, np.ndarray]:
    """The last layer's [CLS] row by kind, [example, head]."""
    rows = {name.removeprefix("cls_row_"): found.samples[name] for name in found.samples if name.startswith("cls_row_")}
    if not rows or np.isnan(rows["cls"]).all() or np.isnan(rows["sep"]).all():
        raise NotApplicableError("the model has no [CLS] or no [SEP]")
    return {kind: row.astype(np.float64) for kind, row in rows.items()}


def cls_row_lead(found: Sequence[Measurement], task_name: str, kind: str = "sep") -> Reading:
    """In the last layer, the [CLS] row's weight on a kind (mean over heads) minus that on the best other kind.

    Kinds are K19's features, [CLS] and [SEP], and punctuation.
    """
    rows = _cls_row(found[0])
    if kind not in rows:
        raise NotApplicableError(f"{kind} is not among the features {', '.join(rows)}")
    names = [kind, *(name for name in rows if name != kind)]
    block = np.stack([rows[name].mean(1) for name in names], axis=1)
    shown = zip(names, _means(block), strict=True)
    note = ", ".join(f"{name} {value:.3f}" for name, value in sorted(shown, key=lambda one: -np.nan_to_num(one[1])))
    return Reading.of(block, lambda mean: mean[..., 0] - _present(mean[..., 1:]).max(-1), note)


def figure_7(found: Sequence[Measurement], task_name: str, ranks: bool = False) -> Reading:
    """Correlation with figure 7, over its eight features and all heads of the last layer."""
    rows = _cls_row(found[0])
    panel = published_figures()["fig7_CLS_last_layer"][TASKS[task_name].folder]
    block = np.hstack([rows[kind] for kind in FIGURE_7.values()])
    return likeness(block, np.concatenate([panel[name] for name in FIGURE_7]).astype(np.float64), ranks)


def relation_heads(found: Sequence[Measurement], task_name: str, relations: Sequence[str] = RELATIONS) -> Reading:
    """How much of a diagonal head the best head of each relation is: the share of its maps in the diagonal classes.

    In percent; of the relations the smallest.
    """
    weights = np.hstack([flat(found[0], name) for name in relations])
    diagonal = np.isin(flat(found[1], "predicted"), [CLASSES.index(name) for name in DIAGONAL]).astype(np.float64)

    def each(weight: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        by_relation = weight.reshape(*weight.shape[:-1], len(relations), -1)
        best = _present(by_relation).argmax(-1)
        absent = np.isnan(by_relation).all(-1)
        return best, np.where(absent, np.nan, 100 * np.take_along_axis(share, best, axis=-1))

    heads, shares = each(_means(weights), _means(diagonal))
    notes = [
        f"{name}: {_head(found[0], name, int(head))}, {share:.0f} % of its maps diagonal"
        for name, head, share in zip(relations, heads, shares, strict=True)
    ]
    return Reading((weights, diagonal), lambda weight, share: each(weight, share)[1].min(-1), tuple(notes))
