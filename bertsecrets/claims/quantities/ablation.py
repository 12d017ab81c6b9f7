"""Disabled heads and layers: gains, that is the score with a set disabled minus the baseline, in points.

The metric is figure 8's: F1 for MRPC and QQP, correlation for STS-B, accuracy else. All is paired on the same examples.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.estimand import NotApplicableError, Number, Reading, column_means
from bertsecrets.claims.published import likeness, published_figures
from bertsecrets.claims.quantities import frames
from bertsecrets.claims.quantities.scores import moments_of, task_metric
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

CHOOSING, JUDGING, WHOLE = slice(0, None, 2), slice(1, None, 2), slice(None)  # two halves of the examples, and all
FLIPS = 2000  # draws of the null distribution

Block = Float[np.ndarray, "examples k"]
Gains = Callable[[np.ndarray], np.ndarray]


def gains_of(
    found: Measurement, task_name: str, sets: Sequence[int] | None = None, rows: slice = WHOLE
) -> tuple[Block, Gains]:
    """The gains of some sets (or of all) on some examples: a block, and from its means ([..., k]) [..., set]."""
    regression, metric = TASKS[task_name].regression, task_metric(task_name)
    predicted, target = found.samples["predicted"], found.samples["target"][rows]
    chosen = range(len(predicted)) if sets is None else sets
    before = moments_of(found.samples["baseline_predicted"][rows], target, regression)
    block = np.hstack([before, *(moments_of(predicted[i][rows], target, regression) for i in chosen)])
    k = before.shape[1]

    def of_means(mean: np.ndarray) -> np.ndarray:
        each = np.asarray(metric(mean.reshape(*mean.shape[:-1], -1, k)))
        return each[..., 1:] - each[..., :1]

    return block, of_means


def gain(found: Measurement, task_name: str, chosen: int, rows: slice = WHOLE, *notes: str) -> Reading:
    """The gain of one set, on some of the examples."""
    block, gains = gains_of(found, task_name, [chosen], rows)
    return Reading.of(block, lambda mean: gains(mean)[..., 0], *notes)


def all_gains(found: Measurement, task_name: str, rows: slice = WHOLE) -> Float[np.ndarray, " sets"]:
    """The gain of every set on the examples as they are."""
    block, gains = gains_of(found, task_name, None, rows)
    return gains(block.mean(0))


def gain_intervals(
    found: Measurement, task_name: str, confidence: float = 0.95, resamples: int = 2000, seed: int = 2019
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    """The paired bootstrap interval of every set's gain, lower and upper ends, in points.

    Each set by itself: among 144 intervals at 95 % some seven miss the truth.
    """
    block, gains = gains_of(found, task_name)
    rng, tail, drawn = np.random.default_rng(seed), (1 - confidence) / 2, []
    for start in range(0, resamples, 100):
        size = min(100, resamples - start)
        counts = rng.multinomial(len(block), np.full(len(block), 1 / len(block)), size=size)
        drawn.append(gains(counts @ block / len(block)))
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail], axis=0)
    return low, high


def head_name(found: Measurement, chosen: int) -> str:
    """A set of one head, or a whole layer, in words."""
    layer, *head = np.unravel_index(chosen, np.shape(found.values["score"]))
    return f"layer {int(layer) + 1}" + (f" head {int(head[0]) + 1}" if head else "")


def best_head(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the best head: chosen on every other example, judged on the rest, so that luck is not counted.

    The notes give the naive best gain (chosen and judged on all examples) and what the best of so many heads reaches by
    luck: the 95 % point of the largest gain where disabling changes nothing but which predictions are called which.
    """
    chosen = int(all_gains(found[0], task_name, CHOOSING).argmax())
    naive = all_gains(found[0], task_name)
    null = largest_by_luck(found[0], task_name)
    share = float((null >= naive.max() - 1e-9).mean())
    notes = (
        f"chosen {head_name(found[0], chosen)}",
        f"naive best {naive.max():+.2f} ({head_name(found[0], int(naive.argmax()))})",
        f"the best of {len(naive)} reaches {np.quantile(null, 0.95):+.2f} by luck at 95 % (p {share:.3f})",
    )
    return gain(found[0], task_name, chosen, JUDGING, *notes)


def largest_by_luck(
    found: Measurement, task_name: str, draws: int = FLIPS, seed: int = 2019
) -> Float[np.ndarray, " draws"]:
    """The largest gain over all sets under the null that disabling any of them changes nothing.

    In each draw every example, with probability one half, has its baseline and its ablated predictions swapped, in all
    sets alike, so that sets stay as dependent on one another as they are.
    """
    block, _ = gains_of(found, task_name)
    metric, k = task_metric(task_name), block.shape[1] // (len(found.samples["predicted"]) + 1)
    before, after = np.tile(block[:, :k], block.shape[1] // k - 1), block[:, k:]
    rng, largest = np.random.default_rng(seed), []
    for start in range(0, draws, 100):
        swapped = rng.integers(2, size=(min(100, draws - start), len(block))).astype(float)
        moved = swapped @ (before - after) / len(block)
        one, other = after.mean(0) + moved, before.mean(0) - moved
        shape = (len(moved), -1, k)
        largest.append((metric(one.reshape(shape)) - metric(other.reshape(shape))).max(-1))
    return np.concatenate(largest)


def worst_head(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the most harmful head to lose: chosen on every other example, judged on the rest."""
    chosen = int(all_gains(found[0], task_name, CHOOSING).argmin())
    return gain(found[0], task_name, chosen, JUDGING, f"chosen {head_name(found[0], chosen)}")


def mean_gain(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of disabling one head, averaged over all heads."""
    block, gains = gains_of(found[0], task_name)
    return Reading.of(block, lambda mean: gains(mean).mean(-1))


def first_layer(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of disabling the first layer."""
    return gain(found[0], task_name, 0)


def best_layer(found: Sequence[Measurement], task_name: str) -> Reading:
    """The gain of the best layer to disable: chosen on every other example, judged on the rest."""
    chosen = int(all_gains(found[0], task_name, CHOOSING).argmax())
    each = ", ".join(f"{value:+.1f}" for value in all_gains(found[0], task_name))
    return gain(found[0], task_name, chosen, JUDGING, f"chosen {head_name(found[0], chosen)}", f"layers 1 on: {each}")


def named_heads(found: Sequence[Measurement], task_name: str, heads: Sequence = frames.K19_HEADS) -> Reading:
    """The least gain of disabling each of the named heads alone."""
    sets = [frames.place(found[0], layer, head, "score") for layer, head in heads]
    block, gains = gains_of(found[0], task_name, sets)
    each = zip(sets, gains(block.mean(0)), strict=True)
    notes = [f"{head_name(found[0], chosen)} {value:+.2f}" for chosen, value in each]
    return Reading.of(block, lambda mean: gains(mean).min(-1), *notes)


def own_frame_heads(found: Sequence[Measurement], task_name: str) -> Reading:
    """The least gain of disabling each of the model's own two best frame heads alone."""
    return named_heads(found, task_name, frames.top(found[1], 2))


def _ranks(gains: np.ndarray, chosen: Sequence[int]) -> np.ndarray:
    """What share of the heads is more harmful to lose than each of the chosen, in percent; ties count half."""
    mine = gains[..., chosen, None]
    less, same = (gains[..., None, :] < mine).sum(-1), (gains[..., None, :] == mine).sum(-1) - 1
    return 100 * (less + same / 2) / gains.shape[-1]


def named_harm(found: Sequence[Measurement], task_name: str, heads: Sequence = ((4, 1), (2, 12))) -> Reading:
    """Over all tasks and named heads the largest share of heads that are more harmful to lose, in percent."""
    blocks, gains = zip(*(gains_of(one, one.subject.task) for one in found), strict=True)
    sets = [frames.place(found[0], layer, head, "score") for layer, head in heads]

    def statistic(*means: np.ndarray) -> Number:
        return np.max([_ranks(of(mean), sets).max(-1) for of, mean in zip(gains, means, strict=True)], axis=0)

    notes = [f"{one.subject.task}: most harmful {_most_harmful(one)}" for one in found]
    return Reading(tuple(blocks), statistic, tuple(notes))


def shared_harm(found: Sequence[Measurement], task_name: str, count: int = 2) -> Reading:
    """How harmful one task's most harmful heads are on the other task: the share of heads more harmful, in percent.

    The mean over these heads and both directions; 50 is chance.
    """
    if len(found[0].samples["predicted"]) <= 2 * count:
        raise NotApplicableError(f"too few heads to tell {count} of them from the others")
    blocks, gains = zip(*(gains_of(one, one.subject.task) for one in found), strict=True)
    chosen = [
        of(block.mean(0)).argsort(kind="stable")[:count].tolist() for of, block in zip(gains, blocks, strict=True)
    ]

    def statistic(*means: np.ndarray) -> Number:
        one, other = (of(mean) for of, mean in zip(gains, means, strict=True))
        return (_ranks(one, chosen[1]).mean(-1) + _ranks(other, chosen[0]).mean(-1)) / 2

    return Reading(
        tuple(blocks), statistic, tuple(f"{one.subject.task}: most harmful {_most_harmful(one)}" for one in found)
    )


def _most_harmful(found: Measurement, count: int = 2) -> str:
    order = np.argsort(np.asarray(found.values["score"]), axis=None, kind="stable")[:count]
    return " and ".join(head_name(found, int(chosen)) for chosen in order)


def figure_8(found: Sequence[Measurement], task_name: str, ranks: bool = False) -> Reading:
    """Correlation over heads of the measured gains with figure 8's scores."""
    figure = np.array(published_figures()["fig8_head"][TASKS[task_name].folder]).ravel()
    block, gains = gains_of(found[0], task_name)
    alike = likeness(gains(column_means(block, np.ones((1, len(block))))), figure, ranks)
    return Reading.of(block, lambda mean: alike.statistic(gains(mean)), *alike.notes)
