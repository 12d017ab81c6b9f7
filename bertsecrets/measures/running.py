"""How each kind of measure is run: on predictions, in one attention pass, by the ablation engine, on frame sentences.

Each runner takes prepared `Inputs` and gives the results of the measure asked for, and of those that came with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from bertsecrets.errors import UserError
from bertsecrets.measures import ABLATION, ANNOTATED, ATTENTION, EXAMPLE, FRAMES, SCORES
from bertsecrets.measures.attention_change import AttentionChange
from bertsecrets.measures.scores import scores
from bertsecrets.measures.special_tokens import SpecialTokens
from bertsecrets.models import loading, locations
from bertsecrets.models.attention import Observer, Pass
from bertsecrets.models.encoding import cased, encode, lower_cases, predict
from bertsecrets.models.loading import Classifier
from bertsecrets.settings import Params
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import Task, task
from bertsecrets.types import Subject

Result = tuple[dict[str, Any], dict[str, np.ndarray]]
Results = tuple[dict[str, Result], int]


@dataclass(frozen=True)
class Inputs:
    """What a runner works on: `folder` is the checkpoint, `grid` where finished parts of an ablation are kept."""

    measure: str
    subject: Subject
    folder: Path
    dev: Split | None
    options: dict[str, Any]
    settings: Params
    device: torch.device
    offline: bool
    grid: Path
    cache: Path
    frames: Path | None = None
    spacy: str = ""

    @property
    def task(self) -> Task:
        """The subject's task."""
        return task(self.subject.task)

    @property
    def rows(self) -> Split:
        """The validation rows."""
        assert self.dev is not None
        return self.dev

    def open(self, attention: str) -> Classifier:
        """The checkpoint, on the device, with the attention implementation named."""
        found = loading.open_checkpoint(self.folder, self.task, locations.locate(self.subject.model), attention)
        found.model.to(self.device)
        return found


def run_scores(inputs: Inputs) -> Results:
    """Scores on the validation rows; with the option `cased`, the tokenizer's lower-casing is off."""
    classifier = inputs.open("sdpa")
    tokenizer = cased(classifier.tokenizer) if inputs.options.get("cased") else classifier.tokenizer
    encoded = encode(inputs.rows, tokenizer, classifier.fit(inputs.settings.scores.max_length))
    logits = predict(classifier.model, encoded, inputs.device)
    values, samples = scores(inputs.task, logits, inputs.rows.targets())
    if inputs.options.get("cased"):
        values["lower_cases"] = lower_cases(classifier.tokenizer)
    return {inputs.measure: (values, samples)}, len(encoded)


def run_ablation(inputs: Inputs) -> Results:
    """Scores with each head (`score` [layer, head]), each layer (`score` [layer]) or each set asked for disabled."""
    from bertsecrets.ablation.head_sets import label, parse_sets, single_heads, whole_layers
    from bertsecrets.measures.ablation import set_ablation

    classifier = inputs.open("sdpa")
    encoded = encode(inputs.rows, classifier.tokenizer, classifier.fit(inputs.settings.scores.max_length))
    shape = (classifier.layers, classifier.heads)
    given, single = inputs.options.get("heads"), inputs.measure == "head-ablation"
    if given is not None:
        sets, title = parse_sets(given, *shape), "sets of heads"
    else:
        sets, title = (single_heads(*shape), "heads") if single else (whole_layers(*shape), "layers")
    values, samples = set_ablation(
        classifier, encoded, inputs.task, inputs.rows.targets(), sets, inputs.device, inputs.grid, f"disabling {title}"
    )
    if given is not None:
        values["sets"] = [label(each) for each in sets]
    elif single:
        values["score"] = values["score"].reshape(shape)
    return {inputs.measure: (values, samples)}, len(encoded)


def run_attention(inputs: Inputs) -> Results:
    """One pass that feeds the measure asked for and every other that needs nothing more."""
    tuned = inputs.open("eager")
    dev = inputs.rows.head(inputs.settings.attention.examples)
    padded_to = inputs.options.get("padded_to")
    length = tuned.fit(min(inputs.settings.attention.max_length, padded_to or inputs.settings.attention.max_length))
    if padded_to is not None and tuned.fit(padded_to) < padded_to:
        raise UserError(
            f"--padded-to {padded_to} is more than the {tuned.fit(padded_to)} tokens {inputs.folder} can take"
        )
    shape = (len(dev), tuned.layers, tuned.heads)
    observers: dict[str, Observer] = {}
    base: Classifier | None = None
    if inputs.subject.initialisation != "untrained" or inputs.measure == "attention-change":
        base = loading.open_classifier(
            inputs.subject.model, inputs.task, "untrained", inputs.subject.seed, inputs.offline
        )
        base.model.to(inputs.device)
        problem = loading.same_shape(tuned, base)
        if problem and inputs.measure == "attention-change":
            raise UserError(f"{inputs.folder} cannot be compared with {inputs.subject.model}: {problem}")
        if problem:
            base = None  # nothing else compares the two
        else:
            observers["attention-change"] = AttentionChange(*shape)
    encoded = encode(dev, tuned.tokenizer, length)
    if padded_to is None:  # padding is K19's way for the change alone
        observers["special-tokens"] = SpecialTokens(*shape, loading.special_ids(tuned.tokenizer))
    if inputs.measure == "patterns":
        observers["patterns"] = pattern_observer(inputs, tuned, shape)
    if inputs.measure in ("features", "relations"):
        observers.update(word_observers(inputs, tuned, dev, length))
    run = Pass(tuned.model, tuned.layers, tuned.heads, base.model if base else None, padded_to)
    with tqdm(total=len(dev), desc=f"attention of {inputs.subject}", unit="example") as bar:
        run.feed(encoded, list(observers.values()), bar.update)
    return {name: observer.result() for name, observer in observers.items()}, len(dev)


def pattern_observer(inputs: Inputs, tuned: Classifier, shape: tuple[int, int, int]) -> Observer:
    """The observer that classifies maps; its classifier comes trained."""
    from bertsecrets.measures.patterns import Patterns
    from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, held_out_errors, read_report

    folder = chosen_folder()
    classifier = PatternClassifier.load(folder).to(inputs.device)
    errors = held_out_errors(read_report(folder))
    separator = loading.special_ids(tuned.tokenizer)["sep"]
    return Patterns(*shape, classifier, errors, separator)


def word_observers(inputs: Inputs, tuned: Classifier, dev: Split, length: int) -> dict[str, Observer]:
    """The observers that need words: tags and relations come from a spaCy pipeline, and are cached."""
    from bertsecrets.measures.features import FeatureAttention, feature_marks
    from bertsecrets.measures.relations import PairAttention, relation_pairs
    from bertsecrets.models.alignment import encode_words
    from bertsecrets.texts.parsing import parse_pairs

    shape = (len(dev), tuned.layers, tuned.heads)
    encoded, alignment = encode_words(tuned.tokenizer, dev.sentence1, dev.sentence2, length)
    first, second = parse_pairs(dev.sentence1, dev.sentence2, inputs.spacy, inputs.cache)
    marks = feature_marks(alignment, encoded.input_ids, loading.special_ids(tuned.tokenizer), first, second)
    return {
        "features": FeatureAttention(*shape, marks, marks["cls"]),
        "relations": PairAttention(*shape, relation_pairs(alignment, first, second)),
    }


def run_frames(inputs: Inputs) -> Results:
    """Attention from core elements to targets, in the encoder alone (K19 section 4.2)."""
    from bertsecrets.measures.frame_heads import frame_attention, intervals
    from bertsecrets.models.alignment import encode_words
    from bertsecrets.texts.framenet_xml import open_frames

    assert inputs.frames is not None
    sentences = open_frames(inputs.frames).sentences
    if not sentences:
        raise UserError(
            f"no sentence of {inputs.frames} passes the paper's filters: give FrameNet's own folder or a JSONL"
        )
    encoder = loading.open_encoder(locations.Location(str(inputs.folder), str(inputs.folder)))
    encoder.model.to(inputs.device)
    length = encoder.fit(inputs.settings.attention.max_length)
    encoded, alignment = encode_words(encoder.tokenizer, [s.sentence for s in sentences], max_length=length)
    observer = frame_attention(alignment, sentences, encoder.layers, encoder.heads)
    with tqdm(total=len(encoded), desc=f"frames of {inputs.subject.model}", unit="sentence") as bar:
        Pass(encoder.model, encoder.layers, encoder.heads).feed(encoded, [observer], bar.update)
    values, samples = observer.result()
    judge = inputs.settings.judge
    low, high = intervals(samples["max_weight"], judge.resamples, judge.seed)
    return {inputs.measure: ({**values, "max_weight_low": low, "max_weight_high": high}, samples)}, len(encoded)


def run_annotated(inputs: Inputs) -> Results:
    """Cross-validation of the pattern classifier on the suite's annotated maps; the model has no part in it."""
    from bertsecrets.patterns.training.train import held_out_quality

    values, samples = held_out_quality()
    return {inputs.measure: (values, samples)}, values["maps"]


def run_example(inputs: Inputs) -> Results:
    """Attention in the paper's example sentence, in the encoder alone (K19 section 4.2)."""
    from bertsecrets.measures.example_sentence import SENTENCE, example_attention
    from bertsecrets.models.alignment import encode_words

    encoder = loading.open_encoder(locations.Location(str(inputs.folder), str(inputs.folder)))
    encoder.model.to(inputs.device)
    encoded, alignment = encode_words(encoder.tokenizer, [SENTENCE])
    sep = loading.special_ids(encoder.tokenizer)["sep"]
    observer = example_attention(alignment, list(encoded.input_ids[0]), sep, encoder.layers, encoder.heads)
    Pass(encoder.model, encoder.layers, encoder.heads).feed(encoded, [observer])
    return {inputs.measure: observer.result()}, len(encoded)


RUNNERS: dict[str, Callable[[Inputs], Results]] = {
    SCORES: run_scores,
    ATTENTION: run_attention,
    ABLATION: run_ablation,
    FRAMES: run_frames,
    ANNOTATED: run_annotated,
    EXAMPLE: run_example,
}
