"""What a plan costs: for each job the seconds, memory and disk that it takes, and whether the store has it already."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

from bertsecrets.errors import UserError
from bertsecrets.jobs.calibration import Speed, calibrate
from bertsecrets.jobs.plan import Job, Step
from bertsecrets.jobs.records import Record, read_records, seconds_on_record
from bertsecrets.measures.base import AblationMeasure, AttentionMeasure, Measure, Run
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import loading
from bertsecrets.models.kept import MATRIX
from bertsecrets.models.memory import CPU_BYTES, training_bytes
from bertsecrets.provenance import device_name
from bertsecrets.session import Session
from bertsecrets.store.entries import entries, read_manifest
from bertsecrets.texts.tasks import TASKS, task

# Mean word-pieces of GLUE's examples in BERT's uncased vocabulary, for tasks whose rows are not here.
TYPICAL = {"mrpc": 53, "stsb": 28, "sst2": 14, "qqp": 30, "rte": 67, "qnli": 51, "mnli": 40}
SAMPLED = 500  # rows whose length is looked at
PROCESS = 700 * 10**6  # bytes of a process that has imported everything
OPENING = 3.0  # seconds to open a model and write a result
ATTENTION_PASSES = 4  # forward passes that reading all maps of one model takes
ABLATION_PASSES = 0.5  # forward passes that one set of disabled heads takes
SENTENCES, SENTENCE = 1000, 30  # of measures without a task: about how many, of how many tokens
ONLY_HERE = 10.0  # seconds of a measure that reads no model

State = Literal["stored", "to do", "not yet"]


@dataclass(frozen=True)
class Estimate:
    """A job of a plan, and what it costs; None is unknown.

    `state` is "not yet" where only the checkpoint, which is still to be trained, tells whether the store has it.
    `basis` says where the seconds come from.
    """

    step: Step
    state: State
    seconds: float | None
    basis: str
    memory: int | None
    disk: int | None


@dataclass(frozen=True)
class Shape:
    """A model's size: its weights, also as kept in 16 bits, the memory that its training needs besides them, its layers
    and heads."""

    weights: int
    half: int
    training: int
    training_frozen: int
    layers: int
    heads: int


def estimate(session: Session, steps: Sequence[Step]) -> list[Estimate]:
    """Return what every job of a plan costs, without training, measuring, or loading any weights."""
    return Estimator(session).all(steps)


class Estimator:
    """What is known of a session's model, texts and store."""

    def __init__(self, session: Session):
        self.session, self.settings = session, session.settings
        self.device = device_name(session.resources.device)
        self.held = _held(session)

    def all(self, steps: Sequence[Step]) -> list[Estimate]:
        """Return the estimates of all jobs, in order."""
        states = self.states(steps)
        return [self.one(step, states) for step in steps]

    def one(self, step: Step, states: dict[Job, State]) -> Estimate:
        """Return the estimate of one job."""
        state = states[step.job]
        if state == "stored":
            return Estimate(step, state, 0.0, "in the store", 0, 0)
        if step.after is not None and states[step.after] != "stored":
            return Estimate(step, state, 0.0, f"comes with {step.after.measure}", *self.sizes(step.job))
        return Estimate(step, state, *self.seconds(step.job), *self.sizes(step.job))

    # ------------------------------------------------------------------ what the store has

    def states(self, steps: Sequence[Step]) -> dict[Job, State]:
        """Return whether the store has each job's result.

        A checkpoint whose weights were dropped is to be trained again where a measurement of the plan needs them.
        """
        states: dict[Job, State] = {}
        for step in sorted(steps, key=lambda step: step.job.measure is not None):  # what others need comes first
            states[step.job] = self.state(step, states)
        for step in steps:
            if step.needs in states and states[step.job] != "stored" and not self._has_weights(step.needs):
                states[step.needs] = "to do"
        return states

    def _has_weights(self, training: Job) -> bool:
        """Return whether the store has a checkpoint with weights that can be measured."""
        try:
            folder = self.session.stored_checkpoint(training.subject)
            return folder is not None and self.session.can_measure(folder)
        except UserError:
            return False

    def state(self, step: Step, known: Mapping[Job, State]) -> State:
        """Return whether the store has a job's result; without the model or the data it counts as missing.

        Args:
            known: the same of other jobs.
        """
        job, session = step.job, self.session
        try:
            if job.measure is None:
                if _about(job) not in self.held:
                    return "to do"
                return "stored" if session.stored_checkpoint(job.subject) else "to do"
            if step.needs is not None and (known.get(step.needs) or self.state(Step(step.needs), known)) != "stored":
                return "not yet"
            if _about(job) not in self.held:
                return "to do"
            found = session.stored_measurement(job.measure, job.subject, **dict(job.options))
        except UserError:
            return "to do"
        return "stored" if found else "to do"

    # ------------------------------------------------------------------ seconds

    def precision(self, job: Job) -> str:
        """Return the precision in which a job computes."""
        if job.measure is None:
            return self.session.settings.finetune.precision
        ablates = isinstance(get_measure(job.measure), AblationMeasure)
        return self.session.resources.grid_precision if ablates else "float32"

    def seconds(self, job: Job) -> tuple[float | None, str]:
        """Return about how many seconds a job takes, and where that comes from."""
        made_only = job.measure is None and job.subject.initialisation == "untrained"
        size = float(self.steps(job)) if job.measure is None else float(self.examples(job))
        about = (self.records, job, self.device, size, self.tokens, self.precision(job))
        recorded = None if made_only else seconds_on_record(*about)
        if recorded is not None:
            seconds, whose = recorded
            return seconds, "on record" if whose == job.subject.task else f"on record for {whose}"
        if made_only:
            return OPENING, "a guess"
        if job.measure is not None and not get_measure(job.measure).reads_model:
            return ONLY_HERE, "a guess"
        if self.speed is None:
            return None, "unknown"
        if job.measure is None and job.subject.initialisation == "frozen":  # each text is encoded once
            return OPENING + self.rows(job.subject.task, "train") * self.tokens(
                job
            ) * self.speed.pass_token, "calibrated"
        if job.measure is None:
            each = self.speed.step + self.speed.step_token * self.tokens(job) * self.settings.finetune.batch_size
            return OPENING + size * each, "calibrated"
        passes = self.passes(get_measure(job.measure), job)
        return OPENING + size * self.tokens(job) * passes * self.speed.pass_token, "calibrated"

    def steps(self, job: Job) -> int:
        """Return the number of steps of a training."""
        finetune = self.settings.finetune
        return -(-self.rows(job.subject.task, "train") // finetune.batch_size) * finetune.epochs

    def examples(self, job: Job) -> int:
        """Return the number of examples that a measurement reads."""
        measure = get_measure(job.measure or "")
        if not measure.on_task:
            return SENTENCES
        rows = self.rows(job.subject.task, "dev")
        if isinstance(measure, AblationMeasure):
            return min(rows, self.session.resources.rows.grid_limit or rows)
        return min(rows, measure.most(self.settings) or rows)

    def rows(self, task_name: str, split: str) -> int:
        """Return the number of rows of a split: those that are here, otherwise GLUE's."""
        lengths = self.lengths(task_name, split)
        if lengths is not None:
            return lengths[0]
        own, rows = task(task_name), self.session.resources.rows
        whole, limit = (own.train_rows, rows.train_limit) if split == "train" else (own.dev_rows, rows.limit)
        return min(whole, limit or whole)

    def tokens(self, job: Job) -> float:
        """Return the mean number of tokens of a job's examples."""
        if job.subject.task not in TASKS:
            return SENTENCE
        if job.measure is None:
            split, longest = "train", self.settings.finetune.max_length
        else:
            measure = get_measure(job.measure)
            options = measure.check_options(dict(job.options))
            if isinstance(measure, AttentionMeasure) and (padded := measure.padding(options)) is not None:
                return padded
            split, longest = "dev", self.settings.scores.max_length
        lengths = self.lengths(job.subject.task, split)
        return min(lengths[1] if lengths else TYPICAL[job.subject.task], longest)

    @functools.cache  # noqa: B019  # an estimator lives as long as one plan
    def lengths(self, task_name: str, split: str) -> tuple[int, float] | None:
        """Return the rows of a split that is in a local folder, and the mean tokens of some of them; None for others.

        Nothing is fetched for a plan.
        """
        if not self.session.options.glue_folders or self.tokenizer is None:
            return None
        try:
            rows = self.session.resources.rows.split(task_name, split)
        except UserError:
            return None
        some = np.linspace(0, len(rows) - 1, min(SAMPLED, len(rows))).astype(int).tolist()
        first = [rows.sentence1[i] for i in some]
        second = [rows.sentence2[i] for i in some] if rows.sentence2 is not None else None
        longest = self.settings.finetune.max_length
        try:
            coded = self.tokenizer(first, second, truncation=True, max_length=longest)["input_ids"]
        except Exception:  # tokenizers raises bare ones; whoever encodes the texts says which
            return None
        return len(rows), float(np.mean([len(ids) for ids in coded]))

    def passes(self, measure: Measure, job: Job) -> float:
        """Return about how many forward passes over its examples a measurement is worth."""
        if isinstance(measure, AblationMeasure):
            if self.shape is None:
                return 1
            run = Run(job.subject, measure.check_options(dict(job.options)), self.session.resources)
            sets, _ = measure.sets(run, self.shape.layers, self.shape.heads)
            return 1 + ABLATION_PASSES * len(sets)
        if isinstance(measure, AttentionMeasure):
            return ATTENTION_PASSES * (1 if job.subject.initialisation == "untrained" else 2)
        return measure.passes

    @functools.cached_property
    def records(self) -> list[Record]:
        """What the store says of the time that its entries took."""
        return read_records(self.session.store.root)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer; None where it is not available."""
        try:
            return loading.open_tokenizer(self.session.ref(self.session.model))
        except UserError:
            return None

    @functools.cached_property
    def speed(self) -> Speed | None:
        """This machine's speed with this model, measured now; None where the model is not available."""
        try:
            ref = self.session.ref(self.session.model)
            return calibrate(ref, self.settings.finetune, self.session.resources.device)
        except UserError:
            return None

    # ------------------------------------------------------------------ memory and disk

    @functools.cached_property
    def shape(self) -> Shape | None:
        """The model's size by its configuration; None where that is not available."""
        try:
            config = loading.open_config(self.session.ref(self.session.model))
            with torch.device("meta"):
                model = AutoModelForSequenceClassification.from_config(config)
        except Exception:  # of many kinds, from arithmetic on a config; whoever opens the model says which
            return None
        finetune = self.settings.finetune
        about = (finetune.batch_size, finetune.max_length, finetune.precision, self.session.resources.device.type)
        whole = training_bytes(model, *about)
        loading.freeze_encoder(model)
        frozen = training_bytes(model, *about)
        weights = 4 * sum(weight.numel() for weight in model.parameters())
        half = sum((2 if weight.ndim >= MATRIX else 4) * weight.numel() for weight in model.parameters())
        layers, heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        return Shape(weights, half, whole, frozen, layers, heads)

    def sizes(self, job: Job) -> tuple[int | None, int | None]:
        """Return about how many bytes of memory and of disk a job takes."""
        shape = self.shape
        if job.measure is None:
            if shape is None:
                return None, None
            more = {"untrained": 0, "frozen": shape.training_frozen}.get(job.subject.initialisation, shape.training)
            return PROCESS + shape.weights + more, shape.weights
        measure = get_measure(job.measure)
        if not measure.reads_model:
            return PROCESS, 0
        if shape is None:
            return None, None
        reads_maps = isinstance(measure, AttentionMeasure)
        models = 2 if reads_maps and job.subject.initialisation != "untrained" else 1
        numbers = self.examples(job) * (shape.layers * shape.heads if measure.on_task else 1)
        samples = numbers if isinstance(measure, AblationMeasure) else 4 * numbers if reads_maps else 0
        return PROCESS + models * shape.weights + CPU_BYTES, samples


def _held(session: Session) -> set[tuple[str | None, str, str, int]]:
    """Return what the store's entries are about: without one for it, no key of a job needs to be made."""
    held = set()
    for entry in entries(session.store.root):
        try:
            manifest = read_manifest(entry)
            subject = manifest["subject"]
            held.add((manifest.get("measure"), subject["task"], subject["initialisation"], subject["seed"]))
        except (UserError, KeyError, TypeError):
            continue
    return held


def _about(job: Job) -> tuple[str | None, str, str, int]:
    subject = job.subject
    return job.measure, subject.task, subject.initialisation, subject.seed
