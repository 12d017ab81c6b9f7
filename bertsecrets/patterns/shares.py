"""Shares of the pattern classes, corrected for the classifier's errors.

The method is prediction-powered inference (Angelopoulos, Bates, Fannjiang, Jordan, Zrnic 2023, Science 382). The mean
of the class probabilities is corrected by the mean difference between labels and probabilities on annotated heads that
the classifier had not seen. The error on a model depends on the heads that this model happens to have, so resamples
draw about as many annotated heads as the model has, not as many as were annotated. The error of an annotated head is
known from a few maps only, while a model's is the mean over many; so such intervals are rather too wide if all maps of
a head are similar.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.patterns.classes import CLASSES


def raw_shares(predicted: Int[np.ndarray, " examples *heads"]) -> Float[np.ndarray, "examples classes"]:
    """Return, for each example, the share of heads with each predicted class.

    >>> raw_shares(np.array([[0, 0, 1, 4]])).tolist()
    [[0.5, 0.25, 0.0, 0.0, 0.25]]
    """
    flat = predicted.reshape(len(predicted), -1)
    return np.stack([(flat == i).mean(1) for i in range(len(CLASSES))], axis=1)


def corrected(
    expected: Float[np.ndarray, "*one classes"], errors: Float[np.ndarray, "*other classes"]
) -> Float[np.ndarray, "*both classes"]:
    """Return the shares nearest to mean probabilities plus mean errors: not negative, summing to 1."""
    return on_simplex(expected + errors)


def on_simplex(values: Float[np.ndarray, "*any classes"]) -> Float[np.ndarray, "*any classes"]:
    """Return the shares nearest to the values: not negative, summing to 1.

    >>> on_simplex(np.array([0.75, 0.5, -0.25])).tolist()
    [0.625, 0.375, 0.0]
    """
    down = -np.sort(-values, axis=-1)
    excess = down.cumsum(-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    kept = (down - excess / ranks > 0).sum(-1, keepdims=True)
    level = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    return np.maximum(values - level, 0)


def heads_to_draw(heads: int, annotated: int) -> int:
    """Return the number of annotated heads that a resample draws for a model with this number of heads.

    The model's heads and the annotated heads are both samples, and their variances, which are proportional to one over
    their sizes, add up. The returned size is that of a single sample with this total variance.

    >>> heads_to_draw(72, 360)
    60
    """
    return max(1, round(heads * annotated / (heads + annotated)))


def reader_shares(by_reader: Iterable[Mapping[str, str]]) -> list[list[dict[str, float]]]:
    """Return the share of each class by reader, in groups of readers who have read the same maps.

    Args:
        by_reader: per map, the class that each reader gave.

    >>> reader_shares([{"a": "block", "b": "block"}, {"a": "block", "b": "diagonal"}])[0][1]["block"]
    0.5
    """
    labels = list(by_reader)
    groups: list[list[dict[str, float]]] = []
    counted: set[str] = set()
    for readers in sorted({tuple(sorted(given)) for given in labels if len(given) > 1}, key=len, reverse=True):
        if counted & set(readers):  # they belong to a larger group
            continue
        counted |= set(readers)
        common = [given for given in labels if set(readers) <= given.keys()]
        groups.append(
            [
                {name: sum(given[reader] == name for given in common) / len(common) for name in CLASSES}
                for reader in readers
            ]
        )
    return groups


def shipped_reader_shares(reading: str) -> list[list[dict[str, float]]]:
    """Return `reader_shares` of the suite's own maps, from the report of the shipped classifiers."""
    report = json.loads((Path(__file__).parent / "weights" / "report.json").read_text(encoding="utf-8"))
    shares: list[list[dict[str, float]]] = report["readings"][reading]["readers"]["shares"]
    return shares


def reader_spread(groups: Sequence[Sequence[Mapping[str, float]]], classes: Iterable[str]) -> tuple[float, int]:
    """Return the standard deviation between readers of the share of some classes together, and its degrees of freedom.

    >>> reader_spread([[{"block": 0.2}, {"block": 0.4}]], ["block"])
    (0.1414213562373095, 1)
    """
    chosen = list(classes)
    shares = [[sum(by_class[name] for name in chosen) for by_class in group] for group in groups]
    degrees = sum(len(group) - 1 for group in shares)
    total = sum((len(group) - 1) * float(np.var(group, ddof=1)) for group in shares)
    return float(np.sqrt(total / degrees)), degrees


def by_head(values: Float[np.ndarray, "maps classes"], heads: np.ndarray) -> Float[np.ndarray, "heads classes"]:
    """Return the mean over the maps of each head, with the heads in the order of their names.

    >>> by_head(np.array([[1.0], [0.0], [1.0]]), np.array(["b", "a", "b"])).tolist()
    [[0.0], [1.0]]
    """
    names, places = np.unique(heads, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / np.bincount(places)[:, None]


def majority(predicted: Int[np.ndarray, " examples *heads"]) -> tuple[np.ndarray, np.ndarray]:
    """Return each head's most frequent class (an index into `CLASSES`) and the share of examples with it."""
    counts = np.stack([(predicted == i).mean(0) for i in range(len(CLASSES))])
    return counts.argmax(0), counts.max(0)
