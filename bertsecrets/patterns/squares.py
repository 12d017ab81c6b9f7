"""Made examples of the class that few heads show: real maps whose attention across the two texts is taken away.

What is left are two squares, block by the annotators' guideline, in the manner of as many heads as gave a map: a
classifier that has seen block in one head alone would otherwise learn that head. For training only, never for judging.
"""

import numpy as np
from jaxtyping import Float

from bertsecrets.patterns.classes import CLASSES

FAINTEST, STRONGEST = 0.02, 0.25  # of the attention across, how much is left
LEAST_INSIDE = 0.5  # share of all attention that must go to words, where a column dominates: else no square would show
SHORTEST = 3  # words of a text
SOURCES = ("heterogeneous", "vertical")  # diagonals stay diagonals, whatever is taken away


def made_squares(
    maps: tuple[np.ndarray, ...], boundary: np.ndarray, labels: np.ndarray, count: int, seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Up to `count` made block maps, and the places in `maps` of those that they were made from.

    Args:
        labels: indices into `CLASSES`.
    """
    rng = np.random.default_rng(seed)
    sources = [i for i in range(len(maps)) if _fits(maps[i], int(boundary[i]), CLASSES[labels[i]])]
    chosen = rng.permutation(np.array(sources, dtype=np.int64))[:count]
    kept = rng.uniform(FAINTEST, STRONGEST, len(chosen))
    return [squares(maps[i], int(boundary[i]), share) for i, share in zip(chosen, kept, strict=True)], chosen


def squares(
    values: Float[np.ndarray, "tokens tokens"], boundary: int, kept: float
) -> Float[np.ndarray, "tokens tokens"]:
    """A map with only a share of its attention between words of different texts; each row's words keep their sum.

    The columns and rows of special tokens stay as they are.
    """
    text = _texts(len(values), boundary)
    words = text > 0
    across = words[:, None] & words[None, :] & (text[:, None] != text[None, :])
    within = words[:, None] & words[None, :]
    less = np.where(across, kept, 1.0) * values.astype(np.float64)
    before, after = ((part * within).sum(1) for part in (values.astype(np.float64), less))
    scale = np.divide(before, after, out=np.ones(len(values)), where=after > 0)
    return np.where(within, less * scale[:, None], less).astype(np.float32)


def _texts(tokens: int, boundary: int) -> np.ndarray:
    text = np.zeros(tokens, dtype=np.int64)
    text[1 : boundary - 1], text[boundary : tokens - 1] = 1, 2
    return text


def _fits(values: np.ndarray, boundary: int, label: str) -> bool:
    text = _texts(len(values), boundary)
    if label not in SOURCES or min((text == 1).sum(), (text == 2).sum()) < SHORTEST:
        return False
    return label == SOURCES[0] or float(values[:, text > 0].sum()) >= LEAST_INSIDE * len(values)
