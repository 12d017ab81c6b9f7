"""Simulated measurements of attention maps."""

from functools import cache
from typing import Any

import numpy as np

from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.quantities.pattern_shares import left_out_errors
from bertsecrets.measures.base.observers import mean_over_present
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS
from bertsecrets.texts.published import FRAME_DIGEST, FRAME_SENTENCES, published_figures
from bertsecrets.types import Subject
from instruments.calibration import truth
from instruments.calibration.truth import LAST, SHAPE
from instruments.calibration.worlds import Made, Options, SimulatedModel, simulates

CHANGE, ATTENTION, ROW = 0.1, 0.08, 0.1  # standard deviations over examples
RELATIONS = {"noun_pronoun": 0.5, "pronoun_noun": 0.5, "verb_subject": 0.85, "subject_verb": 0.85}
PRESENT = {"noun": 0.98, "verb": 0.95, "pronoun": 0.5, "subject": 0.85, "object": 0.7, "negation": 0.2, **RELATIONS}
CLASS_SPREAD, STEADY_SPREAD = 0.035, 0.01  # over seeds; CLASS_SPREAD is multiplied by the root of a class's share
DIAGONAL_SPREAD, SPECIAL_SPREAD, SEP_SPREAD = 0.05, 0.03, 0.008  # over seeds; the last two are for RTE


def _with_means(samples: dict[str, np.ndarray]) -> Made:
    return dict(mean_over_present(samples)), samples, len(next(iter(samples.values())))


@simulates("attention-change")
def change(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the similarity of each map to the pretrained map. Cropped maps, without padding, change less."""
    pair = truth.similarity(subject.task, model.setting.against)
    scales = (np.where(LAST, 0.03, 0.012), 0.04)
    level = _seeded(model, "change", subject, model.setting.mix(pair), scales, figure=pair[0])
    cosine = model.sampled("change", subject, level, CHANGE)
    cosine = cosine if options.get("padded_to") else 1 - truth.CROPPED * (1 - cosine)
    return _with_means({"cosine": cosine})


def _of_seed(model: SimulatedModel, name: str, subject: Subject, size: tuple[int, ...], scale: Any) -> np.ndarray:
    """Return the effect of a seed on attention maps. This effect is larger on some tasks than on others."""
    return truth.map_seeds(subject.task) * model.of_seed(name, subject, size, scale)


def _seeded(
    model: SimulatedModel, name: str, subject: Subject, level: np.ndarray, scales: Any, figure: np.ndarray | None = None
) -> np.ndarray:
    """Return a level [layers, heads] plus the effects of a seed on layers and on heads.

    Args:
        scales: Standard deviations across seeds of the effects on a layer and on a head, on RTE.
        figure: The task's own published figure, if any. It shows one run, so the differences between its layers and
            between its heads bound these effects.
    """
    of_layers, of_heads = (truth.map_seeds(subject.task) * np.asarray(scale) for scale in scales)
    if figure is not None:
        most_of_layers, most_of_heads = differences_in_figure(figure)
        of_layers, of_heads = np.minimum(of_layers, most_of_layers), np.minimum(of_heads, most_of_heads)
    level = level + model.of_seed(f"{name} layers", subject, (12, 1), of_layers)
    return level + model.of_seed(f"{name} heads", subject, SHAPE, of_heads)


def differences_in_figure(panel: np.ndarray) -> tuple[float, float]:
    """Return how much neighbouring layers, and the heads of a layer, differ in a figure, as standard deviations."""
    steps = np.diff(panel.mean(1))
    return float(np.sqrt((steps**2).mean() / 2)), float(np.sqrt(panel.var(1, ddof=1).mean()))


def _attention(
    model: SimulatedModel, name: str, subject: Subject, level: np.ndarray, figure: np.ndarray | None = None
) -> np.ndarray:
    """Return the attention to a type of token: the truth plus effects of layers, heads and examples."""
    level = _seeded(model, name, subject, level, (0.008, 0.025), figure)
    return model.sampled(name, subject, level, ATTENTION, correlation=0.3)


@simulates("special-tokens")
def special_tokens(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the attention to [CLS] and [SEP]."""
    fine_tuned = subject.initialisation != "untrained"
    levels = truth.special(subject.task, fine_tuned, model.setting.against)
    sep = _of_seed(model, "sep below the last two layers", subject, (1,), SEP_SPREAD) * ~LAST
    common = {"sep": sep, "sep_sum": truth.all_separators(subject.task) * sep}
    samples = {
        kind: _attention(model, kind, subject, model.setting.mix(pair) + common.get(kind, 0.0), figure=pair[0])
        for kind, pair in levels.items()
    }
    share, size = model.setting.mix(truth.on_special(subject.task)), samples["sep"].shape
    share = share + float(_of_seed(model, "on special", subject, (1,), SPECIAL_SPREAD)[0])
    random = model.rng("brightest", subject.task, subject.seed).random(size)
    samples["brightest"] = (random < share).astype(np.float64) if model.noise else np.full(size, share)
    return _with_means(samples)


@simulates("features")
def features(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the attention to types of words, from all tokens and from the last layer's [CLS]."""
    fine_tuned = subject.initialisation != "untrained"
    samples = {}
    for kind, pair in truth.words(subject.task, fine_tuned, model.setting.against).items():
        samples[kind] = _left_out(model, kind, subject, _attention(model, kind, subject, model.setting.mix(pair)))
    for kind, pair in truth.cls_row(subject.task, model.setting.against).items():
        level = model.setting.mix(pair) + _of_seed(model, f"row {kind}", subject, (12,), 0.03)
        row = model.sampled(f"row {kind}", subject, level, ROW)
        samples[f"cls_row_{kind}"] = _left_out(model, kind, subject, row)
    means = mean_over_present({name: sample for name, sample in samples.items() if sample.ndim == 3})
    return dict(means), samples, len(samples["cls"])


def _left_out(model: SimulatedModel, kind: str, subject: Subject, sample: np.ndarray) -> np.ndarray:
    """Mask the inputs that lack a type of token or relation, which are the same for all models of a world."""
    if not model.noise or kind not in PRESENT:
        return sample
    absent = model.rng("present", kind, subject.task).random(len(sample)) > PRESENT[kind]
    sample[absent] = np.nan
    return sample


@simulates("relations")
def relations(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the weight along relations. For each relation, one head is far ahead (heads 1, 3, 5 and 7 of layer 3)."""
    samples = {}
    for place, name in enumerate(RELATIONS):
        level = np.full(SHAPE, 0.1)
        level[2, 2 * place] = 0.6
        samples[name] = _left_out(model, name, subject, _attention(model, name, subject, level))
    return _with_means(samples)


@simulates("patterns")
def patterns(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the classes of all maps under each reading, as the shipped classifier would report them."""
    samples: dict[str, np.ndarray] = {}
    for reading in READINGS:
        fine_tuned = subject.initialisation != "untrained"
        levels = truth.shares(subject.task, reading, fine_tuned, model.setting.against)
        share = np.clip([model.setting.mix(levels[name]) for name in CLASSES], 0, None)
        share = share + _of_seed(model, "classes", subject, share.shape, CLASS_SPREAD * np.sqrt(share))
        share = np.clip(share, 1e-3, None)
        share /= share.sum()
        count = model.map_rows(subject.task)
        samples[f"{reading}_predicted"] = _predicted(model, subject, reading, share, count)
        errors = annotated_errors(reading)
        if not model.noise:
            samples[f"{reading}_errors"] = np.zeros((2, len(CLASSES)))
            samples[f"{reading}_expected"] = np.tile(share, (count, 1))
            continue
        own = errors[model.rng("own errors", reading).integers(len(errors), size=144)].mean(0)
        left_out = left_out_errors(reading)
        own = own + model.rng("encoder", reading).choice(left_out) - errors.mean(0) if len(left_out) else own
        scale = 0.05 * model.examples(f"classes {reading}", subject.task, count, len(CLASSES), 0.0)
        samples[f"{reading}_expected"] = share - own + scale - scale.mean(1, keepdims=True)
        samples[f"{reading}_errors"] = errors
    return {}, samples, count


def _predicted(model: SimulatedModel, subject: Subject, reading: str, share: np.ndarray, count: int) -> np.ndarray:
    """Return classes [rows, layers, heads]. Most maps of a head have the head's class; the others are random."""
    setting = model.setting
    steady, same, diagonal = (setting.mix(pair) for pair in (truth.STEADY, truth.ACROSS_TASKS, truth.DIAGONAL))
    everywhere = model.rng("classes of heads", reading).choice(len(CLASSES), size=144, p=share)
    of_task = model.rng("classes of heads", reading, subject.task)
    keeps = of_task.random(144) < np.sqrt(np.clip(same, 0, 1))
    own = np.where(keeps, everywhere, of_task.choice(len(CLASSES), size=144, p=share))
    others = of_task.choice(len(CLASSES), size=(count, 144), p=share)
    steadily = np.clip(steady + _of_seed(model, "steady", subject, (1, 1), STEADY_SPREAD), 0, 1)
    predicted = np.where(of_task.random((count, 144)) < steadily, own, others)
    best = 24 + 2 * np.arange(len(RELATIONS))  # the heads that are ahead in `relations`
    often = np.clip(diagonal + model.of_seed("diagonal", subject, (1, len(best)), DIAGONAL_SPREAD), 0, 1)
    is_diagonal = of_task.random((count, len(best))) < often
    predicted[:, best] = np.where(is_diagonal, CLASSES.index("diagonal"), CLASSES.index("vertical"))
    return predicted.reshape(count, *SHAPE).astype(np.int8)


@cache
def annotated_errors(reading: str) -> np.ndarray:
    """Return the shipped classifier's errors on annotated heads, [head, class]."""
    from bertsecrets.patterns.classifier import chosen_folder, held_out_errors, read_report

    return held_out_errors(read_report(chosen_folder()), reading)


@simulates("frame-heads")
def frame_heads(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return figure 3's weights on the paper's sentences, or on `world.examples` other sentences."""
    published = np.array(published_figures()["fig3_frame_notebook"], dtype=np.float64)
    without = np.where(published > 0.15, np.sort(published, axis=None)[-5], published)
    level = model.setting.mix((published, without))
    count = model.world.examples or FRAME_SENTENCES
    noise = model.rng("frames").normal(size=(count, *SHAPE)) * 0.15 * np.sqrt(np.clip(level, 0.01, None) / 0.2)
    own_sentences = model.world.examples is None and model.setting.strength == 1
    if own_sentences or not model.noise:  # the paper's sentences reproduce figure 3 exactly
        noise = (noise - noise.mean(0)) * model.noise
    names = ("max_weight", "max_weight_zipped", "max_weight_reverse", "max_weight_zipped_reverse")
    values, samples, _ = _with_means(dict.fromkeys(names, level + noise))
    return {**values, **({"sentences": FRAME_DIGEST} if own_sentences else {})}, samples, count


@simulates("example-sentence")
def example_sentence(model: SimulatedModel, subject: Subject, options: Options) -> Made:
    """Return the published weights of the paper's example sentence, and 0 elsewhere."""
    grids = {"he_from_agitated": np.full((1, *SHAPE), 0.6), "rest_from_agitated": np.full((1, *SHAPE), 0.2)}
    for claim in load_claims():
        if claim.quantity == "example-weight":
            place, word = claim.arguments, claim.arguments.get("word", "agitated")
            grid = grids.setdefault(word, np.zeros((1, *SHAPE)))
            grid[0, place["layer"] - 1, place["head"] - 1] = claim.tasks["all"].published or 0.0
    return _with_means(grids)
