"""Quantities of head and layer ablation (K19 section 4.6): gains in points, and ranks of heads by gain.

A gain is the score with some heads disabled minus the baseline score on the same examples.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.ablation.gains import Block, all_gains, gains_of, metric_of
from bertsecrets.claims.estimand import ColumnSelection, Estimand, Extreme, Number, both, clusters_of, halves
from bertsecrets.claims.quantities.head_ranking import Heads, name_of, place, top
from bertsecrets.claims.quantities.likeness import likeness, panels
from bertsecrets.claims.quantities.task_scores import in_points, mean_over_tasks, metric_name, score_range
from bertsecrets.claims.quantity import ANY_VALUE, Need, quantity
from bertsecrets.errors import NotApplicableError
from bertsecrets.progress import counted
from bertsecrets.texts.metrics import moments
from bertsecrets.texts.published import FRAME_HEADS, HARMFUL_HEADS, SEVEN_TASKS
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

NULL_DRAWS, NULL_SEED, NULL_DRAWS_AT_ONCE = 2000, 2019, 100  # draws of the null distribution
HEAD_ABLATION, LAYER_ABLATION = Need("head-ablation"), Need("layer-ablation")
ABLATION_KINDS = ("uniform", "zero", "mean", "resampled")
EFFECT_POINTS = 0.1  # smallest change of a score that counts
TOP_HEADS = 2  # number of most important heads that claims G6 and J4 are about
STSB_AND_RTE = Need("head-ablation", tasks=("stsb", "rte"))
FRAMES = Need("frame-heads", "untrained", task=ALL_TASKS)
HEAD_ABLATIONS_BY_TASK = Need("head-ablation", tasks=SEVEN_TASKS, least=2)


def _cross_fitted(ablation: Measurement, sign: int, *notes: str, **more: Any) -> Estimand:
    """Return the cross-fitted gain of the set of heads with the largest (`sign` 1) or smallest (`sign` -1) gain.

    The set is selected by its mean gain across seeds on one half of the examples, and its gain is measured on the other
    half. The halves are then swapped. The result is the mean of the two gains, weighted by the sizes of the halves.
    """
    clusters = clusters_of(ablation)
    first = halves(len(ablation.sample("target")), clusters)
    share = first.mean()

    def build(chosen: Sequence[int]) -> Estimand:
        columns = []
        for judged, heads in zip((first, ~first), chosen, strict=True):
            block, gains = gains_of(ablation, [heads])
            columns.append(np.where(judged[:, None], block, np.nan))
        k = columns[0].shape[1]

        def gain(mean: np.ndarray) -> Number:
            return share * gains(mean[..., :k])[..., 0] + (1 - share) * gains(mean[..., k:])[..., 0]

        names = both([_name(ablation, heads) for heads in reversed(chosen)])
        return Estimand.from_block(np.hstack(columns), gain, f"chosen {names}", *notes, clusters=clusters, **more)

    return ColumnSelection(tuple(sign * all_gains(ablation, ~judged) for judged in (first, ~first)), build).estimand


def _name(ablation: Measurement, chosen: int) -> str:
    return name_of(ablation, chosen, "score")


@quantity("best-head-gain", unit="points", inherits=False, ablation=HEAD_ABLATION)
def best_head(ablation: Measurement) -> Estimand:
    """Return the gain of the best head (K19 figure 8), selected on one half of the examples and tested on the other.

    Without the split, the best of many heads would have a positive gain by chance. The notes give the naive gain, for
    which the head is selected and tested on all examples, and the 95% quantile of the naive gain under the null
    hypothesis (`largest_by_luck`).
    """
    naive = all_gains(ablation)
    best = f"naive best {naive.max():+.2f} ({_name(ablation, int(naive.argmax()))})"
    return _cross_fitted(ablation, 1, best, slow_note=lambda: _luck_note(ablation))


def _luck_note(ablation: Measurement) -> str:
    naive, null = all_gains(ablation), largest_by_luck(ablation)
    share = float((1 + (null >= naive.max() - 1e-9).sum()) / (1 + len(null)))
    quantile = np.quantile(null, 0.95)
    heads = counted(len(naive), "head")
    return f"by chance, the best of {heads} gains at most {quantile:+.2f} in 95 % of draws (p {share:.4f})"


@quantity("best-head-gain-in-sample", unit="points", inherits=False, ablation=HEAD_ABLATION)
def best_head_in_sample(ablation: Measurement) -> Estimand:
    """Return the gain of the best head, which is selected and tested on the same examples, as in K19."""
    return _in_sample(ablation, 1, slow_note=lambda: _luck_note(ablation))


@quantity("worst-head-gain-in-sample", unit="points", inherits=False, ablation=HEAD_ABLATION)
def worst_head_in_sample(ablation: Measurement) -> Estimand:
    """Return the gain of the most important head, which is selected and tested on the same examples, as in K19."""
    return _in_sample(ablation, -1)


def _in_sample(ablation: Measurement, sign: int, **more: Any) -> Estimand:
    """Return the largest (`sign` 1) or smallest (`sign` -1) gain of any head, selecting the head in each resample."""
    block, gains = gains_of(ablation)
    head = _name(ablation, int((sign * gains(block.mean(0))).argmax()))
    extreme = lambda mean: sign * (sign * gains(mean)).max(-1)  # noqa: E731
    return Estimand.from_block(block, extreme, head, clusters=clusters_of(ablation), **more)


def largest_by_luck(ablation: Measurement, draws: int = NULL_DRAWS) -> Float[np.ndarray, " draws"]:
    """Return draws of the largest gain of any set of heads, under the null hypothesis that ablation has no effect.

    Each draw swaps the baseline and ablated predictions of an example with probability 0.5. The examples of a cluster
    are swapped together. Within a draw, the same examples are swapped for all sets, which preserves the dependence
    between sets.
    """
    clusters = clusters_of(ablation)
    block, _ = gains_of(ablation)
    metric, k = metric_of(ablation), block.shape[1] // (len(ablation.sample("predicted")) + 1)
    before, after = np.tile(block[:, :k], block.shape[1] // k - 1), block[:, k:]
    rng, largest = np.random.default_rng(NULL_SEED), []
    for start in range(0, draws, NULL_DRAWS_AT_ONCE):
        units = len(block) if clusters is None else int(clusters.max()) + 1
        swapped = rng.integers(2, size=(min(NULL_DRAWS_AT_ONCE, draws - start), units)).astype(float)
        swapped = swapped if clusters is None else swapped[:, clusters]
        moved = swapped @ (before - after) / len(block)
        shape = (len(moved), -1, k)
        ablated, baseline = (after.mean(0) + moved).reshape(shape), (before.mean(0) - moved).reshape(shape)
        largest.append((100 * metric(ablated) - 100 * metric(baseline)).max(-1))
    return np.concatenate(largest)


@quantity("worst-head-gain", unit="points", inherits=False, ablation=HEAD_ABLATION)
def worst_head(ablation: Measurement) -> Estimand:
    """Return the gain of the head with the lowest gain, selected and tested on different halves of the examples."""
    return _cross_fitted(ablation, -1)


@quantity("mean-head-gain", unit="points", inherits=False, ablation=HEAD_ABLATION)
def mean_gain(ablation: Measurement) -> Estimand:
    """Return the gain from disabling a single head, averaged over all heads (K19 section 4.6)."""
    block, gains = gains_of(ablation)
    return Estimand.from_block(block, lambda mean: gains(mean).mean(-1), clusters=clusters_of(ablation))


@quantity("best-head-gain-over-tasks", unit="points", inherits=False, ablations=HEAD_ABLATIONS_BY_TASK)
def best_head_over_tasks(ablations: tuple[Measurement, ...]) -> Estimand:
    """Return the gain of the best head of each task, as in `best-head-gain`, averaged over the tasks with data."""
    return _over_tasks(ablations, [_cross_fitted(ablation, 1) for ablation in ablations])


@quantity("mean-head-gain-over-tasks", unit="points", inherits=False, ablations=HEAD_ABLATIONS_BY_TASK)
def mean_gain_over_tasks(ablations: tuple[Measurement, ...]) -> Estimand:
    """Return the gain from disabling a single head, averaged over all heads and over the tasks with data."""
    return _over_tasks(ablations, [mean_gain(ablation) for ablation in ablations])


def _over_tasks(ablations: Sequence[Measurement], by_task: Sequence[Estimand]) -> Estimand:
    """Return the mean over tasks, with the value on each task as a note."""

    def mean(by_task: Sequence[Estimand]) -> Estimand:
        values = zip(ablations, by_task, strict=True)
        note = ", ".join(f"{TASKS[ablation.subject.task].title} {task.value:+.2f}" for ablation, task in values)
        return replace(mean_over_tasks(by_task), notes=(note,))

    return ColumnSelection.joined(by_task, mean)


@quantity("heads-without-effect", unit="percent", inherits=False, within=(0, 100), ablation=HEAD_ABLATION)
def without_effect(ablation: Measurement) -> Estimand:
    """Return the percentage of heads that can be disabled without changing the score by a tenth of a point.

    With few examples, a head counts only if disabling it changes no prediction, or if the changes cancel out.
    """
    block, gains = gains_of(ablation)
    share = lambda mean: 100 * (abs(gains(mean)) < EFFECT_POINTS).mean(-1)  # noqa: E731
    note = f"one example in {len(block)} is {100 / len(block):.2f} points"
    return Estimand.from_block(block, share, note, clusters=clusters_of(ablation))


@quantity("heads-without-changed-answers", unit="percent", inherits=False, within=(0, 100), ablation=HEAD_ABLATION)
def without_changed_answers(ablation: Measurement) -> Estimand:
    """Return the percentage of heads that can be disabled without changing a single prediction on the validation set.

    The claim is about these examples, so they are not resampled.
    """
    if TASKS[ablation.subject.task].regression:
        raise NotApplicableError("the answers are numbers, which change slightly when any head is disabled")
    changed = (ablation.sample("predicted") != ablation.sample("baseline_predicted")).astype(np.float64).T
    note = f"disabling a head changes {changed.sum(0).mean():.1f} of {len(changed)} answers on average"
    limited = "heads that change no answer can be counted only on the whole validation set"
    unmet = limited if ablation.provenance.limits.get("limit") else ""
    return Estimand.from_block(changed, lambda mean: 100 * (mean == 0).mean(-1), note, sampled=False, unmet=unmet)


@quantity("first-layer-gain", unit="points", inherits=False, ablation=LAYER_ABLATION)
def first_layer(ablation: Measurement) -> Estimand:
    """Return the gain from disabling the first layer (K19 figure 9)."""
    block, gains = gains_of(ablation, [0])
    return Estimand.from_block(block, lambda mean: gains(mean)[..., 0], clusters=clusters_of(ablation))


@quantity("best-layer-gain", unit="points", inherits=False, ablation=LAYER_ABLATION)
def best_layer(ablation: Measurement) -> Estimand:
    """Return the gain of the best layer (K19 figure 9), selected and tested on different halves of the examples."""
    by_layer = ", ".join(f"{gain:+.1f}" for gain in all_gains(ablation))
    return _cross_fitted(ablation, 1, f"from layer 1: {by_layer}")


@quantity("named-heads-gain", unit="points", inherits=False, ablation=HEAD_ABLATION)
def named_heads(ablation: Measurement, heads: Heads = FRAME_HEADS) -> Estimand:
    """Return the smallest gain from disabling one of the named heads, given as (layer, head) pairs counted from 1."""
    sets = [place(ablation, layer, head, "score") for layer, head in heads]
    block, gains = gains_of(ablation, sets)
    by_set = zip(sets, gains(block.mean(0)), strict=True)
    notes = [f"{_name(ablation, chosen)} {gain:+.2f}" for chosen, gain in by_set]
    return Estimand.from_block(block, gains, *notes, clusters=clusters_of(ablation), extreme="least")


@quantity("named-heads-gain-over-tasks", unit="points", inherits=False, ablations=HEAD_ABLATIONS_BY_TASK)
def named_heads_over_tasks(ablations: tuple[Measurement, ...], heads: Heads = FRAME_HEADS) -> Estimand:
    """Return the smallest gain of any named head, after averaging each head's gain over the tasks with data."""
    return _over_tasks(ablations, [named_heads(ablation, heads) for ablation in ablations])


@quantity(
    "own-frame-heads-gain-over-tasks", unit="points", inherits=False, ablations=HEAD_ABLATIONS_BY_TASK, frames=FRAMES
)
def own_frame_heads_over_tasks(ablations: tuple[Measurement, ...], frames: Measurement) -> Estimand:
    """Return the smaller gain of the model's two best frame heads, each gain averaged over the tasks with data."""
    return named_heads_over_tasks(ablations, top(frames, 2, "max_weight"))


@quantity("own-frame-heads-gain", unit="points", inherits=False, ablation=HEAD_ABLATION, frames=FRAMES)
def own_frame_heads(ablation: Measurement, frames: Measurement) -> Estimand:
    """Return the smallest gain from disabling one of the model's two best frame heads."""
    return named_heads(ablation, top(frames, 2, "max_weight"))


def _of_kinds(measure: str) -> dict[str, Need]:
    """Return the required measurement of each kind of ablation, keyed by the name of the kind."""
    return {kind: Need(measure, options={} if kind == "uniform" else {"kind": kind}) for kind in ABLATION_KINDS}


def _side_by_side(
    blocks: Sequence[Block],
) -> tuple[Float[np.ndarray, "examples all"], Callable[[np.ndarray], list[np.ndarray]]]:
    """Join blocks that have the same rows, and return a function that splits column means into a part per block."""
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    return np.hstack(blocks), lambda mean: np.split(mean, ends, axis=-1)


def _over_kinds(name: str, need: Need, read: Callable[[Measurement], Estimand], extreme: Extreme) -> None:
    """Register a new quantity: the smallest or largest value of the quantity `name` over all kinds of ablation."""

    def joined(estimands: Sequence[Estimand]) -> Estimand:
        block, split = _side_by_side([estimand.blocks[0] for estimand in estimands])

        def statistic(mean: np.ndarray) -> Number:
            parts = zip(estimands, split(mean), strict=True)
            return np.stack([estimand.statistic(part) for estimand, part in parts], axis=-1)

        by_kind = zip(ABLATION_KINDS, estimands, strict=True)
        note = ", ".join(f"{kind} {estimand.value:+.2f}" for kind, estimand in by_kind)
        return Estimand.from_block(block, statistic, note, clusters=estimands[0].clusters[0], extreme=extreme)

    def over_kinds(uniform: Measurement, zero: Measurement, mean: Measurement, resampled: Measurement) -> Estimand:
        return ColumnSelection.joined([read(ablation) for ablation in (uniform, zero, mean, resampled)], joined)

    size = "smallest" if extreme == "least" else "largest"
    over_kinds.__doc__ = f"Return the {size} value of `{name}` for any kind of ablation."
    quantity(f"{name}-of-kinds", unit="points", inherits=False, within=ANY_VALUE, **_of_kinds(need.measure))(over_kinds)


_over_kinds("best-head-gain", HEAD_ABLATION, lambda ablation: _cross_fitted(ablation, 1), "least")
_over_kinds("mean-head-gain", HEAD_ABLATION, mean_gain, "least")
_over_kinds("worst-head-gain", HEAD_ABLATION, worst_head, "most")
_over_kinds("first-layer-gain", LAYER_ABLATION, first_layer, "least")


@quantity("shared-harm-rank-of-kinds", unit="percent", inherits=False, within=(0, 100), **_of_kinds("head-ablation"))
def shared_harm_of_kinds(
    uniform: Measurement, zero: Measurement, mean: Measurement, resampled: Measurement
) -> Estimand:
    """Return the mean rank that the most important heads under one kind of ablation have under another kind.

    The rank of a head is the percentage of heads that are more important. Uniform ablation is paired with every other
    kind. In each pair, the top heads under each kind are ranked under the other kind, and all ranks are averaged. The
    largest average is returned. By chance, each average would be 50. Each resample selects the top heads again.
    """
    kinds = (uniform, zero, mean, resampled)
    _check_heads(uniform)
    blocks, gains = zip(*map(gains_of, kinds), strict=True)
    block, split = _side_by_side(blocks)

    def statistic(mean: np.ndarray) -> Number:
        on_first, *on_others = (of(part) for of, part in zip(gains, split(mean), strict=True))
        return np.stack([_shared_rank(on_first, on_second) for on_second in on_others], axis=-1)

    shares = ["", *(f" {part:.1f}" for part in np.atleast_1d(statistic(block.mean(0))))]
    by_kind = zip(ABLATION_KINDS, shares, kinds, strict=True)
    notes = [f"{kind}{share}: {_most_harmful(ablation)}" for kind, share, ablation in by_kind]
    return Estimand.from_block(block, statistic, *notes, clusters=clusters_of(uniform), extreme="most")


@quantity("score-without-attention", unit="points", inherits=False, within=score_range, ablation=HEAD_ABLATION)
def without_attention(ablation: Measurement) -> Estimand:
    """Return accuracy, or Pearson's correlation, with all heads of all layers disabled (option `heads`: `all`).

    The notes give the score with all heads and that of the majority class.
    """
    metric, target = metric_name(ablation), ablation.sample("target")
    with_all, without = (
        moments(metric, ablation.sample(name).reshape(-1, len(target))[0], target)
        for name in ("baseline_predicted", "predicted")
    )
    points = in_points(metric)
    note = f"{float(points(with_all.mean(0))):.1f} with all heads"
    if metric == "accuracy":
        note += f", {100 * float(np.bincount(target.astype(int)).max()) / len(target):.1f} for the most frequent class"
    return Estimand.from_block(without, points, note, clusters=clusters_of(ablation))


def _ranks(
    gains: Float[np.ndarray, "*any sets"], chosen: Int[np.ndarray, "*any_choice chosen"]
) -> Float[np.ndarray, "*any_rank chosen"]:
    """Return, for each head in `chosen`, the percentage of heads that are more important. Ties count half."""
    shape = np.broadcast_shapes(gains.shape[:-1], chosen.shape[:-1])
    gains = np.broadcast_to(gains, (*shape, gains.shape[-1]))
    own = np.take_along_axis(gains, np.broadcast_to(chosen, (*shape, chosen.shape[-1])), axis=-1)[..., None]
    less, same = (gains[..., None, :] < own).sum(-1), (gains[..., None, :] == own).sum(-1) - 1
    return 100 * (less + same / 2) / gains.shape[-1]


@quantity("named-heads-harm-rank", unit="percent", inherits=False, within=(0, 100), ablations=STSB_AND_RTE)
def named_harm(ablations: tuple[Measurement, ...], heads: Heads = HARMFUL_HEADS) -> Estimand:
    """Return the worst rank of any named head on any task, as the percentage of heads that are more important."""
    blocks, gains = zip(*(gains_of(ablation) for ablation in ablations), strict=True)
    sets = np.array([place(ablations[0], layer, head, "score") for layer, head in heads])

    def statistic(*means: np.ndarray) -> Number:
        by_task = np.broadcast_arrays(*(_ranks(of(mean), sets) for of, mean in zip(gains, means, strict=True)))
        return np.concatenate(by_task, axis=-1)

    clusters = tuple(map(clusters_of, ablations))
    return Estimand(tuple(blocks), statistic, _by_task(ablations), clusters=clusters, extreme="most")


@quantity("shared-harm-rank", unit="percent", inherits=False, within=(0, 100), ablations=STSB_AND_RTE)
def shared_harm(ablations: tuple[Measurement, ...]) -> Estimand:
    """Return the mean rank that the most important heads on one task have on the other task.

    The rank of a head is the percentage of heads that are more important. The top heads of each task are ranked on the
    other task, and all of these ranks are averaged. By chance, the average would be 50. Each resample selects the top
    heads again.
    """
    _check_heads(ablations[0])
    blocks, gains = zip(*(gains_of(ablation) for ablation in ablations), strict=True)

    def statistic(*means: np.ndarray) -> Number:
        return _shared_rank(*(of(mean) for of, mean in zip(gains, means, strict=True)))

    return Estimand(tuple(blocks), statistic, _by_task(ablations), clusters=tuple(map(clusters_of, ablations)))


def _check_heads(ablation: Measurement) -> None:
    if len(ablation.sample("predicted")) <= 2 * TOP_HEADS:
        raise NotApplicableError(f"the model has too few heads to compare {TOP_HEADS} of them with the others")


def _shared_rank(on_first: np.ndarray, on_second: np.ndarray) -> Number:
    """Rank the top heads of each array by the gains in the other array, and return the mean of all these ranks."""
    first, second = (on.argsort(-1, kind="stable")[..., :TOP_HEADS] for on in (on_first, on_second))
    return (_ranks(on_first, second).mean(-1) + _ranks(on_second, first).mean(-1)) / 2


def _by_task(ablations: Sequence[Measurement]) -> tuple[str, ...]:
    return tuple(f"{ablation.subject.task}: {_most_harmful(ablation)}" for ablation in ablations)


def _most_harmful(ablation: Measurement) -> str:
    order = np.argsort(np.asarray(ablation.value("score")), axis=None, kind="stable")[:TOP_HEADS]
    return f"most harmful {' and '.join(_name(ablation, int(chosen)) for chosen in order)}"


@quantity("figure-8-correlation", "published", unit="r", inherits=False, ablation=HEAD_ABLATION)
def figure_8(ablation: Measurement) -> Estimand:
    """Return the correlation of gains with K19's figure 8, minus the highest reference correlation."""
    block, gains = gains_of(ablation)
    return likeness(ablation, block, panels("fig8_head"), to_map=gains)


@quantity("figure-9-correlation", "published", unit="r", inherits=False, ablation=LAYER_ABLATION)
def figure_9(ablation: Measurement) -> Estimand:
    """Return the correlation of gains with K19's figure 9, minus the highest reference correlation.

    Figure 9 has one score per layer, so layers are shuffled to obtain the null distribution. Twelve gains are too few
    for their noise to average out, so gains are averaged across seeds before they are correlated with the figure.
    """
    block, gains = gains_of(ablation)
    return likeness(ablation, block, panels("fig9_layer"), to_map=gains, average=True)
