"""Ground truth of the simulated model, from K19's published values and, where nothing was published, assumptions.

Every value has two versions: the published value, and a counterpart without the effect (`AGAINST`). A world
interpolates between them, so that the true value can equal the published value or the claim's threshold, or lie beyond
it. `confronted` lists the assumptions.
"""

from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Float

from bertsecrets.texts.published import (
    FIGURE_2_ORDER,
    SEVEN_TASKS,
    figure_2_share,
    p20_score,
    p20_shares,
    published_figures,
    published_gains,
)
from bertsecrets.texts.tasks import TASKS

Grid = Float[np.ndarray, "layers heads"]
WORDS = {"noun": "NOUN", "verb": "VERB", "pronoun": "PRON", "subject": "SUBJ", "object": "OBJ", "negation": "NEG"}
SHAPE = (12, 12)
LAST = np.arange(12)[:, None] >= 10
READING_SHIFT = 0.08  # fraction of maps that are heterogeneous under `special` and vertical under `stripes`

# Counterpart of a claim, by quantity. For all other quantities, the counterpart is a model without any effect.
AGAINST = {
    "last-two-layers": "reversed",
    "depth-gap": "reversed",
    "cls-row-lead": "reversed",
    "heads-little-changed": "lowered",
    "feature-ratio": "lowered",
    "named-heads-gain": "lowered",
    "own-frame-heads-gain": "lowered",
    "score-over-majority": "lowered",
    "class-share": "lowered",
    "figure-2-rank-correlation": "another task's",
    "figure-5-correlation": "another task's",
    "figure-6-correlation": "another task's",
    "figure-7-correlation": "another task's",
    "figure-8-correlation": "another task's",
}


def _panel(name: str, task: str) -> np.ndarray:
    return np.array(published_figures()[name][TASKS[task].folder], dtype=np.float64)


def _notebook(kind: str, when: str) -> Grid:
    return np.array(published_figures()["notebook_QQP_maps"][kind][when], dtype=np.float64)


def _other(task: str) -> str:
    """Return the next of the seven tasks, for use as a different task."""
    return SEVEN_TASKS[(SEVEN_TASKS.index(task) + 1) % len(SEVEN_TASKS)]


CROPPED = 0.6  # change of cropped maps, relative to the change of padded maps


def similarity(task: str, against: str) -> tuple[Grid, Grid]:
    """Return the similarity of each head's maps to the pretrained maps (figure 5), as published and as counterpart."""
    own = _panel("fig5_cosine", task)
    if against == "another task's":
        return own, _panel("fig5_cosine", _other(task))
    if against == "reversed":
        return own, own[::-1]
    if against == "lowered":
        return own, own - 0.5
    return own, np.full(SHAPE, own.mean())


def all_separators(task: str) -> float:
    """Return the attention to all [SEP]s of an input, relative to that to the more attended one."""
    return 1.0 if task == "sst2" else 2.0


def special(task: str, fine_tuned: bool, against: str) -> dict[str, tuple[Grid, Grid]]:
    """Return the attention to [CLS] and [SEP] (figure 6), as published and as counterpart."""
    cls, sep = (_panel(f"fig6_{kind}", task) for kind in ("CLS", "SEP"))
    if task == "qqp":
        before_cls, before = _notebook("CLS", "base"), _notebook("SEP", "base")
    else:
        before_cls, before = cls, sep - 0.03 * LAST
    levels = {}
    for kind, after, start, times, flat in (
        ("cls", cls, before_cls, 1.0, 0.1),
        ("sep", sep, before, 1.0, 0.25),
        ("sep_sum", sep, before, all_separators(task), 0.45),
    ):
        own = times * (after if fine_tuned else start)
        if against == "reversed":
            levels[kind] = own, own[::-1]
        elif against == "another task's" and fine_tuned:
            levels[kind] = own, times * _panel(f"fig6_{'CLS' if kind == 'cls' else 'SEP'}", _other(task))
        else:  # no growth over layers, and the same on every task
            levels[kind] = own, np.full(SHAPE, flat)
    return levels


def words(task: str, fine_tuned: bool, against: str) -> dict[str, tuple[Grid, Grid]]:
    """Return the attention to types of words and to [CLS] and [SEP], as published and as counterpart."""
    when = "finetuned" if fine_tuned else "base"
    levels = {}
    for kind, name in WORDS.items():
        own = _notebook(name, when)
        if kind == "negation" and task == "qnli" and fine_tuned:
            own = own + 0.03 * (own == own.max())
        levels[kind] = own, own if against == "lowered" else _notebook(name, "base")
    for kind in ("cls", "sep"):
        own = _notebook(kind.upper(), when)
        levels[kind] = own, 0.2 * own if against == "lowered" else own
    return levels


def cls_row(task: str, against: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the attention of the last layer's [CLS] to each type (figure 7), as published and as counterpart."""
    names = {**WORDS, "cls": "CLS", "sep": "SEP"}

    def of(task: str) -> dict[str, np.ndarray]:
        panel = {kind: np.array(_figure_7(task)[name]) for kind, name in names.items()}
        best = max(panel.values(), key=np.mean)
        leads = task in ("stsb", "rte", "qnli")
        return {**panel, "punctuation": best + 0.03 if leads else 0.5 * panel["sep"]}

    own, other = of(task), of(_other(task))
    if against == "another task's":
        return {kind: (own[kind], other[kind]) for kind in own}
    order = sorted(own, key=lambda kind: -own[kind].mean())
    turned = {order[0]: order[1], order[1]: order[0]}
    if "sep" not in turned:
        turned = {order[0]: "sep", "sep": order[0]}
    return {kind: (own[kind], own[turned.get(kind, kind)]) for kind in own}


@cache
def _figure_7(task: str) -> dict[str, list[float]]:
    return published_figures()["fig7_CLS_last_layer"][TASKS[task].folder]


def baseline(task: str) -> float:
    """Return the score with all heads, in points of the metric of figure 8."""
    return float((100 * _panel("fig8_head", task) - published_gains(task, "fig8_head")).mean())


def gains(task: str, measure: str, against: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain from disabling each head (figure 8) or layer (figure 9) in points, published and counterpart."""
    figure: Literal["fig8_head", "fig9_layer"] = "fig8_head" if measure == "head-ablation" else "fig9_layer"
    own = published_gains(task, figure)
    if against == "another task's":
        other = published_gains(_other(task), figure)
        return own, own.mean() + own.std() * (other - other.mean()) / other.std()
    return own, np.full(own.shape, -2.0 if against == "lowered" else 0.0)


def gain_spread(task: str, measure: str) -> tuple[float, float]:
    """Return two standard deviations over seeds, in points: of the shift that all gains share, and of single gains.

    Figures 8 and 9 show one run, so the spread over their heads or layers includes the seed's effect, and is an upper
    bound for that effect.
    """
    if measure == "layer-ablation":
        in_figure = float(published_gains(task, "fig9_layer").std())
        return 0.0, min(in_figure, {"rte": 2.0, "mrpc": 1.0}.get(task, max(0.5, in_figure / 2)))
    in_figure = float(published_gains(task, "fig8_head").std())
    single = {"mrpc": 0.5, "stsb": 0.5, "sst2": 0.4}.get(task, max(0.2, in_figure / 2))
    return {"rte": 0.5}.get(task, 0.2), min(in_figure, single)


def shares(task: str, reading: str, fine_tuned: bool, against: str) -> dict[str, tuple[float, float]]:
    """Return the share of each class, published (figure 2, less P20's change if pretrained) and counterpart."""
    own = {name: figure_2_share(task, [name]) / 100 for name in FIGURE_2_ORDER}
    if not fine_tuned:
        after, before = p20_shares(task), p20_shares(task, pretrained=True)
        own = {name: max(0.0, share - (after[name] - before[name]) / 100) for name, share in own.items()}
    if reading == "stripes":
        moved = min(READING_SHIFT, own["heterogeneous"])
        own["heterogeneous"] -= moved
        own["vertical"] += moved
    total = sum(own.values())
    if against == "another task's":
        of_other = shares(_other(task), reading, fine_tuned, "nothing")
        return {name: (share / total, of_other[name][0]) for name, share in own.items()}
    most, others = (0.8, 0.05) if against == "lowered" else (0.2, 0.2)
    return {name: (share / total, most if name == "heterogeneous" else others) for name, share in own.items()}


def on_special(task: str) -> tuple[float, float]:
    """Return the fraction of maps with a stripe whose brightest column is [CLS] or [SEP]."""
    own = shares(task, "stripes", True, "nothing")
    return 1 - READING_SHIFT / (own["vertical"][0] + own["vertical-diagonal"][0]), 0.2


def map_seeds(task: str) -> float:
    """Return how much attention maps differ between seeds on a task, relative to RTE."""
    return {"rte": 1.0, "sst2": 1.0, "mrpc": 2.5, "stsb": 2.5}.get(task, 2.0)


STEADY, ACROSS_TASKS, DIAGONAL = (0.75, 0.3), (0.7, 0.3), (0.9, 0.3)  # published (assumed) and counterpart

# ---------------------------------------------------------------------- scores

TABLE_1 = {  # untrained, random, pretrained: accuracy, or Pearson's correlation
    "mrpc": (31.6, 68.38, 82.3), "stsb": (33.1, 2.9, 82.7), "sst2": (49.1, 80.5, 92.0), "qqp": (60.9, 63.2, 78.6),
    "rte": (52.7, 52.7, 64.6), "qnli": (52.8, 49.5, 84.4), "mnli": (31.7, 61.0, 78.6),
}  # fmt: skip
RIGHT_BY_CLASS = {  # percentage of correct answers in each class, for tasks with F1 in table 1
    ("mrpc", "pretrained"): (57.7, 93.7), ("qqp", "pretrained"): (92.7, 54.5),
    ("qqp", "untrained"): (96.4, 0.01), ("qqp", "frozen"): (96.4, 0.01),
}  # fmt: skip
CONSTANT = {("mrpc", "untrained"): 0, ("mrpc", "random"): 1, ("sst2", "untrained"): 0, ("qqp", "random"): 0,
            ("rte", "untrained"): 0, ("rte", "random"): 0, ("qnli", "random"): 0}  # fmt: skip
CONSTANT |= {(task, "frozen"): answer for (task, column), answer in CONSTANT.items() if column == "untrained"}
# Fractions of seeds with a constant answer.
CONSTANT_SHARES = {("mrpc", "frozen"): 1.0, ("mrpc", "random"): 0.25, ("rte", "random"): 0.1}
UNTRAINED_CONSTANT = 0.5  # fraction of untrained classifiers, if table 1 has the score of a constant answer
# Percentage of correct answers in the class that a model nearly always predicts, and in other classes.
NEARLY_CONSTANT = 99.0, 1.5
UNTRAINED_SPREAD = {"stsb": 7.0}  # for other tasks, answers are random


def score(task: str, initialisation: str) -> float:
    """Return table 1's score. A frozen encoder has the score of the untrained column."""
    column = {"untrained": 0, "frozen": 0, "random": 1, "pretrained": 2}[initialisation]
    return TABLE_1[task][column]


def constant_share(task: str, initialisation: str) -> float:
    """Return the fraction of seeds that give the same answer to every row."""
    if initialisation == "untrained":
        return UNTRAINED_CONSTANT if (task, initialisation) in CONSTANT else 0.0
    return CONSTANT_SHARES.get((task, initialisation), 0.0)


def right_by_class(task: str, initialisation: str) -> tuple[float, ...] | None:
    """Return the percentage of correct answers in each class, or None if all classes have the same."""
    if (answer := CONSTANT.get((task, initialisation))) is None:
        return RIGHT_BY_CLASS.get((task, initialisation))
    return tuple(NEARLY_CONSTANT[place != answer] for place in range(len(TASKS[task].labels)))


def p20(task: str) -> tuple[float, float]:
    """Return P20's accuracy or correlation, and its standard deviation over seeds, in points."""
    score = p20_score(task, "pearson" if TASKS[task].regression else "accuracy")
    assert score is not None
    return score


RANDOM_SPREAD = {"rte": 1.6, "mrpc": 1.1, "sst2": 1.5}
FROZEN_SPREAD = {"rte": 2.0, "sst2": 0.6}


def score_spread(task: str, initialisation: str) -> float:
    """Return the standard deviation of a score over seeds, in points."""
    if initialisation == "untrained":
        return UNTRAINED_SPREAD.get(task, 1.0)
    if initialisation == "random":
        return RANDOM_SPREAD.get(task, 1.0)
    return FROZEN_SPREAD.get(task, 0.5) if initialisation == "frozen" else p20(task)[1]


def churn(task: str) -> float:
    """Return the fraction of the variance of answers that is due to the seed."""
    return {"rte": 0.1}.get(task, 0.06)


def cased_loss(task: str) -> tuple[float, float]:
    """Return the loss from cased tokenization and its standard deviation over seeds, in points."""
    spread = {"mrpc": 0.8, "rte": 1.9, "stsb": 0.9, "sst2": 0.0}.get(task, 0.3)
    return (0.0 if task == "sst2" else p20(task)[0] - score(task, "pretrained")), spread
