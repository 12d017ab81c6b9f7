"""Inter-annotator agreement: Cohen's kappa with a bootstrap interval."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.bootstrap import central_interval, resample_counts
from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES, check_class
from bertsecrets.progress import counted
from instruments.annotation.map_set import MapSet

CONFIDENCE = 0.95  # confidence level of the interval
SEED, RESAMPLES = 2019, 2000


@dataclass(frozen=True)
class Agreement:
    """The agreement of two annotators on the same maps.

    `share` is the proportion of maps with equal labels. `kappa` has the confidence interval from `low` to `high`. It is
    NaN if both annotators assign the same class to all maps.
    """

    maps: int
    share: float
    kappa: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"Cohen's kappa {self.kappa:.2f} [{self.low:.2f}, {self.high:.2f}], "
            f"same label on {self.share:.0%} of {self.maps} maps"
        )


def label_agreement(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Return the agreement of two annotators on the same maps, with a bootstrap interval over maps.

    Raises:
        UserError: If there are no labels, the annotators labelled different numbers of maps, or a class is unknown.
    """
    if len(first) != len(second) or not first:
        raise UserError(
            f"{counted(len(first), 'label')} and {counted(len(second), 'label')}: agreement needs labels of both "
            "annotators on the same maps"
        )
    table = np.zeros((len(CLASSES), len(CLASSES)), dtype=np.int64)
    for labels in zip(first, second, strict=True):
        table[tuple(CLASSES.index(check_class(label)) for label in labels)] += 1
    rng, shares = np.random.default_rng(SEED), table.ravel() / len(first)
    drawn = np.concatenate(list(resample_counts(rng, table.size, RESAMPLES, drawn=len(first), shares=shares)))
    kappas = kappa(drawn.reshape(RESAMPLES, *table.shape))
    kappas = kappas[np.isfinite(kappas)]
    low, high = central_interval(kappas, CONFIDENCE) if len(kappas) else (np.nan, np.nan)
    share = float(np.trace(table)) / len(first)
    return Agreement(len(first), share, float(kappa(table[None].astype(float))[0]), float(low), float(high))


def set_agreement(maps: MapSet) -> Agreement | None:
    """Return the agreement of first and second labels on maps that have both, or None if no map has both."""
    pairs = [(first, second) for first, second in zip(*map(maps.of_annotator, (0, 1)), strict=True) if first and second]
    return label_agreement(*zip(*pairs, strict=True)) if pairs else None


def kappa(tables: Float[np.ndarray, "tables first second"]) -> Float[np.ndarray, " tables"]:
    """Return Cohen's kappa of each table, the agreement above chance relative to the maximum possible.

    >>> kappa(np.array([[[2.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]])).tolist()
    [1.0, 0.0]
    """
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    seen = np.trace(shares, axis1=1, axis2=2)
    chance = (shares.sum(axis=2) * shares.sum(axis=1)).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(chance < 1, (seen - chance) / np.where(chance < 1, 1 - chance, 1), np.nan)


def reader_shares(by_reader: Iterable[Mapping[str, str]]) -> list[list[dict[str, float]]]:
    """Return each reader's class shares, grouped with those of the other readers of the same maps.

    Args:
        by_reader: Classes assigned by each reader, for each map.

    >>> reader_shares([{"a": "block", "b": "block"}, {"a": "block", "b": "diagonal"}])[0][1]["block"]
    0.5
    """
    labels = list(by_reader)
    groups: list[list[dict[str, float]]] = []
    counted: set[str] = set()
    for readers in sorted({tuple(sorted(given)) for given in labels if len(given) > 1}, key=len, reverse=True):
        if counted & set(readers):  # these readers are already in a larger group
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
