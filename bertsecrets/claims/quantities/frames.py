"""Frame-semantic heads (K19 section 4.2): attention from core elements to their target, in the bare encoder.

Heads are given as (layer, head), both from 1. `pairing` is `all` token pairs, the definition, or `zip`, the pairs of
K19's code, from which its figures come.
"""

from collections.abc import Sequence

import numpy as np

from bertsecrets.claims.estimand import NotApplicableError, Number, Reading, flat
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.measures.frame_heads import ranking
from bertsecrets.types import Measurement

SAMPLES = {
    "all": "max_weight",
    "zip": "max_weight_zipped",
    "reverse": "max_weight_reverse",
    "reverse zip": "max_weight_zipped_reverse",
}
K19_HEADS = ((7, 6), (1, 2))


def place(found: Measurement, layer: int, head: int, name: str = "max_weight") -> int:
    """Where a head stands among the heads of all layers side by side."""
    return int(np.ravel_multi_index((layer - 1, head - 1), np.shape(found.values[name])))


def top(found: Measurement, count: int, name: str = "max_weight") -> list[tuple[int, int]]:
    """The heads of the largest values."""
    return [(one.layer, one.head) for one in ranking(np.asarray(found.values[name]))[:count]]


def in_words(found: Measurement, count: int = 3, name: str = "max_weight") -> str:
    """The heads of the largest values, for a note."""
    best = ranking(np.asarray(found.values[name]))[:count]
    return ", ".join(f"layer {one.layer} head {one.head} {one.value:.3f}" for one in best)


def named_lead(found: Sequence[Measurement], task_name: str, heads: Sequence = K19_HEADS) -> Reading:
    """The least mean weight of the named heads minus the greatest of all others."""
    block = flat(found[0], "max_weight")
    named = np.zeros(block.shape[1], dtype=bool)
    named[[place(found[0], *each) for each in heads]] = True
    statistic = lambda mean: mean[..., named].min(-1) - mean[..., ~named].max(-1)  # noqa: E731
    return Reading.of(block, statistic, f"the best are {in_words(found[0])}")


def head_weight(found: Sequence[Measurement], task_name: str, layer: int, head: int, pairing: str = "all") -> Reading:
    """The mean weight of one head."""
    column = place(found[0], layer, head)
    other = {name: found[0].values[sample].ravel()[column] for name, sample in SAMPLES.items() if name != pairing}
    note = "by other pairings " + ", ".join(f"{name} {value:.3f}" for name, value in other.items())
    return Reading.of(flat(found[0], SAMPLES[pairing]), lambda mean: mean[..., column], note)


def ranked_weight(found: Sequence[Measurement], task_name: str, rank: int, pairing: str = "all") -> Reading:
    """The mean weight of the head of some rank, whichever it is; 1 is the largest."""
    block = flat(found[0], SAMPLES[pairing])
    if block.shape[1] < rank:
        raise NotApplicableError(f"a model of {block.shape[1]} heads has none of rank {rank}")
    return Reading.of(
        block,
        lambda mean: np.sort(mean, axis=-1)[..., -rank],
        f"the best are {in_words(found[0], 3, SAMPLES[pairing])}",
    )


def over_percentile(
    found: Sequence[Measurement], task_name: str, percentile: float = 99, heads: Sequence = K19_HEADS
) -> Reading:
    """The least mean weight of the named heads minus a percentile of all heads' (linear between two of them)."""
    columns = [place(found[0], *each) for each in heads]

    def lead(mean: np.ndarray) -> Number:
        return mean[..., columns].min(-1) - np.percentile(mean, percentile, axis=-1)

    return Reading.of(flat(found[0], "max_weight"), lead)


def gap_in_spread(found: Sequence[Measurement], task_name: str, first: int = 2) -> Reading:
    """From the `first`-th best head to the next, in standard deviations of the heads below the gap."""
    block = flat(found[0], "max_weight")
    if block.shape[1] < first + 2:
        raise NotApplicableError(f"a model of {block.shape[1]} heads has no others to stand out from")

    def gap(mean: np.ndarray) -> Number:
        values = np.sort(mean, axis=-1)[..., ::-1]
        spread = values[..., first:].std(-1)
        width = values[..., first - 1] - values[..., first]
        return np.divide(width, spread, out=np.full(np.shape(spread), np.nan), where=spread > 0)

    return Reading.of(block, gap, f"the best are {in_words(found[0])}")


def figure_3(found: Sequence[Measurement], task_name: str, ranks: bool = False, pairing: str = "zip") -> Reading:
    """Correlation of the measured map with figure 3's."""
    figure = np.array(published_figures()["fig3_frame_notebook"]).ravel()
    return likeness(flat(found[0], SAMPLES[pairing]), figure, ranks)


def example_weight(
    found: Sequence[Measurement], task_name: str, layer: int, head: int, word: str = "agitated"
) -> Reading:
    """One weight of the paper's example: what the row of "He" gives to a word in one head."""
    column = place(found[0], layer, head, word)
    others = {name: value for name, value in found[0].values.items() if np.ndim(value) == 2 and name != word}
    note = "also " + ", ".join(f"{name} {value.ravel()[column]:.2f}" for name, value in others.items())
    return Reading((flat(found[0], word)[:, [column]],), lambda mean: mean[..., 0], (note,), sampled=False)
