"""The quantities of the Primer (claims I1 to I9): pruning, vectors of random words, and breadth and likeness of heads.

Pruning measures scores as more and more of a model's weights or heads are pruned. A `share` is the pruned fraction of
the layers' weights: 0.1, 0.2, ..., 0.7.
"""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import Field

from bertsecrets.claims.bootstrap import column_means, ratio
from bertsecrets.claims.estimand import Estimand, Number, by_layer, clusters_of, lower_minus_upper
from bertsecrets.claims.quantities.task_scores import in_points, metric_name, score_range
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.metrics import moments
from bertsecrets.types import Measurement

WEIGHT_PRUNING, HEAD_STATISTICS = Need("weight-pruning"), Need("head-statistics")
VECTORS, VECTORS_BEFORE = Need("anisotropy"), Need("anisotropy", "against")
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


def _layers(vectors: Measurement) -> tuple[Float[np.ndarray, "pairs layers"], str]:
    """Return the cosine of each pair of rows in each layer, excluding the embeddings, and a note with the means."""
    block = vectors.sample("cosine").astype(np.float64)
    block = block[~np.isnan(block).any(1), 1:]
    centred = column_means(vectors.sample("centred").astype(np.float64))[0][1:]
    curve = ", ".join(f"{value:.2f}" for value in block.mean(0))
    return block, f"from layer 1: {curve}; at most {np.abs(centred).max():.3f} after subtracting the mean vector"


@quantity("anisotropy", unit="cosine", within=(-1, 1), vectors=VECTORS)
def anisotropy(vectors: Measurement) -> Estimand:
    """Return the mean cosine of two random words' vectors, averaged over all layers."""
    block, note = _layers(vectors)
    return Estimand.from_block(block, lambda mean: mean.mean(-1), note)


@quantity("anisotropy-rise", unit="cosine", vectors=VECTORS)
def anisotropy_rise(vectors: Measurement) -> Estimand:
    """Return how much the mean cosine of random words' vectors rises from the lower to the upper half of the layers."""
    block, note = _layers(vectors)
    half = block.shape[1] // 2
    if not half:
        raise NotApplicableError("a model with one layer has no upper half")
    return Estimand.from_block(block, lambda mean: mean[..., -half:].mean(-1) - mean[..., :half].mean(-1), note)


@quantity("geometry-correlation", unit="r", within=(-1, 1), after=VECTORS, before=VECTORS_BEFORE)
def geometry(after: Measurement, before: Measurement) -> Estimand:
    """Return the correlation between rows' cosines before and after fine-tuning, averaged over the upper layers.

    The correlation is over pairs of rows. The mean vector is subtracted before the cosines are computed.
    """
    block, _ = _pairs(after, before)
    layers = block.shape[1] // 2
    half = layers // 2
    if not half:
        raise NotApplicableError("a model with one layer has no upper half")
    tuned, plain = block[:, :layers], block[:, layers:]
    products = np.hstack([tuned, plain, tuned**2, plain**2, tuned * plain])

    def correlations(mean: np.ndarray) -> np.ndarray:
        x, y, xx, yy, xy = np.split(mean, 5, axis=-1)
        return ratio(xy - x * y, np.sqrt(np.clip(xx - x**2, 0, None) * np.clip(yy - y**2, 0, None)))

    note = ", ".join(f"{value:.2f}" for value in correlations(products.mean(0)))
    return Estimand.from_block(products, lambda mean: correlations(mean)[..., -half:].mean(-1), f"from layer 1: {note}")


@quantity("class-separation-growth", unit="cosine", within=(-4, 4), after=VECTORS, before=VECTORS_BEFORE)
def class_separation(after: Measurement, before: Measurement) -> Estimand:
    """Return how much fine-tuning increases the separation of classes in the last layer.

    The separation is the mean cosine of rows of the same class minus the mean cosine of rows of different classes. The
    mean vector is subtracted before the cosines are computed.
    """
    block, same = _pairs(after, before)
    if np.isnan(same).any():
        raise NotApplicableError("the task is a regression task, so it has no classes")
    layers = block.shape[1] // 2
    growth = block[:, layers - 1] - block[:, -1]
    by_class = np.stack([np.where(same == 1, growth, np.nan), np.where(same == 0, growth, np.nan)], axis=1)
    within, between = column_means(by_class)[0]
    note = f"cosines within classes change by {within:+.3f}, between classes by {between:+.3f}"
    return Estimand.from_block(by_class, lambda mean: mean[..., 0] - mean[..., 1], note)


def _pairs(after: Measurement, before: Measurement) -> tuple[Float[np.ndarray, "pairs layers2"], np.ndarray]:
    """Return each row pair's centred cosines in the layers of `after` and `before`, and whether its classes agree."""
    block = np.hstack([value.sample("centred").astype(np.float64)[:, 1:] for value in (after, before)])
    present = ~np.isnan(block).any(1)
    return block[present], after.sample("same_class")[present]


@quantity("lower-breadth", unit="bits", statistics=HEAD_STATISTICS)
def lower_breadth(statistics: Measurement) -> Estimand:
    """Return the mean entropy of attention in the lower half of the layers minus that in the upper half."""
    return lower_minus_upper(statistics, "entropy")


@quantity("layer-likeness", unit="bits", statistics=HEAD_STATISTICS)
def layer_likeness(statistics: Measurement) -> Estimand:
    """Return the mean divergence between heads in different layers minus that between heads in the same layer."""
    block = np.stack([statistics.sample(name).astype(np.float64) for name in ("between", "within")], axis=1)
    there, clusters = np.asarray(~np.isnan(block).any(1)), clusters_of(statistics)
    if not there.any():
        raise NotApplicableError("the model has only one layer, or one head per layer")
    if clusters is not None:
        clusters = np.unique(clusters[there], return_inverse=True)[1]
    between, within = column_means(block)[0]
    note = f"different layers {between:.3f}, same layer {within:.3f}"
    return Estimand.from_block(block[there], lambda mean: mean[..., 0] - mean[..., 1], note, clusters=clusters)


@quantity("sep-gradient-ratio", unit="ratio", within=(0, np.inf), slopes=Need("attention-gradients"))
def sep_gradient_ratio(slopes: Measurement) -> Estimand:
    """Return the absolute gradient of the loss with respect to attention to [SEP], divided by that for other tokens.

    Gradients are averaged over examples and over the heads of the upper two thirds of the layers.
    """
    if np.isnan(slopes.value("sep")).all():
        raise NotApplicableError("the model has no [SEP]")
    sep, other = (by_layer(slopes, kind) for kind in ("sep", "other"))
    first = round(sep.shape[1] / 3)
    block: Float[np.ndarray, "examples 2"] = np.stack([value[:, first:].mean(1) for value in (sep, other)], axis=1)
    by_depth = ", ".join(f"{value:.2f}" for value in column_means(sep)[0] / column_means(other)[0])
    note = f"judged from layer {first + 1} on; values from layer 1: {by_depth}"
    return Estimand.from_block(block, lambda mean: mean[..., 0] / mean[..., 1], note, clusters=clusters_of(slopes))
