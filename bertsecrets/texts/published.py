"""Values published in K19 (read from its figures) and in P20 (computed from its results on five seeds).

K19 is the paper (Kovaleva et al. 2019). P20 is a later study by the same group (Prasanna et al. 2020).
"""

import json
import statistics
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from bertsecrets.settings import project_path
from bertsecrets.texts.tasks import TASKS

SEVEN_TASKS = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")  # table 1
ONE_SENTENCE_TASK = "sst2"
TWO_SENTENCE_TASKS = tuple(name for name in SEVEN_TASKS if name != ONE_SENTENCE_TASK)
FRAME_SENTENCES = 473  # section 4.2
# The digest of these sentences (`framenet.sentences_digest`).
FRAME_DIGEST = "917e142f535a18b215ae64150e088fa61977ceb5c8b96c4c906a0b45cef15fd0"
FRAME_HEADS = ((7, 6), (1, 2))  # (layer, head), counted from 1; section 4.2, figure 3
# The order of the bars in figure 2.
FIGURE_2_ORDER = ("heterogeneous", "block", "vertical-diagonal", "diagonal", "vertical")
HARMFUL_HEADS = ((4, 1), (2, 12))  # (layer, head), counted from 1; on both STS-B and RTE, section 4.6
ABLATION_BASELINES = {"mrpc": 88.2, "stsb": 89.0, "rte": 58.5}  # points, with all heads; figures 8 and 9
PAPERS_MODEL, PAPERS_HEADS = "bert-base-uncased", 144


P20_SEEDS = 5
Setting = Literal["scores", "scores_without_attention"]


@cache
def published_figures() -> dict[str, Any]:
    """Return the values published in K19, by name and task. Arrays have the axes [layer, head], counted from 0."""
    return _read("figures.json")


@cache
def p20() -> dict[str, Any]:
    """Return the results published in P20, by task.

    The keys are `scores`, `scores_without_attention`, `scores_of_pruned_weights`, `pattern_shares`,
    `pattern_shares_pretrained`, and `surviving_heads`.
    """
    return _read("p20.json")


def p20_score(task_name: str, metric: str, setting: Setting = "scores") -> tuple[float, float] | None:
    """Return the mean and standard deviation of P20's scores (in points), or None if they are not published.

    Args:
        setting: Selects either intact models, or models with uniform attention in every layer.

    >>> p20_score("rte", "accuracy")
    (63.249, 2.772)
    """
    mean_and_std = p20()[setting].get(task_name, {}).get(metric)
    return None if mean_and_std is None else (round(100 * mean_and_std[0], 3), round(100 * mean_and_std[1], 3))


def p20_shares(task_name: str, *, pretrained: bool = False) -> dict[str, float]:
    """Return the percentage of heads in each pattern class, as published in P20 for fine-tuned or pretrained models.

    >>> p20_shares("rte")["vertical"], p20_shares("rte", pretrained=True)["vertical"]
    (12.5, 16.8)
    """
    return p20()["pattern_shares_pretrained" if pretrained else "pattern_shares"][task_name]


def figure_2_share(task_name: str, classes: Iterable[str]) -> float:
    """Return the percentage of attention maps in the given pattern classes, according to K19's figure 2.

    >>> figure_2_share("rte", ["heterogeneous", "block"])
    38.9
    """
    figure = published_figures()["fig2"]
    shares = dict(zip(FIGURE_2_ORDER, figure[TASKS[task_name].folder], strict=True))
    return round(sum(shares[name] for name in classes), 1)


def published_gains(task_name: str, figure: Literal["fig8_head", "fig9_layer"]) -> Float[np.ndarray, "layers ..."]:
    """Return the gain from disabling each head or each layer, in points, according to K19's figures 8 and 9.

    Gains are relative to the published score with all heads. If no such score was published, gains are relative to the
    median of figure 8.

    >>> float(published_gains("rte", "fig9_layer")[0].round(1))
    3.2
    """
    folder = TASKS[task_name].folder
    heads, scores = (100 * np.array(published_figures()[name][folder]) for name in ("fig8_head", figure))
    return scores - ABLATION_BASELINES.get(task_name, float(np.median(heads)))


def p20_share_changes(task_name: str) -> dict[str, float]:
    """Return how P20's fine-tuning changed the share of heads in each pattern class, in percentage points."""
    before = p20_shares(task_name, pretrained=True)
    return {name: round(share - before[name], 1) for name, share in p20_shares(task_name).items()}


def p20_pruned_scores(task_name: str) -> dict[float, float] | None:
    """Return P20's accuracy in points, by fraction of weights pruned by magnitude, or None if it is not published.

    >>> p20_pruned_scores("rte")
    {0.2: 62.4, 0.5: 58.6, 0.7: 49.0}
    """
    scores = p20()["scores_of_pruned_weights"].get(task_name)
    return None if scores is None else {float(share): round(100 * score, 1) for share, score in scores.items()}


def p20_heads_left(task_name: str) -> tuple[float, float]:
    """Return the mean and the standard deviation, across seeds, of the percentage of heads that survive P20's pruning.

    >>> p20_heads_left("rte")
    (33.889, 17.392)
    """
    by_seed = p20()["surviving_heads"][task_name].values()
    shares = [100 * sum(row.count("1") for row in grid) / sum(map(len, grid)) for grid in by_seed]
    return round(statistics.mean(shares), 3), round(statistics.stdev(shares), 3)


def _read(name: str) -> dict[str, Any]:
    return json.loads((project_path("expected") / name).read_text(encoding="utf-8"))
