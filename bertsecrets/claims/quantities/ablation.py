"""Disabled heads and layers (K19 section 4.6): their gains, in points, and the ranks of heads by gain.

A gain is the score with a set of heads disabled minus the baseline, both on the same examples.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from bertsecrets.ablation.gains import WHOLE, all_gains, gains_of, metric_of
from bertsecrets.bootstrap import column_means
from bertsecrets.claims.estimand import CHOOSING, JUDGING, Estimand, Number
from bertsecrets.claims.heads import name_of, place, top
from bertsecrets.claims.paper import FRAME_HEADS, HARMFUL_HEADS
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.claims.quantity import Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

FLIPS, SEED, AT_ONCE = 2000, 2019, 100  # draws of the null distribution
HEADS, LAYERS = Need("head-ablation"), Need("layer-ablation")
STSB_AND_RTE = Need("head-ablation", tasks=("stsb", "rte"))


def _gain(ablation: Measurement, chosen: int, rows: slice = WHOLE, notes: Sequence[str] = ()) -> Estimand:
    """Return the gain of disabling one set of heads, on the examples named by `rows`."""
    block, gains = gains_of(ablation, [chosen], rows)
    return Estimand.of(block, lambda mean: gains(mean)[..., 0], *notes)


def _name(ablation: Measurement, chosen: int) -> str:
    return name_of(ablation, chosen, "score")


@quantity("best-head-gain", unit="points", ablation=HEADS)
def best_head(ablation: Measurement) -> Estimand:
    """Return the gain of the best head (K19 figure 8), chosen on every other example and judged on the rest.

    Without that division the best of many heads would gain by luck. The notes give the naive best gain (chosen and
    judged on all examples), and the gain that luck alone would give it: the 95 % quantile of `largest_by_luck`.
    """
    chosen = int(all_gains(ablation, CHOOSING).argmax())
    naive = all_gains(ablation)
    null = largest_by_luck(ablation)
    share = float((null >= naive.max() - 1e-9).mean())
    notes = (
        f"chosen {_name(ablation, chosen)}",
        f"naive best {naive.max():+.2f} ({_name(ablation, int(naive.argmax()))})",
        f"the best of {len(naive)} reaches {np.quantile(null, 0.95):+.2f} by luck at 95 % (p {share:.3f})",
    )
    return _gain(ablation, chosen, JUDGING, notes)


def largest_by_luck(ablation: Measurement, draws: int = FLIPS) -> Float[np.ndarray, " draws"]:
    """Return the largest gain over all sets in each draw from the null hypothesis that disabling changes nothing.

    In each draw every example has, with probability one half, its baseline and its ablated predictions swapped. They
    are swapped for all sets at once, which keeps the dependence between sets.
    """
    block, _ = gains_of(ablation)
    metric, k = metric_of(ablation), block.shape[1] // (len(ablation.sample("predicted")) + 1)
    before, after = np.tile(block[:, :k], block.shape[1] // k - 1), block[:, k:]
    rng, largest = np.random.default_rng(SEED), []
    for start in range(0, draws, AT_ONCE):
        swapped = rng.integers(2, size=(min(AT_ONCE, draws - start), len(block))).astype(float)
        moved = swapped @ (before - after) / len(block)
        shape = (len(moved), -1, k)
        ablated, baseline = (after.mean(0) + moved).reshape(shape), (before.mean(0) - moved).reshape(shape)
        largest.append((100 * metric(ablated) - 100 * metric(baseline)).max(-1))
    return np.concatenate(largest)


@quantity("worst-head-gain", unit="points", ablation=HEADS)
def worst_head(ablation: Measurement) -> Estimand:
    """Return the gain of the head that is most harmful to lose, chosen on every other example, judged on the rest."""
    chosen = int(all_gains(ablation, CHOOSING).argmin())
    return _gain(ablation, chosen, JUDGING, [f"chosen {_name(ablation, chosen)}"])


@quantity("mean-head-gain", unit="points", ablation=HEADS)
def mean_gain(ablation: Measurement) -> Estimand:
    """Return the gain of disabling a single head, averaged over all heads (K19 section 4.6)."""
    block, gains = gains_of(ablation)
    return Estimand.of(block, lambda mean: gains(mean).mean(-1))


@quantity("first-layer-gain", unit="points", ablation=LAYERS)
def first_layer(ablation: Measurement) -> Estimand:
    """Return the gain of disabling the first layer (K19 figure 9)."""
    return _gain(ablation, 0)


@quantity("best-layer-gain", unit="points", ablation=LAYERS)
def best_layer(ablation: Measurement) -> Estimand:
    """Return the gain of the best layer (K19 figure 9), chosen on every other example and judged on the rest."""
    chosen = int(all_gains(ablation, CHOOSING).argmax())
    by_layer = ", ".join(f"{gain:+.1f}" for gain in all_gains(ablation))
    return _gain(ablation, chosen, JUDGING, [f"chosen {_name(ablation, chosen)}", f"layers 1 on: {by_layer}"])


@quantity("named-heads-gain", unit="points", ablation=HEADS)
def named_heads(ablation: Measurement, heads: Sequence = FRAME_HEADS) -> Estimand:
    """Return the smallest gain of disabling one of the named heads, (layer, head) from 1."""
    sets = [place(ablation, layer, head, "score") for layer, head in heads]
    block, gains = gains_of(ablation, sets)
    by_set = zip(sets, gains(block.mean(0)), strict=True)
    notes = [f"{_name(ablation, chosen)} {gain:+.2f}" for chosen, gain in by_set]
    return replace(Estimand.of(block, gains, *notes), extreme="least")


@quantity(
    "own-frame-heads-gain", unit="points", ablation=HEADS, frames=Need("frame-heads", "untrained", task=ALL_TASKS)
)
def own_frame_heads(ablation: Measurement, frames: Measurement) -> Estimand:
    """Return the smallest gain of disabling one of the model's own two best frame heads."""
    return named_heads(ablation, top(frames, 2, "max_weight"))


def _ranks(gains: Float[np.ndarray, "*any sets"], chosen: Sequence[int]) -> Float[np.ndarray, "*any chosen"]:
    """Return, for each chosen head, the percentage of heads that are more harmful to lose; ties count half."""
    own = gains[..., chosen, None]
    less, same = (gains[..., None, :] < own).sum(-1), (gains[..., None, :] == own).sum(-1) - 1
    return 100 * (less + same / 2) / gains.shape[-1]


@quantity("named-heads-harm-rank", unit="percent", ablations=STSB_AND_RTE)
def named_harm(ablations: tuple[Measurement, ...], heads: Sequence = HARMFUL_HEADS) -> Estimand:
    """Return the percentage of heads more harmful to lose than a named head: the largest over named heads and tasks."""
    blocks, gains = zip(*(gains_of(ablation) for ablation in ablations), strict=True)
    sets = [place(ablations[0], layer, head, "score") for layer, head in heads]

    def statistic(*means: np.ndarray) -> Number:
        return np.max([_ranks(of(mean), sets).max(-1) for of, mean in zip(gains, means, strict=True)], axis=0)

    return Estimand(tuple(blocks), statistic, _most_harmful(ablations))


@quantity("shared-harm-rank", unit="percent", ablations=STSB_AND_RTE)
def shared_harm(ablations: tuple[Measurement, ...], count: int = 2) -> Estimand:
    """Return the rank on one task of the other task's most harmful heads: the percentage of heads more harmful there.

    The mean over these heads and both directions; chance gives 50.
    """
    if len(ablations[0].sample("predicted")) <= 2 * count:
        raise NotApplicableError(f"the model has too few heads to compare {count} of them with the others")
    blocks, gains = zip(*(gains_of(ablation) for ablation in ablations), strict=True)
    first, second = (
        of(block.mean(0)).argsort(kind="stable")[:count].tolist() for of, block in zip(gains, blocks, strict=True)
    )

    def statistic(*means: np.ndarray) -> Number:
        on_first, on_second = (of(mean) for of, mean in zip(gains, means, strict=True))
        return (_ranks(on_first, second).mean(-1) + _ranks(on_second, first).mean(-1)) / 2

    return Estimand(tuple(blocks), statistic, _most_harmful(ablations))


def _most_harmful(ablations: Sequence[Measurement], count: int = 2) -> tuple[str, ...]:
    """Return, for each task, the heads that are most harmful to lose, in words."""
    notes = []
    for ablation in ablations:
        order = np.argsort(np.asarray(ablation.value("score")), axis=None, kind="stable")[:count]
        heads = " and ".join(_name(ablation, int(chosen)) for chosen in order)
        notes.append(f"{ablation.subject.task}: most harmful {heads}")
    return tuple(notes)


@quantity("figure-8-correlation", unit="r", ablation=HEADS)
def figure_8(ablation: Measurement, ranks: bool = False) -> Estimand:
    """Return the correlation, over heads, of the measured gains with the scores of K19's figure 8."""
    figure = np.array(published_figures()["fig8_head"][TASKS[ablation.subject.task].folder]).ravel()
    block, gains = gains_of(ablation)
    of_gains = likeness(gains(column_means(block)), figure, ranks)
    return Estimand.of(block, lambda mean: of_gains.statistic(gains(mean)), *of_gains.notes)
