"""Scores of a model as more and more of its weights or heads are pruned (claims I1 and I4).

A `share` is the pruned fraction of the layers' weights: 0.1, 0.2, ..., 0.7.
"""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import Field

from bertsecrets.claims.estimand import Estimand, Number, clusters_of
from bertsecrets.claims.quantities.task_scores import in_points, metric_name, score_range
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.texts.metrics import moments
from bertsecrets.types import Measurement

WEIGHT_PRUNING = Need("weight-pruning")
REQUIRED_SCORE_SHARE = 0.9  # fraction of the full model's score that must remain after every step
Share = Annotated[float, Field(ge=0.1, le=0.7, multiple_of=0.1)]
Curve = Callable[[np.ndarray], np.ndarray]


def _curve(pruning: Measurement) -> tuple[Float[np.ndarray, "examples k"], Curve]:
    """Return a block of moments and a function that turns its means into scores in points, the full model first."""
    metric, target = metric_name(pruning), pruning.sample("target")
    answers = [pruning.sample("baseline_predicted"), *pruning.sample("predicted")]
    parts = [moments(metric, predicted, target) for predicted in answers]
    points = in_points(metric)
    return np.hstack(parts), lambda mean: np.asarray(points(mean.reshape(*mean.shape[:-1], len(parts), -1)))


def _place(pruning: Measurement, share: Share) -> int:
    """Return the index of the score with this fraction of the weights pruned. Index 0 is the full model."""
    return 1 + int(np.abs(np.asarray(pruning.value("share")) - share).argmin())


@quantity("pruned-score", unit="points", inherits=False, within=score_range, pruning=WEIGHT_PRUNING)
def pruned_score(pruning: Measurement, share: Share) -> Estimand:
    """Return accuracy, or Pearson's correlation, with a given fraction of weights (the smallest ones) set to 0."""
    block, scores = _curve(pruning)
    place = _place(pruning, share)
    note = f"{float(scores(block.mean(0))[0]):.1f} with all weights"
    return Estimand.from_block(block, lambda mean: scores(mean)[..., place], note, clusters=clusters_of(pruning))


@quantity("pruning-loss", unit="points", inherits=False, pruning=WEIGHT_PRUNING)
def pruning_loss(pruning: Measurement, share: Share) -> Estimand:
    """Return the full model's score minus its score with a given fraction of weights (the smallest ones) set to 0."""
    block, scores = _curve(pruning)
    place = _place(pruning, share)

    def loss(mean: np.ndarray) -> Number:
        points = scores(mean)
        return points[..., 0] - points[..., place]

    by_share = ", ".join(f"{value:.1f}" for value in scores(block.mean(0)))
    return Estimand.from_block(block, loss, f"from 0 to 70 % pruned: {by_share}", clusters=clusters_of(pruning))


@quantity("heads-left", unit="percent", inherits=False, within=(0, 100), pruning=Need("head-pruning"))
def heads_left(pruning: Measurement) -> Estimand:
    """Return the percentage of heads left at the last step before the score falls below 90% of its original value.

    Each step prunes a tenth of all heads, by gradient importance. Resampling does not change the order of the heads.
    """
    block, scores = _curve(pruning)
    heads = np.asarray(pruning.value("removed")).size
    left = 100 * np.array([heads, *pruning.value("left")]) / heads

    def percent(mean: np.ndarray) -> Number:
        points = scores(mean)
        enough = np.cumprod(points >= REQUIRED_SCORE_SHARE * points[..., :1], axis=-1).sum(-1)
        return left[np.maximum(enough, 1) - 1]

    curve = ", ".join(f"{share:.0f} % {value:.1f}" for share, value in zip(left, scores(block.mean(0)), strict=True))
    return Estimand.from_block(block, percent, f"score by heads left: {curve}", clusters=clusters_of(pruning))
