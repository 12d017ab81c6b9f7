"""Frame-semantic heads (K19 section 4.2): attention from core elements to their target, in the bare encoder.

Heads are given as (layer, head), both from 1. `pairing` is `all` token pairs, the definition, or `zip`, the pairs of
K19's code, from which its figures come.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertsecrets.claims.estimand import Estimand, Number, flat
from bertsecrets.claims.heads import best_heads, place
from bertsecrets.claims.paper import FRAME_HEADS
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.types import Measurement

SAMPLES = {
    "all": "max_weight",
    "zip": "max_weight_zipped",
    "reverse": "max_weight_reverse",
    "reverse zip": "max_weight_zipped_reverse",
}
WEIGHT = SAMPLES["all"]
FRAMES = Need("frame-heads")


@quantity("frame-heads-lead", unit="attention", frames=FRAMES)
def named_lead(frames: Measurement, heads: Sequence = FRAME_HEADS) -> Estimand:
    """Return the smallest mean weight of the named heads minus the largest of all others (K19 figure 3)."""
    block = flat(frames, WEIGHT)
    named = np.zeros(block.shape[1], dtype=bool)
    named[[place(frames, layer, head, WEIGHT) for layer, head in heads]] = True
    statistic = lambda mean: mean[..., named] - mean[..., ~named].max(-1, keepdims=True)  # noqa: E731
    found = Estimand.of(block, statistic, f"the best heads are {best_heads(frames, WEIGHT)}")
    return replace(found, extreme="least")


@quantity("frame-weight", unit="attention", frames=FRAMES)
def head_weight(frames: Measurement, layer: int, head: int, pairing: str = "all") -> Estimand:
    """Return the mean weight of one head, (layer, head) from 1."""
    column = place(frames, layer, head, WEIGHT)
    by_pairing = {name: frames.value(sample).ravel()[column] for name, sample in SAMPLES.items() if name != pairing}
    note = "by the other pairings: " + ", ".join(f"{name} {weight:.3f}" for name, weight in by_pairing.items())
    return Estimand.of(flat(frames, SAMPLES[pairing]), lambda mean: mean[..., column], note)


@quantity("ranked-frame-weight", unit="attention", frames=FRAMES)
def ranked_weight(frames: Measurement, rank: int, pairing: str = "all") -> Estimand:
    """Return the mean weight of the head with this rank, whichever head it is; rank 1 is the largest."""
    block = flat(frames, SAMPLES[pairing])
    if block.shape[1] < rank:
        raise NotApplicableError(f"the model has {block.shape[1]} heads, so none of rank {rank}")
    note = f"the best heads are {best_heads(frames, SAMPLES[pairing])}"
    return Estimand.of(block, lambda mean: np.sort(mean, axis=-1)[..., -rank], note)


@quantity("frame-heads-over-percentile", unit="attention", frames=FRAMES)
def over_percentile(frames: Measurement, percentile: float = 99, heads: Sequence = FRAME_HEADS) -> Estimand:
    """Return the smallest mean weight of the named heads minus a percentile (linear interpolation) of all heads."""
    columns = [place(frames, layer, head, WEIGHT) for layer, head in heads]

    def lead(mean: np.ndarray) -> Number:
        return mean[..., columns] - np.percentile(mean, percentile, axis=-1, keepdims=True)

    return replace(Estimand.of(flat(frames, WEIGHT), lead), extreme="least")


@quantity("frame-gap-in-spread", unit="standard deviations", frames=FRAMES)
def gap_in_spread(frames: Measurement, first: int = 2) -> Estimand:
    """Return the gap from the `first`-th best head to the next, in standard deviations of the heads below the gap."""
    block = flat(frames, WEIGHT)
    if block.shape[1] < first + 2:
        raise NotApplicableError(f"the model has only {block.shape[1]} heads: too few for some to stand out")

    def gap(mean: np.ndarray) -> Number:
        weights = np.sort(mean, axis=-1)[..., ::-1]
        spread = weights[..., first:].std(-1)
        width = weights[..., first - 1] - weights[..., first]
        return np.divide(width, spread, out=np.full(np.shape(spread), np.nan), where=spread > 0)

    return Estimand.of(block, gap, f"the best heads are {best_heads(frames, WEIGHT)}")


@quantity("figure-3-correlation", unit="r", frames=FRAMES)
def figure_3(frames: Measurement, ranks: bool = False, pairing: str = "zip") -> Estimand:
    """Return the correlation of the measured map with figure 3's."""
    figure = np.array(published_figures()["fig3_frame_notebook"]).ravel()
    return likeness(flat(frames, SAMPLES[pairing]), figure, ranks)


@quantity("example-weight", unit="attention", sentence=Need("example-sentence"))
def example_weight(sentence: Measurement, layer: int, head: int, word: str = "agitated") -> Estimand:
    """Return one weight of the paper's example: what the row of "He" gives to a word in one head."""
    column = place(sentence, layer, head, word)
    to_others = {name: grid for name, grid in sentence.values.items() if np.ndim(grid) == 2 and name != word}
    note = "also " + ", ".join(f"{name} {grid.ravel()[column]:.2f}" for name, grid in to_others.items())
    return Estimand((flat(sentence, word)[:, [column]],), lambda mean: mean[..., 0], (note,), sampled=False)
