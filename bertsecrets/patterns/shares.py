"""Class shares: the fractions of maps in each pattern class, corrected for the errors of the classifier.

The method is prediction-powered inference (Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, Science 382). The mean
class probabilities are corrected by the mean difference between labels and probabilities on held-out annotated heads.
A model's heads are also a sample. To allow for this, each bootstrap resample contains fewer annotated heads than are
available (`heads_to_draw`). If all maps of a head are similar, intervals are conservative, because the error of each
annotated head is estimated from only a few maps.
"""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.patterns.classes import CLASSES


def raw_shares(predicted: Int[np.ndarray, " examples *heads"]) -> Float[np.ndarray, "examples classes"]:
    """For each example, return the shares of heads that are predicted to belong to each class.

    >>> raw_shares(np.array([[0, 0, 1, 4]])).tolist()
    [[0.5, 0.25, 0.0, 0.0, 0.25]]
    """
    flat = predicted.reshape(len(predicted), -1)
    return np.stack([(flat == i).mean(1) for i in range(len(CLASSES))], axis=1)


def corrected(
    expected: Float[np.ndarray, "*one classes"], errors: Float[np.ndarray, "*other classes"]
) -> Float[np.ndarray, "*both classes"]:
    """Add mean errors to mean probabilities, and project the sum onto the probability simplex."""
    return on_simplex(expected + errors)


def on_simplex(values: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
    """Return the Euclidean projection onto the probability simplex.

    >>> on_simplex(np.array([0.75, 0.5, -0.25])).tolist()
    [0.625, 0.375, 0.0]
    """
    down = -np.sort(-values, axis=-1)
    excess = down.cumsum(-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    positive = (down - excess / ranks > 0).sum(-1, keepdims=True)
    level = np.take_along_axis(excess, positive - 1, axis=-1) / positive
    return np.maximum(values - level, 0)


def heads_to_draw(heads: int, annotated: int) -> int:
    """Return how many annotated heads each bootstrap resample for a model should contain.

    The model's heads and the annotated heads are two samples. The variance of a sample's mean is proportional to
    1 / (sample size). A sample of the returned size has the same variance as the other two together.

    >>> heads_to_draw(72, 360)
    60
    """
    return max(1, round(heads * annotated / (heads + annotated)))


@functools.cache
def shipped_reader_shares(reading: str) -> list[list[dict[str, float]]]:
    """Return each reader's class shares from the shipped report, in one inner list for all readers of the same maps."""
    report = json.loads((Path(__file__).parent / "weights" / "report.json").read_text(encoding="utf-8"))
    shares: list[list[dict[str, float]]] = report["readings"][reading]["readers"]["shares"]
    return shares


def reader_spread(groups: Sequence[Sequence[Mapping[str, float]]], classes: Iterable[str]) -> tuple[float, int]:
    """Return the readers' standard deviation for the total share of some classes, and its degrees of freedom.

    Readers are compared only with readers of the same maps.

    Args:
        groups: Class shares of each reader. Readers who classified the same maps are in the same group.
        classes: Classes whose shares are added.

    >>> std, degrees = reader_spread([[{"block": 0.2}, {"block": 0.4}]], ["block"])
    >>> round(std, 4), degrees
    (0.1414, 1)
    """
    chosen = list(classes)
    shares = [[sum(by_class[name] for name in chosen) for by_class in group] for group in groups]
    degrees = sum(len(group) - 1 for group in shares)
    total = sum((len(group) - 1) * float(np.var(group, ddof=1)) for group in shares)
    return float(np.sqrt(total / degrees)), degrees


def by_head(values: Float[np.ndarray, "maps classes"], heads: np.ndarray) -> Float[np.ndarray, "heads classes"]:
    """Average the values of each head's maps. Heads are sorted by name.

    >>> by_head(np.array([[1.0], [0.0], [1.0]]), np.array(["b", "a", "b"])).tolist()
    [[0.0], [1.0]]
    """
    names, places = np.unique(heads, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / np.bincount(places)[:, None]
