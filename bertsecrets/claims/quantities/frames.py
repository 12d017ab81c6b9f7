"""Frame-semantic heads (K19 section 4.2): attention from core elements to their target, in the bare encoder.

Heads are given as (layer, head), both counted from 1. `pairing` is `all` for all token pairs, as defined in the paper,
or `zip` for the pairs used by K19's code and figures.
"""

from typing import Literal, get_args

import numpy as np
from pydantic import PositiveInt

from bertsecrets.claims.bootstrap import column_means, ratio
from bertsecrets.claims.estimand import Estimand, Number, each_pair, flat
from bertsecrets.claims.quantities.head_ranking import Heads, best_heads, place
from bertsecrets.claims.quantities.likeness import correlation
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.progress import counted
from bertsecrets.texts.published import FRAME_DIGEST, FRAME_HEADS, FRAME_SENTENCES, published_figures
from bertsecrets.types import Measurement

Pairing = Literal["all", "zip", "reverse", "reverse zip"]
PAIRING_SAMPLES: dict[Pairing, str] = {
    "all": "max_weight",
    "zip": "max_weight_zipped",
    "reverse": "max_weight_reverse",
    "reverse zip": "max_weight_zipped_reverse",
}
ALL_PAIRS_SAMPLE = PAIRING_SAMPLES["all"]
FRAME_WEIGHTS = Need("frame-heads")


@quantity("frame-heads-lead", unit="attention", inherits=False, frames=FRAME_WEIGHTS)
def named_lead(frames: Measurement, heads: Heads = FRAME_HEADS) -> Estimand:
    """Return the smallest mean weight of a named head minus the largest mean weight of another head (K19 figure 3)."""
    block = flat(frames, ALL_PAIRS_SAMPLE)
    named = np.zeros(block.shape[1], dtype=bool)
    named[[place(frames, layer, head, ALL_PAIRS_SAMPLE) for layer, head in heads]] = True
    pairs = lambda mean: each_pair(np.subtract, mean[..., named], mean[..., ~named])  # noqa: E731
    note = f"the best heads are {best_heads(frames, ALL_PAIRS_SAMPLE)}"
    return Estimand.from_block(block, pairs, note, extreme="least")


def _of_paper(frames: Measurement) -> bool:
    return frames.values.get("sentences") == FRAME_DIGEST


@quantity("frame-weight", unit="attention", inherits=False, within=(0, 1), frames=FRAME_WEIGHTS)
def head_weight(frames: Measurement, layer: PositiveInt, head: PositiveInt, pairing: Pairing = "all") -> Estimand:
    """Return the mean weight of one head, whose layer and number are counted from 1."""
    column = place(frames, layer, head, ALL_PAIRS_SAMPLE)
    by_pairing = {name: float(frames.value(sample).ravel()[column]) for name, sample in PAIRING_SAMPLES.items()}
    own = by_pairing.pop(pairing)
    note = "other pairings: " + ", ".join(f"{name} {weight - own:+.3f}" for name, weight in by_pairing.items())
    block, sampled = flat(frames, PAIRING_SAMPLES[pairing]), not _of_paper(frames)
    return Estimand.from_block(block, lambda mean: mean[..., column], note, sampled=sampled)


@quantity("ranked-frame-weight", unit="attention", inherits=False, within=(0, 1), frames=FRAME_WEIGHTS)
def ranked_weight(frames: Measurement, rank: PositiveInt, pairing: Pairing = "all") -> Estimand:
    """Return the mean weight of the head with this rank; the head of rank 1 has the largest mean weight.

    The mean weights of the best heads are biased upwards by noise, but the published figure has the same bias.
    """
    block = flat(frames, PAIRING_SAMPLES[pairing])
    if block.shape[1] < rank:
        raise NotApplicableError(f"the model has {counted(block.shape[1], 'head')}, so it has no head of rank {rank}")
    note = f"the best heads are {best_heads(frames, PAIRING_SAMPLES[pairing])}"
    of_rank = lambda mean: np.sort(mean, axis=-1)[..., -rank]  # noqa: E731
    return Estimand.from_block(block, of_rank, note, sampled=not _of_paper(frames))


@quantity("frame-heads-over-percentile", unit="attention", inherits=False, frames=FRAME_WEIGHTS)
def over_percentile(frames: Measurement, heads: Heads = FRAME_HEADS) -> Estimand:
    """Return the smallest mean weight of a named head minus the (interpolated) 99th percentile over all heads."""
    columns = [place(frames, layer, head, ALL_PAIRS_SAMPLE) for layer, head in heads]
    lead = lambda mean: mean[..., columns] - np.percentile(mean, 99, axis=-1, keepdims=True)  # noqa: E731
    return Estimand.from_block(flat(frames, ALL_PAIRS_SAMPLE), lead, extreme="least")


@quantity("frame-gap-in-spread", unit="standard deviations", inherits=False, frames=FRAME_WEIGHTS)
def gap_in_spread(frames: Measurement) -> Estimand:
    """Return the gap between the second and third largest weights, in standard deviations of those below the gap."""
    block = flat(frames, ALL_PAIRS_SAMPLE)
    if block.shape[1] < 4:
        raise NotApplicableError(
            f"the model has only {counted(block.shape[1], 'head')}, too few for two of them to stand out"
        )

    def gap(mean: np.ndarray) -> Number:
        weights = np.sort(mean, axis=-1)[..., ::-1]
        return ratio(weights[..., 1] - weights[..., 2], weights[..., 2:].std(-1))

    return Estimand.from_block(block, gap, f"the best heads are {best_heads(frames, ALL_PAIRS_SAMPLE)}")


@quantity("figure-3-correlation", unit="r", inherits=False, within=(-1, 1), frames=FRAME_WEIGHTS)
def figure_3(frames: Measurement, ranks: bool = False) -> Estimand:
    """Return the correlation between K19's figure 3 and a map that is computed with the token pairs of K19's code.

    The model and the sentences are the same as in the figure, so nothing is resampled. Other sentences, or resamples of
    these sentences, would add noise and so lower the correlation.
    """
    figure = np.array(published_figures()["fig3_frame_notebook"]).ravel()
    block = flat(frames, PAIRING_SAMPLES["zip"])
    other_kind = float(correlation(column_means(block)[0], figure, not ranks))
    note = f"{'Pearson' if ranks else 'Spearman'} correlation {other_kind:.3f}"
    others = f"by chance alone, a map of {frames.examples} other sentences would be less similar to figure 3"
    unmet = "" if _of_paper(frames) else f"the sentences are not the paper's {FRAME_SENTENCES}: {others}"
    return Estimand.from_block(block, lambda mean: correlation(mean, figure, ranks), note, sampled=False, unmet=unmet)


Word = Literal["was", "becoming", "agitated", "sep"]
EXAMPLE_WEIGHTS = Need("example-sentence")


@quantity("example-weight", unit="attention", inherits=False, sentence=EXAMPLE_WEIGHTS)
def example_weight(sentence: Measurement, layer: PositiveInt, head: PositiveInt, word: Word = "agitated") -> Estimand:
    """Return the attention from "He" to a word in one head, for the paper's example sentence."""
    column = place(sentence, layer, head, word)
    others = [name for name in get_args(Word) if name != word and name in sentence.values]
    note = "also " + ", ".join(f"{name} {sentence.value(name).ravel()[column]:.2f}" for name in others)
    return _of_example(flat(sentence, word)[:, [column]], note)


@quantity("example-weight-lead", unit="attention", inherits=False, sentence=EXAMPLE_WEIGHTS)
def example_weight_lead(sentence: Measurement, layer: PositiveInt, head: PositiveInt) -> Estimand:
    """Return the attention from "agitated" to "He" in one head, minus the largest weight on any other token.

    The weight of "agitated" on itself is ignored.
    """
    names = ("he_from_agitated", "rest_from_agitated")
    column = place(sentence, layer, head, names[0])
    he, rest = (flat(sentence, name)[:, [column]] for name in names)
    return _of_example(he - rest, f"'He' {he[0, 0]:.2f}, any other token at most {rest[0, 0]:.2f}")


def _of_example(weights: np.ndarray, note: str) -> Estimand:
    return Estimand.from_block(weights, lambda mean: mean[..., 0], note, sampled=False)  # a single sentence
