"""Heads that follow frame-semantic relations (K19 section 4.2, figure 3; claims B).

For each head, the maximum weight over the token pairs (core element -> target) of a sentence, averaged over sentences.
All pairs are the definition. The pairing of K19's code (k-th element token with k-th target token) and the other
direction (target -> core element) are measured beside it, because paper and code differ in both.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bertsecrets.measures.relations import PairAttention
from bertsecrets.models.alignment import Alignment, all_pairs, zipped_pairs
from bertsecrets.texts.framenet import FrameSentence

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


def intervals(sample: Sample, resamples: int, seed: int, confidence: float = 0.95) -> tuple[Grid, Grid]:
    """The bootstrap interval over sentences of every head's mean: lower and upper ends.

    Sentences that are NaN (no pair) are left out.
    """
    flat = sample.reshape(len(sample), -1).astype(np.float64)
    flat = flat[~np.isnan(flat).any(1)]
    if not len(flat):
        return np.full(sample.shape[1:], np.nan), np.full(sample.shape[1:], np.nan)
    counts = np.random.default_rng(seed).multinomial(len(flat), np.full(len(flat), 1 / len(flat)), size=resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile(counts @ flat / len(flat), [tail, 1 - tail], axis=0)
    return low.reshape(sample.shape[1:]), high.reshape(sample.shape[1:])
