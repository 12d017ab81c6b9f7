"""How one scalar is read off measurements, for each kind of claim.

Every quantity is a function of means over examples: it gives the per-example numbers ([example, k]) and a statistic
of their mean ([..., k] -> [...]). That one form is all that resampling needs, and resampling is then a matrix product.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float

from bertsecrets.core import Measurement
from bertsecrets.params import project_path
from bertsecrets.tasks import TASKS

Number = np.ndarray | np.floating  # one value per resample, or a single one
Statistic = Callable[[np.ndarray], Number]
Reading = tuple[Float[np.ndarray, "examples k"], Statistic]


@dataclass(frozen=True)
class Quantity:
    """A named way to read a scalar.

    `needs` says which measurements it reads, in order: (measure, initialisation), where the initialisation `own` or
    `against` is the claim's. `read` takes those measurements and the task.
    """

    name: str
    unit: str
    needs: tuple[tuple[str, str], ...]
    read: Callable[[Sequence[Measurement], str], Reading]


class NotApplicableError(Exception):
    """The model cannot have this quantity; the message says why."""


# ---------------------------------------------------------------------- scores, in points (percent)


def _moments(found: Measurement) -> np.ndarray:
    """Per-example numbers from whose means every metric follows."""
    return _moments_of(found.samples["predicted"], found.samples["target"], "pearson" in found.values)


def _moments_of(predicted: np.ndarray, target: np.ndarray, regression: bool) -> np.ndarray:
    p, t = predicted.astype(float), target.astype(float)
    if regression:
        return np.stack([p, t, p * p, t * t, p * t], axis=1)
    return np.stack([p == t, (p == 1) & (t == 1), p == 1, t == 1], axis=1).astype(float)


def _pearson(mean: np.ndarray) -> Number:
    p, t, pp, tt, pt = (mean[..., i] for i in range(5))
    spread = np.sqrt(np.maximum(pp - p * p, 0) * np.maximum(tt - t * t, 0))
    return 100 * np.divide(pt - p * t, spread, out=np.zeros_like(spread), where=spread > 1e-12)


def _accuracy(mean: np.ndarray) -> Number:
    return 100 * mean[..., 0]


def _f1(mean: np.ndarray) -> Number:
    named = mean[..., 2] + mean[..., 3]
    return 100 * np.divide(2 * mean[..., 1], named, out=np.zeros_like(named), where=named > 0)


def _plain_metric(found: Measurement) -> Statistic:
    """Accuracy, or Pearson's correlation for a regression task: the columns of K19's table 1 that all tasks have."""
    return _pearson if "pearson" in found.values else _accuracy


def _score(found: Sequence[Measurement], task_name: str) -> Reading:
    return _moments(found[0]), _plain_metric(found[0])


def _f1_score(found: Sequence[Measurement], task_name: str) -> Reading:
    return _moments(found[0]), _f1


def _difference(found: Sequence[Measurement], task_name: str) -> Reading:
    """Own score minus the other's, on the same examples."""
    one, other = _moments(found[0]), _moments(found[1])
    k, metric = one.shape[1], _plain_metric(found[0])
    return np.hstack([one, other]), lambda mean: metric(mean[..., :k]) - metric(mean[..., k:])


def _over_majority(found: Sequence[Measurement], task_name: str) -> Reading:
    """Accuracy minus that of the most frequent class; a correlation, whose constant answer scores 0, as it is."""
    moments, metric = _moments(found[0]), _plain_metric(found[0])
    if metric is _pearson:
        return moments, metric
    target = found[0].samples["target"].astype(int)
    right = (target == np.bincount(target).argmax()).astype(float)
    return np.hstack([moments, right[:, None]]), lambda mean: _accuracy(mean) - 100 * mean[..., -1]


# ---------------------------------------------------------------------- disabled heads and layers


def _gain(found: Measurement, task_name: str, chosen: int, rows: slice = slice(None)) -> Reading:
    """The score with a set disabled minus the baseline, in points of the task's metric, on some of the examples."""
    the_task = TASKS[task_name]
    metric = {"f1": _f1, "pearson": _pearson, "accuracy": _accuracy}[the_task.metric]
    target = found.samples["target"][rows]
    after = _moments_of(found.samples["predicted"][chosen][rows], target, the_task.regression)
    before = _moments_of(found.samples["baseline_predicted"][rows], target, the_task.regression)
    k = after.shape[1]
    return np.hstack([after, before]), lambda mean: metric(mean[..., :k]) - metric(mean[..., k:])


def _gains(found: Measurement, task_name: str, rows: slice = slice(None)) -> np.ndarray:
    readings = (_gain(found, task_name, i, rows) for i in range(len(found.samples["predicted"])))
    return np.array([float(statistic(samples.mean(0))) for samples, statistic in readings])


def _best_head(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the best head: chosen on every other example, judged on the rest, so that luck is not counted."""
    chosen = int(_gains(found[0], task_name, slice(0, None, 2)).argmax())
    return _gain(found[0], task_name, chosen, slice(1, None, 2))


def _worst_head(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the most harmful head to lose: chosen on every other example, judged on the rest."""
    chosen = int(_gains(found[0], task_name, slice(0, None, 2)).argmin())
    return _gain(found[0], task_name, chosen, slice(1, None, 2))


def _mean_gain(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of disabling one head, averaged over all heads, in points."""
    sets = len(found[0].samples["predicted"])
    readings = [_gain(found[0], task_name, i) for i in range(sets)]
    k = readings[0][0].shape[1] // 2
    samples = np.hstack([*(moments[:, :k] for moments, _ in readings), readings[0][0][:, k:]])

    def statistic(mean: np.ndarray) -> np.ndarray:
        before = mean[..., -k:]
        both = (np.concatenate([mean[..., i * k : (i + 1) * k], before], axis=-1) for i in range(sets))
        return np.mean([readings[0][1](each) for each in both], axis=0)

    return samples, statistic


def _first_layer(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of disabling the first layer, in points."""
    return _gain(found[0], task_name, 0)


# ---------------------------------------------------------------------- change in fine-tuning


def _by_layer(found: Measurement, name: str) -> np.ndarray:
    return found.samples[name].mean(2, dtype=np.float64)


def _last_two(found: Sequence[Measurement], task_name: str) -> Reading:
    """The larger mean similarity of the last two layers minus the smallest of the layers before them."""
    layers = _by_layer(found[0], "cosine")
    if layers.shape[1] < 3:
        raise NotApplicableError(f"a model of {layers.shape[1]} layers has none before its last two")
    return layers, lambda mean: mean[..., -2:].max(-1) - mean[..., :-2].min(-1)


def _little_changed(found: Sequence[Measurement], task_name: str) -> Reading:
    """The share of heads whose mean similarity is above .7, in percent."""
    heads = _flat(found[0], "cosine")
    return heads, lambda mean: 100 * (mean > 0.7).mean(-1)


def _flat(found: Measurement, name: str) -> np.ndarray:
    return found.samples[name].reshape(len(found.samples[name]), -1).astype(np.float64)


@cache
def published_figures() -> dict:
    """The published figures that were read off their pixels, by figure and task; arrays are [layer, head]."""
    return json.loads((project_path("expected") / "figures.json").read_text(encoding="utf-8"))


def _change_correlation(found: Sequence[Measurement], task_name: str) -> Reading:
    """Pearson correlation of the measured [layer, head] map with figure 5's."""
    figure = np.array(published_figures()["fig5_cosine"][TASKS[task_name].folder]).ravel()
    centred = (figure - figure.mean()) / np.linalg.norm(figure - figure.mean())

    def correlation(mean: np.ndarray) -> Number:
        off = mean - mean.mean(-1, keepdims=True)
        return off @ centred / np.linalg.norm(off, axis=-1)

    return _flat(found[0], "cosine"), correlation


# ---------------------------------------------------------------------- special tokens


def _special(found: Measurement, name: str) -> np.ndarray:
    if np.isnan(found.values[name]).all():
        raise NotApplicableError(f"the model has no [{name.upper()}]")
    return _by_layer(found, name)


def _sep_growth(found: Sequence[Measurement], task_name: str) -> Reading:
    """[SEP] attention in the last two layers, fine-tuned minus pretrained."""
    after, before = _special(found[0], "sep"), _special(found[1], "sep")
    return after - before, lambda mean: mean[..., -2:].mean(-1)


def _depth_gap(found: Sequence[Measurement], task_name: str) -> Reading:
    """How much deeper [SEP] attention lies than [CLS] attention, as a share of the depth of the model.

    The depth of each is its centre of mass over the layers: 0 is the first layer, 1 the last.
    """
    cls, sep = _special(found[0], "cls"), _special(found[0], "sep")
    layers = cls.shape[1]
    if layers < 2:
        raise NotApplicableError("a model of one layer has no earlier and later layers")
    depth = np.linspace(0, 1, layers)

    def gap(mean: np.ndarray) -> Number:
        one, other = mean[..., :layers], mean[..., layers:]
        return (other @ depth) / other.sum(-1) - (one @ depth) / one.sum(-1)

    return np.hstack([cls, sep]), gap


QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("score", "points", (("scores", "own"),), _score),
        Quantity("f1", "points", (("scores", "own"),), _f1_score),
        Quantity("score-difference", "points", (("scores", "own"), ("scores", "against")), _difference),
        Quantity("score-over-majority", "points", (("scores", "own"),), _over_majority),
        Quantity("best-head-gain", "points", (("head-ablation", "own"),), _best_head),
        Quantity("worst-head-gain", "points", (("head-ablation", "own"),), _worst_head),
        Quantity("mean-head-gain", "points", (("head-ablation", "own"),), _mean_gain),
        Quantity("first-layer-gain", "points", (("layer-ablation", "own"),), _first_layer),
        Quantity("last-two-layers", "cosine", (("attention-change", "own"),), _last_two),
        Quantity("heads-little-changed", "percent", (("attention-change", "own"),), _little_changed),
        Quantity("figure-5-correlation", "r", (("attention-change", "own"),), _change_correlation),
        Quantity("sep-growth", "attention", (("special-tokens", "own"), ("special-tokens", "against")), _sep_growth),
        Quantity("depth-gap", "depth", (("special-tokens", "own"),), _depth_gap),
    )
}
