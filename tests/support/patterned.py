"""Small attention maps that clearly belong to one class, and sets of them, for the tests of patterns."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertsecrets.patterns.classes import CLASSES
from instruments.annotation.map_set import (
    PLAIN_WORDS,
    PLAIN_WORDS_COLUMNS,
    READERS_OF_UNSURE_MAPS,
    TEXTS,
    MapSet,
    PatternMap,
)
from instruments.annotation.writing import save_set


def values(kind: str, tokens: int = 12, boundary: int = 7, seed: int = 0) -> np.ndarray:
    """Return a map of class `kind`, in float16, whose rows are distributions."""
    rng = np.random.default_rng(seed)
    weights = 0.02 * rng.random((tokens, tokens)) + 1e-3
    if kind in ("vertical", "vertical-diagonal"):
        weights[:, 0] += 1
    if kind in ("diagonal", "vertical-diagonal"):
        weights += np.eye(tokens, k=-1) + (kind == "diagonal") * np.eye(tokens)
    if kind == "block":
        weights[:boundary, :boundary] += 0.3
        weights[boundary:, boundary:] += 0.3
    if kind == "heterogeneous":
        weights += rng.random((tokens, tokens)) ** 4
    return (weights / weights.sum(1, keepdims=True)).astype(np.float16)


def pattern_map(number: int, kind: str = "vertical", tokens: int = 12, **facts) -> PatternMap:
    """Return a map whose head and example are derived from its number."""
    layer, head = divmod(number, 4)
    known = {"model": "tiny", "task": "rte", "state": "fine-tuned", "layer": layer + 1, "head": head + 1}
    known |= {"example": number, "boundary": tokens // 2 + 1} | facts
    return PatternMap(f"tiny_{number}", **known, values=values(kind, tokens, known["boundary"], number))


def pattern_set(count: int = 10, labelled: bool = True) -> MapSet:
    """Return maps of different sizes that cycle through the classes, labelled with their class."""
    kinds = [CLASSES[number % len(CLASSES)] for number in range(count)]
    maps = tuple(pattern_map(number, kind, tokens=10 + number % 4) for number, kind in enumerate(kinds))
    return MapSet(maps, tuple((kind,) for kind in kinds) if labelled else ())


def relabelled(maps: MapSet, labels: Mapping[str, str], second: bool = False) -> MapSet:
    """Return the set with some first labels replaced, or with second labels added, by map name."""
    given = zip(maps, maps.given, strict=True)
    own = (((*first[: int(second)], labels[each.name]) if each.name in labels else first) for each, first in given)
    return replace(maps, given=tuple(own))


def save_read(maps: MapSet, folder: Path, times: int = 2, unsure: int = 0) -> None:
    """Save a set with the labels of `times` readers of each text, all equal to the map's label.

    The last `unsure` maps are labelled by the readers of maps that classifiers were unsure of.
    """
    save_set(maps, folder)
    readers = [str(reader + 1) for reader in range(times)]
    drawn = len(maps) - unsure
    rows = [
        [shown.name, words, reader, label]
        for words in TEXTS
        for place, (shown, label) in enumerate(zip(maps, maps.labels, strict=True))
        for reader in (readers if place < drawn else READERS_OF_UNSURE_MAPS)
    ]
    text = "\n".join("\t".join(row) for row in [PLAIN_WORDS_COLUMNS, *rows])
    (folder / PLAIN_WORDS).write_text(text + "\n", encoding="utf-8")


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Reduce the numbers of trees, inner folds, penalties and resamples."""
    training = "instruments.classifiers"
    patch.setattr(f"{training}.fitting.ROUNDS", 4)
    patch.setattr(f"{training}.fitting.INNER_FOLDS", 2)
    patch.setattr(f"{training}.baselines.PENALTIES", (0.1,))
    patch.setattr(f"{training}.audit.MODELS", 40)
    patch.setattr(f"{training}.audit.RESAMPLES", 50)


def simulated_shares(heads: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return each head's true class shares, and those predicted by a classifier with different errors on each head."""
    true = rng.dirichlet([3, 1, 1, 0.3, 1], size=heads)
    error = rng.normal([0.02, 0, 0, 0, -0.02], 0.08, size=(heads, 5))
    error -= error.mean(1, keepdims=True)
    return true, true - error
