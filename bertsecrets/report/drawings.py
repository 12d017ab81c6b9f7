"""Which pictures a measurement gets in the report: one entry per measure, the paper's own figures where it has one."""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.gains import gain_intervals
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.report.figures import (
    class_map,
    gain_bars,
    gain_map,
    heat_map,
    layer_curves,
    ranked_heads,
    stacked_shares,
)
from bertsecrets.report.text import task_title
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

Drawing = tuple[str, str]  # caption, SVG


def draw(found: Measurement) -> list[Drawing]:
    """A measurement's pictures: (caption, SVG), none where the measure has none."""
    subject = found.subject
    who = ", ".join([subject.model, task_title(subject.task), subject.initialisation, f"seed {subject.seed}"])
    if subject.task == ALL_TASKS:
        who = f"{subject.model}, the encoder alone"
    return [(caption.format(who=who), svg) for caption, svg in DRAWERS.get(found.measure, _none)(found)]


def _none(found: Measurement) -> Iterator[Drawing]:
    yield from ()


def _change(found: Measurement) -> Iterator[Drawing]:
    form = f"padded to {found.options['padded_to']}" if "padded_to" in found.options else "cropped"
    caption = f"Similarity of each head's attention before and after fine-tuning ({form}): {{who}} (K19 figure 5)"
    yield caption, heat_map(found.value("cosine"), form, 0, 1, "cosine similarity")


def _special(found: Measurement) -> Iterator[Drawing]:
    curves = {
        f"[{name.upper()}]": np.asarray(found.value(name)).mean(1)
        for name in ("cls", "sep")
        if not np.isnan(found.value(name)).all()
    }
    if curves:
        caption = "Attention to [CLS] and [SEP] by layer, mean over heads: {who} (K19 figure 6)"
        yield caption, layer_curves(curves, "", "attention received")


def _frames(found: Measurement) -> Iterator[Drawing]:
    values = found.value("max_weight")
    caption = "Maximum attention from core frame elements to their target, mean over sentences: {who} (K19 figure 3)"
    yield caption, heat_map(values, "all pairs", 0, float(np.nanmax(values)), "maximum weight")
    low, high = (np.ravel(found.value(f"max_weight_{end}")) for end in ("low", "high"))
    caption = "The same, head by head, each with its 95 % interval over sentences: {who}"
    yield caption, ranked_heads(np.ravel(values), low, high, np.shape(values)[1], "maximum weight")


def _points(found: Measurement) -> Float[np.ndarray, "..."]:
    return 100 * (np.asarray(found.value("score")) - found.value("baseline"))


def _heads(found: Measurement) -> Iterator[Drawing]:
    gains = _points(found)
    if gains.ndim == 2:  # not for a list of sets that someone named
        metric = TASKS[found.subject.task].metric
        title = f"baseline {found.values['baseline']:.3f}"
        caption = f"What disabling each head changes, in points of {metric}: {{who}} (K19 figure 8)"
        yield caption, gain_map(gains, title, "points")
        low, high = gain_intervals(found)
        caption = (
            "The same, head by head from the most harmful to lose, each with its 95 % interval over examples: {who}"
        )
        yield caption, ranked_heads(gains.ravel(), low, high, gains.shape[1], "points")


def _layers(found: Measurement) -> Iterator[Drawing]:
    metric = TASKS[found.subject.task].metric
    caption = f"What disabling each layer changes, in points of {metric}: {{who}} (K19 figure 9)"
    bounds = gain_intervals(found)
    yield caption, gain_bars(_points(found), bounds, f"baseline {found.values['baseline']:.3f}", "points")


def _patterns(found: Measurement) -> Iterator[Drawing]:
    shares = {name: np.asarray(found.value(f"share_{name.replace('-', '_')}")).mean(1) for name in CLASSES}
    yield "Share of each class of attention maps by layer: {who} (K19 figure 2)", stacked_shares(shares)
    caption = "Most frequent class of each head's maps; pale where other classes are frequent too: {who}"
    yield (
        caption,
        class_map(np.asarray(found.value("majority"), dtype=int), np.asarray(found.value("agreement")), CLASSES),
    )


DRAWERS: dict[str, Callable[[Measurement], Iterator[Drawing]]] = {
    "attention-change": _change,
    "special-tokens": _special,
    "frame-heads": _frames,
    "head-ablation": _heads,
    "layer-ablation": _layers,
    "patterns": _patterns,
}
