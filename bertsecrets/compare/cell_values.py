"""The quantities that are compared head by head. They are computed from means over the examples of a measurement."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from bertsecrets.ablation.gains import gains_of
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.texts.metrics import METRICS, moments
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement


@dataclass(frozen=True)
class CellValues:
    """A quantity of a measurement, with one value for each cell (head, layer or model).

    Args:
        unit: Unit of the values, which determines the smallest effect of interest (`claims.band`).
        shape: Shape of the cells: (layers, heads), (layers,), or () for a scalar.
        block: Per-example values; one row per example.
        statistic: Function that computes the cells, [..., cells], from the column means of `block`, [..., k].
        right: Mask of the correct predictions, if the quantity is an accuracy.
        clusters: Cluster index of each row (see `Estimand`).
        step: Smallest change that a single example can cause; 0 for continuous quantities.
    """

    name: str
    what: str
    unit: str
    shape: tuple[int, ...]
    block: Float[np.ndarray, "examples k"]
    statistic: Callable[[np.ndarray], np.ndarray]
    right: Bool[np.ndarray, " examples"] | None = None
    clusters: np.ndarray | None = None
    step: float = 0.0


def _of_heads(measurement: Measurement, name: str, what: str, unit: str, sample: np.ndarray) -> CellValues:
    """Return a quantity with one value per head: the mean of `sample` [example, layer, head] over examples."""
    block = sample.reshape(len(sample), -1).astype(np.float64)
    clusters = measurement.samples.get("cluster")
    step = 100 / len(sample) if unit == "percent" else 0.0
    return CellValues(name, what, unit, sample.shape[1:], block, lambda mean: mean, clusters=clusters, step=step)


def _special_tokens(measurement: Measurement) -> Iterator[CellValues]:
    for kind in ("cls", "sep"):
        yield _of_heads(
            measurement, kind, f"attention to [{kind.upper()}]", "attention", measurement.sample(kind)
        )  # the larger weight of two [SEP]s, as in the paper


def _patterns(measurement: Measurement) -> Iterator[CellValues]:
    names = [name for name in measurement.samples if name.endswith("_predicted")]
    for sample in names or ["special_predicted"]:  # without samples, this name raises an error
        reading = sample.removesuffix("_predicted")
        for number, name in enumerate(CLASSES):
            share = 100.0 * (measurement.sample(sample) == number)
            yield _of_heads(measurement, f"{reading}_{name}", f"maps of class {name} ({reading})", "percent", share)


def _features(measurement: Measurement) -> Iterator[CellValues]:
    for name, sample in measurement.samples.items():
        if sample.ndim == 3 and name not in ("cls", "sep"):
            yield _of_heads(measurement, name, f"attention to {name.replace('_', ' ')}", "attention", sample)


def _attention_change(measurement: Measurement) -> Iterator[CellValues]:
    sample = measurement.sample("cosine")
    yield _of_heads(measurement, "cosine", "similarity to the pretrained maps", "cosine", sample)


def _gains(measurement: Measurement) -> Iterator[CellValues]:
    block, gains = gains_of(measurement)
    shape = np.shape(measurement.value("score"))
    what = "gain from disabling the layer" if len(shape) == 1 else "gain from disabling the head"
    clusters = measurement.samples.get("cluster")
    yield CellValues("gain", what, "points", shape, block, gains, clusters=clusters, step=_step(measurement, block))


def _scores(measurement: Measurement) -> Iterator[CellValues]:
    regression = TASKS[measurement.subject.task].regression
    name = "pearson" if regression else "accuracy"
    predicted, target = measurement.sample("predicted"), measurement.sample("target")
    block = moments(name, predicted, target)
    yield CellValues(
        name,
        "correlation with the labels" if regression else "accuracy",
        "points",
        (),
        block,
        lambda mean: 100 * np.asarray(METRICS[name](mean))[..., None],
        right=None if regression else predicted == target,
        clusters=measurement.samples.get("cluster"),
        step=_step(measurement, block),
    )


def _step(measurement: Measurement, block: np.ndarray) -> float:
    """Return by how many points the score changes if a single prediction changes. Return 0 for a regression task."""
    return 0.0 if TASKS[measurement.subject.task].regression else 100 / len(block)


CELL_READERS: dict[str, Callable[[Measurement], Iterator[CellValues]]] = {
    "scores": _scores,
    "special-tokens": _special_tokens,
    "patterns": _patterns,
    "attention-change": _attention_change,
    "features": _features,
    "layer-ablation": _gains,
    "head-ablation": _gains,
}
COMPARED_MEASURES = tuple(CELL_READERS)  # measures that can be compared, cheapest first
