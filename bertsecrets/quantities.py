"""How one scalar is read off measurements, for each kind of claim.

Every quantity is a function of means over examples: it gives the per-example numbers ([example, k]) and a statistic
of their mean ([..., k] -> [...]). That one form is all that resampling needs, and resampling is then a matrix product.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bertsecrets.core import Measurement
from bertsecrets.params import project_path

if TYPE_CHECKING:
    from bertsecrets.claims import Case

Statistic = Callable[[np.ndarray], np.ndarray]
Reading = tuple[Float[np.ndarray, "examples k"], Statistic]


@dataclass(frozen=True)
class Quantity:
    """A named way to read a scalar.

    `needs` says which measurements it reads, in order: (measure, initialisation), where the initialisation `own` or
    `against` is the claim's. `read` takes those measurements and the case.
    """

    name: str
    unit: str
    needs: tuple[tuple[str, str], ...]
    read: Callable[[Sequence[Measurement], "Case"], Reading]


class NotApplicableError(Exception):
    """The model cannot have this quantity; the message says why."""


# ---------------------------------------------------------------------- scores, in points (percent)


def _moments(found: Measurement) -> np.ndarray:
    """Per-example numbers from whose means every metric follows."""
    p, t = found.samples["predicted"].astype(float), found.samples["target"].astype(float)
    if "pearson" in found.values:
        return np.stack([p, t, p * p, t * t, p * t], axis=1)
    return np.stack([p == t, (p == 1) & (t == 1), p == 1, t == 1], axis=1).astype(float)


def _pearson(mean: np.ndarray) -> np.ndarray:
    p, t, pp, tt, pt = (mean[..., i] for i in range(5))
    spread = np.sqrt(np.maximum(pp - p * p, 0) * np.maximum(tt - t * t, 0))
    return 100 * np.divide(pt - p * t, spread, out=np.zeros_like(spread), where=spread > 1e-12)


def _accuracy(mean: np.ndarray) -> np.ndarray:
    return 100 * mean[..., 0]


def _f1(mean: np.ndarray) -> np.ndarray:
    named = mean[..., 2] + mean[..., 3]
    return 100 * np.divide(2 * mean[..., 1], named, out=np.zeros_like(named), where=named > 0)


def _plain_metric(found: Measurement) -> Statistic:
    """Accuracy, or Pearson's correlation for a regression task: the columns of K19's table 1 that all tasks have."""
    return _pearson if "pearson" in found.values else _accuracy


def _score(found: Sequence[Measurement], case: "Case") -> Reading:
    return _moments(found[0]), _plain_metric(found[0])


def _f1_score(found: Sequence[Measurement], case: "Case") -> Reading:
    return _moments(found[0]), _f1


def _difference(found: Sequence[Measurement], case: "Case") -> Reading:
    """Own score minus the other's, on the same examples."""
    one, other = _moments(found[0]), _moments(found[1])
    k, metric = one.shape[1], _plain_metric(found[0])
    return np.hstack([one, other]), lambda mean: metric(mean[..., :k]) - metric(mean[..., k:])


def _over_majority(found: Sequence[Measurement], case: "Case") -> Reading:
    """Accuracy minus that of the most frequent class; a correlation, whose constant answer scores 0, as it is."""
    moments, metric = _moments(found[0]), _plain_metric(found[0])
    if metric is _pearson:
        return moments, metric
    target = found[0].samples["target"].astype(int)
    right = (target == np.bincount(target).argmax()).astype(float)
    return np.hstack([moments, right[:, None]]), lambda mean: _accuracy(mean) - 100 * mean[..., -1]


# ---------------------------------------------------------------------- change in fine-tuning


def _by_layer(found: Measurement, name: str) -> np.ndarray:
    return found.samples[name].mean(2, dtype=np.float64)


def _last_two(found: Sequence[Measurement], case: "Case") -> Reading:
    """The larger mean similarity of the last two layers minus the smallest of the layers before them."""
    layers = _by_layer(found[0], "cosine")
    if layers.shape[1] < 3:
        raise NotApplicableError(f"a model of {layers.shape[1]} layers has none before its last two")
    return layers, lambda mean: mean[..., -2:].max(-1) - mean[..., :-2].min(-1)


def _little_changed(found: Sequence[Measurement], case: "Case") -> Reading:
    """The share of heads whose mean similarity is above .7, in percent."""
    heads = _flat(found[0], "cosine")
    return heads, lambda mean: 100 * (mean > 0.7).mean(-1)


def _flat(found: Measurement, name: str) -> np.ndarray:
    return found.samples[name].reshape(len(found.samples[name]), -1).astype(np.float64)


@cache
def published_figures() -> dict:
    """The published figures that were read off their pixels, by figure and task; arrays are [layer, head]."""
    return json.loads((project_path("expected") / "figures.json").read_text(encoding="utf-8"))


def _change_correlation(found: Sequence[Measurement], case: "Case") -> Reading:
    """Pearson correlation of the measured [layer, head] map with figure 5's."""
    from bertsecrets.tasks import TASKS

    figure = np.array(published_figures()["fig5_cosine"][TASKS[case.task].folder]).ravel()
    centred = (figure - figure.mean()) / np.linalg.norm(figure - figure.mean())

    def correlation(mean: np.ndarray) -> np.ndarray:
        off = mean - mean.mean(-1, keepdims=True)
        return off @ centred / np.linalg.norm(off, axis=-1)

    return _flat(found[0], "cosine"), correlation


# ---------------------------------------------------------------------- special tokens


def _special(found: Measurement, name: str) -> np.ndarray:
    if np.isnan(found.values[name]).all():
        raise NotApplicableError(f"the model has no [{name.upper()}]")
    return _by_layer(found, name)


def _sep_growth(found: Sequence[Measurement], case: "Case") -> Reading:
    """[SEP] attention in the last two layers, fine-tuned minus pretrained."""
    after, before = _special(found[0], "sep"), _special(found[1], "sep")
    return after - before, lambda mean: mean[..., -2:].mean(-1)


def _depth_gap(found: Sequence[Measurement], case: "Case") -> Reading:
    """How much deeper [SEP] attention lies than [CLS] attention, as a share of the depth of the model.

    The depth of each is its centre of mass over the layers: 0 is the first layer, 1 the last.
    """
    cls, sep = _special(found[0], "cls"), _special(found[0], "sep")
    layers = cls.shape[1]
    if layers < 2:
        raise NotApplicableError("a model of one layer has no earlier and later layers")
    depth = np.linspace(0, 1, layers)

    def gap(mean: np.ndarray) -> np.ndarray:
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
        Quantity("last-two-layers", "cosine", (("attention-change", "own"),), _last_two),
        Quantity("heads-little-changed", "percent", (("attention-change", "own"),), _little_changed),
        Quantity("figure-5-correlation", "r", (("attention-change", "own"),), _change_correlation),
        Quantity("sep-growth", "attention", (("special-tokens", "own"), ("special-tokens", "against")), _sep_growth),
        Quantity("depth-gap", "depth", (("special-tokens", "own"),), _depth_gap),
    )
}
