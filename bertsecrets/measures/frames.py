"""Heads that follow frame-semantic relations (K19 section 4.2, figure 3; claims B).

For each head, the maximum weight over the token pairs (core element -> target) of a sentence, averaged over sentences.
All pairs are the definition. The pairing of K19's code (k-th element token with k-th target token) and the other
direction (target -> core element) are measured beside it, because paper and code differ in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from bertsecrets.alignment import Alignment, all_pairs, zipped_pairs
from bertsecrets.framenet import FrameSentence
from bertsecrets.measures.relations import PairAttention

Grid = Float[np.ndarray, "layers heads"]
Sample = Float[np.ndarray, "examples layers heads"]


def frame_attention(alignment: Alignment, sentences: Sequence[FrameSentence], layers: int, heads: int) -> PairAttention:
    """The observer of a pass over the sentences (encoded with `encode_words`, in this order).

    Its values are `max_weight` (the definition), `max_weight_reverse`, `max_weight_zipped` and
    `max_weight_zipped_reverse`, each [layer, head]; its samples the same, [example, layer, head].
    """
    elements = alignment.mark([s.core_elements for s in sentences])
    targets = alignment.mark([[s.target] for s in sentences])
    every, zipped = all_pairs(elements, targets), zipped_pairs(elements, targets)
    relations = {
        "max_weight": every,
        "max_weight_reverse": every.reverse,
        "max_weight_zipped": zipped,
        "max_weight_zipped_reverse": zipped.reverse,
    }
    return PairAttention(len(sentences), layers, heads, relations)


def bootstrap_means(
    sample: Sample, resamples: int = 2000, seed: int = 2019
) -> Float[np.ndarray, "resamples layers heads"]:
    """The mean grid of each bootstrap resample of the sentences; sentences that are NaN (no pair) are left out."""
    flat = sample.reshape(len(sample), -1).astype(np.float64)
    flat = flat[~np.isnan(flat).any(1)]
    counts = np.random.default_rng(seed).multinomial(len(flat), np.full(len(flat), 1 / len(flat)), size=resamples)
    return (counts @ flat / len(flat)).reshape(resamples, *sample.shape[1:])


def intervals(means: Float[np.ndarray, "resamples layers heads"], confidence: float = 0.95) -> tuple[Grid, Grid]:
    """The percentile interval of every head's mean: lower and upper ends."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


@dataclass(frozen=True)
class Ranked:
    """One head among all: layer and head from 1, as K19 counts; `rank` from 1 for the largest value."""

    layer: int
    head: int
    value: float
    rank: int


def ranking(grid: Grid) -> list[Ranked]:
    """All heads, the largest value first."""
    order = np.argsort(-grid, axis=None, kind="stable")
    places = zip(*np.unravel_index(order, grid.shape), strict=True)
    return [
        Ranked(int(layer) + 1, int(head) + 1, float(grid[layer, head]), n)
        for n, (layer, head) in enumerate(places, start=1)
    ]


def standing_out(grid: Grid, first: int = 2, percentile: float = 99.0) -> dict[str, float]:
    """How far the best heads stand out from the others.

    Returns:
        `threshold`, the percentile of all heads' values; `above`, how many heads exceed it (the best 2 of 144 always
        do for 99: judge the gap); `gap`, from the `first`-th best value to the next; `gap_in_spread`, the same in
        standard deviations of the heads below the gap.
    """
    values = np.sort(grid, axis=None)[::-1]
    threshold = float(np.percentile(values, percentile))
    gap = float(values[first - 1] - values[first])
    spread = float(values[first:].std())
    return {
        "threshold": threshold,
        "above": float((values > threshold).sum()),
        "gap": gap,
        "gap_in_spread": gap / spread if spread > 0 else float("inf"),
    }


def gap_to_next(means: Float[np.ndarray, "resamples layers heads"], heads: Sequence[tuple[int, int]]) -> np.ndarray:
    """In each resample, the least value of the named heads (layer, head, from 1) less the greatest of all others.

    Positive in nearly all resamples: exactly these heads stand out, whatever sentences had been drawn (claim B1).
    """
    named = np.zeros(means.shape[1:], dtype=bool)
    named[tuple(np.array(heads).T - 1)] = True
    return means[:, named].min(1) - means[:, ~named].max(1)


def correlation_with(grid: Grid, published: Float[np.ndarray, "its_layers its_heads"]) -> dict[str, float] | None:
    """Pearson and Spearman correlation over heads with a published grid; None where the shapes differ."""
    if grid.shape != published.shape:
        return None
    one, other = grid.ravel(), published.ravel()
    return {
        "pearson": float(stats.pearsonr(one, other).statistic),
        "spearman": float(stats.spearmanr(one, other).statistic),
    }
