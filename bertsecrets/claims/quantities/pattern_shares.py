"""Classes of attention maps: their proportions, corrected for classifier errors, and the consistency of heads.

The argument `reading` chooses an interpretation of K19's definitions (`patterns.readings`). The default is that of
section 4.1. Class proportions depend on two independent samples: the examples, and the annotated heads used to estimate
classifier errors. For a model without annotated maps, the proportions also depend on how the classifier's error varies
from encoder to encoder.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

import bertsecrets.patterns
from bertsecrets.claims.estimand import Estimand, Extreme, Number, clusters_of, halves
from bertsecrets.claims.quantities.likeness import SHUFFLE_QUANTILE, correlation
from bertsecrets.claims.quantity import Need, OneOrMore, quantity
from bertsecrets.models.locations import is_papers_model, recorded_name
from bertsecrets.models.packaged import PUBLISHED_NAMES
from bertsecrets.patterns.classes import CLASSES, ClassName
from bertsecrets.patterns.readings import Reading
from bertsecrets.patterns.shares import corrected, heads_to_draw, raw_shares
from bertsecrets.texts.metrics import FEWEST_EXAMPLES, macro_f1
from bertsecrets.texts.published import SEVEN_TASKS, figure_2_share
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement

CLASS_COUNT = len(CLASSES)
Classes = OneOrMore[ClassName]
PATTERNS, PATTERNS_BEFORE = Need("patterns"), Need("patterns", "against")
NEW_ENCODER_NOTE = "the interval accounts for the classifier's errors on encoders that it was not trained on"
AUTHORS_NOTE = "for the authors' maps, run python -m instruments import-patterns, then train-patterns --outside k19=DIR"


def _blocks(patterns: Measurement, reading: str) -> tuple[np.ndarray, np.ndarray]:
    return patterns.sample(f"{reading}_expected"), patterns.sample(f"{reading}_errors")


def _predicted(patterns: Measurement, reading: str) -> Int[np.ndarray, "examples heads"]:
    predicted = patterns.sample(f"{reading}_predicted")
    return predicted.reshape(len(predicted), -1)


def _heads(patterns: Measurement, reading: str) -> int:
    return _predicted(patterns, reading).shape[1]


@functools.cache
def left_out_errors(reading: str) -> Float[np.ndarray, "encoders classes"]:
    """Return, for each annotated encoder, the classifier's mean error if it is trained without that encoder's maps."""
    report = json.loads((Path(bertsecrets.patterns.__file__).parent / "weights" / "report.json").read_text("utf-8"))
    models = report["readings"].get(reading, {"models": {}})["models"].values()
    return np.array([model["left_out_error"] for model in models if "left_out_error" in model]).reshape(-1, CLASS_COUNT)


def annotated(model: str, models: Sequence[str]) -> bool:
    """Return whether maps of this model were annotated. The model is recognised by its weights."""
    name = recorded_name(model)
    return PUBLISHED_NAMES.get(name, name) in models


def prediction_factor(count: int) -> float:
    """Return the width of Student's 95% prediction interval for one more encoder, divided by that of a normal interval.

    Mean and variance are estimated from `count` encoders. The ratio is used at all confidence levels, although
    Student's intervals widen faster.

    >>> round(prediction_factor(7), 2)
    1.44
    """
    from scipy.special import ndtri, stdtrit  # scipy.stats would take five times as long to import

    return float(stdtrit(count - 1, 0.975) / ndtri(0.975) * np.sqrt((count + 1) / (count - 1)))


def new_encoder(patterns: Measurement, reading: str) -> Float[np.ndarray, "rows classes"] | None:
    """Return a block whose resamples represent the classifier's unknown error on a new encoder.

    The mean of the block is 0. The mean of a resample varies as much as the classifier's error varies between encoders.
    A resample draws `FEWEST_EXAMPLES` rows, so that its mean is normally distributed. The result is None if maps of
    this model were annotated, because the held-out errors then already include errors on this model's heads.
    """
    models, errors = patterns.settings.get("annotated_models"), left_out_errors(reading)
    if not models or annotated(patterns.subject.model, models) or len(errors) < 2:
        return None
    scale = np.sqrt(FEWEST_EXAMPLES) * prediction_factor(len(errors))
    off = scale * (errors - patterns.sample(f"{reading}_errors").mean(0))
    return np.tile(np.concatenate([off, -off]), (FEWEST_EXAMPLES, 1))


def _of_shares(
    by_task: Sequence[Measurement], reading: Reading, statistic: Callable[[np.ndarray], Number], *notes: str
) -> Estimand:
    """Compute a statistic from the corrected class percentages of a model, an array [..., task, class].

    Errors are drawn independently for each task; only the error due to a new encoder is the same on all tasks.
    """
    pairs = [_blocks(patterns, reading) for patterns in by_task]
    blocks = [block for pair in pairs for block in pair]
    heads = _heads(by_task[0], reading)
    drawn = [count for _, errors in pairs for count in (None, heads_to_draw(heads, len(errors)))]
    clusters = [clusters for patterns in by_task for clusters in (clusters_of(patterns), None)]
    if (encoder := new_encoder(by_task[0], reading)) is not None:
        blocks, drawn, clusters = [*blocks, encoder], [*drawn, FEWEST_EXAMPLES], [*clusters, None]
        theirs = [AUTHORS_NOTE] if is_papers_model(by_task[0].subject.model) else []
        notes = (*notes, NEW_ENCODER_NOTE, *theirs)

    def of_means(*means: np.ndarray) -> Number:
        both = 2 * len(pairs)
        by_pair = zip(means[:both:2], means[1:both:2], strict=True)
        shares = (corrected(expected, sum(means[both:], errors)) for expected, errors in by_pair)
        return statistic(100 * np.stack(np.broadcast_arrays(*shares), axis=-2))

    return Estimand(tuple(blocks), of_means, notes, drawn=tuple(drawn), clusters=tuple(clusters))


@quantity("class-share", unit="percent", within=(0, 100), patterns=PATTERNS)
def class_share(patterns: Measurement, classes: Classes, reading: Reading = "special") -> Estimand:
    """Return the percentage of all maps that belong to any of the classes (K19 figure 2)."""
    chosen = [CLASSES.index(name) for name in classes]
    raw = raw_shares(_predicted(patterns, reading)).mean(0)[chosen].sum()
    note = f"{100 * raw:.1f} % before the correction for the classifier's errors"
    return _of_shares([patterns], reading, lambda shares: shares[..., 0, chosen].sum(-1), note)


@quantity("heads-of-class", unit="heads", within=(0, float("inf")), patterns=PATTERNS)
def heads_of_class(patterns: Measurement, class_name: ClassName, reading: Reading = "special") -> Estimand:
    """Return the number of heads whose most frequent class, according to the classifier, is the given class."""
    place = CLASSES.index(class_name)
    return _of_head_counts(patterns, reading, lambda counts: counts[..., place])


@quantity("heads-of-rarest-class", unit="heads", within=(0, float("inf")), patterns=PATTERNS)
def heads_of_rarest_class(patterns: Measurement, reading: Reading = "special") -> Estimand:
    """Count the heads by their most frequent class, according to the classifier, and return the smallest count."""
    return _of_head_counts(patterns, reading, lambda counts: counts, extreme="least")


def _of_head_counts(
    patterns: Measurement, reading: str, statistic: Callable[[np.ndarray], np.ndarray], extreme: Extreme | None = None
) -> Estimand:
    """Count the heads by their most frequent class, and compute a statistic from the counts, an array [..., class].

    The counts are not corrected for the classifier's errors, so claims about them tolerate one misclassified head.
    """

    def counts(mean: np.ndarray) -> np.ndarray:
        most_frequent = _by_head(mean).argmax(-1)
        return statistic((most_frequent[..., None] == np.arange(CLASS_COUNT)).sum(-2).astype(np.float64))

    block = _one_hot(patterns, reading)
    numbers = _by_head(block.mean(0)).argmax(-1)
    note = "heads by class: " + ", ".join(f"{name} {(numbers == i).sum()}" for i, name in enumerate(CLASSES))
    return Estimand.from_block(block, counts, note, clusters=clusters_of(patterns), extreme=extreme)


@quantity("class-share-gap", unit="percent", first=Need("patterns", task="qqp"), second=Need("patterns", task="mrpc"))
def share_gap(first: Measurement, second: Measurement, reading: Reading = "special") -> Estimand:
    """Return the percentage of heterogeneous maps on the first task minus that on the second.

    Both tasks have the same heads, but the classifier may make different errors on each task. Errors are therefore
    drawn independently for each task, one error per head. The mean error of the annotated heads is also uncertain, but
    this uncertainty is the same for both tasks and cancels in the difference.
    """
    place = CLASSES.index("heterogeneous")
    heads = _heads(first, reading)

    def gap(expected: np.ndarray, errors: np.ndarray, expected_2: np.ndarray, errors_2: np.ndarray) -> Number:
        return 100 * (corrected(expected, errors)[..., place] - corrected(expected_2, errors_2)[..., place])

    blocks = (*_blocks(first, reading), *_blocks(second, reading))
    clusters = (clusters_of(first), None, clusters_of(second), None)
    return Estimand(blocks, gap, drawn=(None, heads, None, heads), clusters=clusters)


PATTERNS_BY_TASK = Need("patterns", tasks=SEVEN_TASKS, least=4)


@quantity("figure-2-rank-correlation", unit="r", within=(-2, 1), by_task=PATTERNS_BY_TASK)
def figure_2_order(by_task: tuple[Measurement, ...], classes: Classes, reading: Reading = "special") -> Estimand:
    """Return Spearman's correlation of class shares with K19's figure 2 across tasks, minus a chance level.

    The chance level is the 95% quantile of the correlation over all possible orders of the tasks.
    """
    figure = np.array([figure_2_share(measurement.subject.task, classes) for measurement in by_task])
    orders = np.array(list(permutations(range(len(figure)))), dtype=np.float64)
    reached = correlation(orders, figure, ranks=True).round(9)
    chance = float(np.quantile(reached, SHUFFLE_QUANTILE, method="higher"))
    estimand = _over_tasks(by_task, classes, reading, lambda shares: correlation(shares, figure, ranks=True) - chance)
    note = f"rank correlation {estimand.value + chance:.2f} over {len(figure)} tasks"
    shuffled = f"{SHUFFLE_QUANTILE:.0%} quantile with shuffled tasks {chance:.2f}"
    return replace(estimand, notes=(f"{note}, {shuffled}", *estimand.notes))


@quantity("figure-2-difference", unit="percent", within=(0, 100), by_task=PATTERNS_BY_TASK)
def figure_2_difference(by_task: tuple[Measurement, ...], classes: Classes, reading: Reading = "special") -> Estimand:
    """Return the absolute difference between class shares and K19's figure 2, averaged over the tasks with data."""
    figure = np.array([figure_2_share(measurement.subject.task, classes) for measurement in by_task])
    return _over_tasks(by_task, classes, reading, lambda shares: abs(shares - figure).mean(-1))


def _over_tasks(
    by_task: Sequence[Measurement], classes: Classes, reading: Reading, statistic: Callable[[np.ndarray], Number]
) -> Estimand:
    """Compute a statistic from the total percentages of the given classes on all tasks, an array [..., task]."""
    chosen = [CLASSES.index(name) for name in classes]
    shares = {TASKS[each.subject.task].title: class_share(each, classes, reading).value for each in by_task}
    note = ", ".join(f"{title} {value:.1f}" for title, value in shares.items())
    return _of_shares(by_task, reading, lambda by_class: statistic(by_class[..., chosen].sum(-1)), note)


@quantity("class-share-change", unit="percent", within=(-100, 100), after=PATTERNS, before=PATTERNS_BEFORE)
def share_change(after: Measurement, before: Measurement, classes: Classes, reading: Reading = "special") -> Estimand:
    """Return the change in the total percentage of some classes, relative to the pretrained model."""
    chosen = [CLASSES.index(name) for name in classes]
    return _change(after, before, reading, lambda change: change[..., chosen].sum(-1))


@quantity("largest-share-change", unit="percent", within=(0, 100), after=PATTERNS, before=PATTERNS_BEFORE)
def largest_change(after: Measurement, before: Measurement, reading: Reading = "special") -> Estimand:
    """Return the largest absolute change in the percentage of any class, relative to the pretrained model."""
    estimand = _change(after, before, reading, lambda change: np.concatenate([change, -change], axis=-1))
    parts = estimand.parts[:CLASS_COUNT]
    note = ", ".join(f"{name} {part:+.1f}" for name, part in zip(CLASSES, parts, strict=True))
    return replace(estimand, extreme="most", notes=(note,))


def _change(
    after: Measurement, before: Measurement, reading: str, statistic: Callable[[np.ndarray], Number]
) -> Estimand:
    """Compute a statistic from the changes in all class percentages, on the same examples.

    The classifier may make different errors on each model, so errors are drawn independently, as in `share_gap`.
    """
    heads = _heads(after, reading)
    (expected, errors), (expected_before, errors_before) = _blocks(after, reading), _blocks(before, reading)

    def change(means: np.ndarray, errors: np.ndarray, errors_before: np.ndarray) -> Number:
        shares = corrected(means[..., :CLASS_COUNT], errors) - corrected(means[..., CLASS_COUNT:], errors_before)
        return statistic(100 * shares)

    blocks = (np.hstack([expected, expected_before]), errors, errors_before)
    return Estimand(blocks, change, drawn=(None, heads, heads), clusters=(clusters_of(after), None, None))


def _one_hot(patterns: Measurement, reading: str) -> Float[np.ndarray, "examples columns"]:
    """Return the one-hot class of each map, with one row per example, and columns ordered by head and then by class."""
    predicted = _predicted(patterns, reading)
    return (predicted[:, :, None] == np.arange(CLASS_COUNT)).reshape(len(predicted), -1).astype(np.float64)


def _by_head(mean: Float[np.ndarray, "*any columns"]) -> Float[np.ndarray, "*any heads classes"]:
    return mean.reshape(*mean.shape[:-1], -1, CLASS_COUNT)


@quantity("class-steadiness", unit="percent", within=(0, 100), patterns=PATTERNS)
def steadiness(patterns: Measurement, reading: Reading = "special") -> Estimand:
    """Return the percentage of a head's maps that belong to its most frequent class, averaged over heads.

    A head's most frequent class is selected on one half of the examples, and the percentage is computed on the other
    half. Otherwise, the percentage would be too high: if two classes are equally likely, for instance, one of them has
    more than half of the maps by chance.
    """
    predicted, clusters = _predicted(patterns, reading), clusters_of(patterns)
    first, one_hot = halves(len(predicted), clusters), _one_hot(patterns, reading)
    by_first, by_second = (_by_head(one_hot[half].sum(0)).argmax(-1) for half in (first, ~first))
    same = predicted == np.where(first[:, None], by_second, by_first)
    block = same.mean(1, dtype=np.float64, keepdims=True)
    return Estimand.from_block(block, lambda mean: 100 * mean[..., 0], clusters=clusters)


@quantity(
    "same-class-across-tasks", unit="percent", within=(0, 100), by_task=Need("patterns", tasks=SEVEN_TASKS, least=2)
)
def same_across_tasks(by_task: tuple[Measurement, ...], reading: Reading = "special") -> Estimand:
    """Return the percentage of heads with the same most frequent class on two tasks, averaged over pairs of tasks."""

    def same(*means: np.ndarray) -> Number:
        majority = np.broadcast_arrays(*(_by_head(mean).argmax(-1) for mean in means))
        return 100 * np.mean([(a == b).mean(-1) for a, b in combinations(majority, 2)], axis=0)

    blocks = tuple(_one_hot(measurement, reading) for measurement in by_task)
    return Estimand(blocks, same, clusters=tuple(map(clusters_of, by_task)))


@quantity("pattern-macro-f1", unit="macro-F1", inherits=False, within=(0, 1), quality=Need("pattern-quality"))
def macro_f1_of_classifier(quality: Measurement, agreed: bool = False, reading: Reading = "special") -> Estimand:
    """Return the macro-F1 of the classifier on annotated maps of held-out heads (K19 section 4.1).

    Heads are resampled, not maps.

    Args:
        agreed: Whether to use only maps on which annotators agree.
    """
    parts = quality.sample(f"{reading}_{'agreed_' if agreed else ''}confusion").reshape(-1, CLASS_COUNT * CLASS_COUNT)
    return Estimand.from_block(parts, lambda mean: macro_f1(mean.reshape(*mean.shape[:-1], CLASS_COUNT, CLASS_COUNT)))
