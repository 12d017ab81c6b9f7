"""Estimate the cost of jobs: time from similar jobs on record, and memory from the size of the model."""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from bertsecrets.ablation.head_sets import parse_sets
from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import Plan, State, plan_for, remaining, states
from bertsecrets.measures.base import AblationMeasure, AttentionMeasure
from bertsecrets.measures.registry import get_measure, request
from bertsecrets.models import configuration
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.memory import CPU_BYTES, training_bytes
from bertsecrets.provenance import device_name
from bertsecrets.session import Session
from bertsecrets.store.entries import CHECKPOINTS, DROPPED, Key, entries, read_json, read_manifest
from bertsecrets.store.measurements import VALUES
from bertsecrets.texts.tasks import task
from bertsecrets.types import Request, Subject

# Mean number of tokens per GLUE example, in BERT's uncased vocabulary.
TOKENS = {"mrpc": 53, "stsb": 28, "sst2": 14, "qqp": 30, "rte": 67, "qnli": 51, "mnli": 40}
FROM_STEPS = "estimated from training steps"
# Approximate costs, relative to a training step on as many examples, measured with MiniLM on RTE.
FORWARD = 0.6  # a forward pass, with what a measure computes from it
SUFFIX = 0.5  # the part of a forward pass that is repeated for each disabled head
MAPS = 1.8 / (12 / 384**2)  # extracting and analysing the maps of two models; proportional to heads / width**2
SHORT = 10.0  # seconds of other measures that read no model
WITHOUT_MODEL = {"pattern-quality": 60.0, "published-figures": 0.0}  # seconds
PROCESS = 700 * 10**6  # bytes used by a process after importing everything


@dataclass(frozen=True)
class JobEstimate:
    """The state and cost of a job; unknown values are None.

    `basis` is the basis for the estimated time. `leader` is the planned job whose forward pass also yields this one.
    """

    request: Request
    state: State
    seconds: float | None
    basis: str
    memory: int | None
    disk: int | None
    leader: Request | None = None


def estimate_jobs(session: Session, planned: Plan, trial: "Record | None" = None) -> list[JobEstimate]:
    """Estimate the cost of every job in a plan, without training, measuring or downloading anything.

    Args:
        trial: Time of a few training steps, for jobs of which the store has no record.
    """
    costs, known = Costs(session, trial), states(session, planned)
    estimates = []
    for job, leader in planned.items():
        cost: tuple[float | None, str, int | None, int | None]
        if known[job] == "stored":
            cost = (0.0, "in the store", 0, 0)
        elif leader is not None and known[leader] != "stored":
            cost = (0.0, f"comes with {leader.measure}", costs.memory(job), costs.disk(job))
        else:
            cost = (*costs.seconds(job), costs.memory(job), costs.disk(job))
        estimates.append(JobEstimate(job, known[job], *cost, leader))
    return estimates


def total_seconds(estimates: Sequence[JobEstimate]) -> float | None:
    """Return the total seconds of all remaining jobs, or None if any is unknown."""
    return total([estimate.seconds for estimate in estimates if estimate.state != "stored"])


def total(numbers: Sequence[float | None]) -> float | None:
    """Return the sum, or None if a number is unknown."""
    return None if None in numbers else round(sum(filter(None, numbers)), 1)


def seed_cost(session: Session, first: Sequence[Case] = ()) -> Callable[[Sequence[Case], int], float]:
    """Return a function that estimates the seconds of another seed for some cases (`judging.SeedBudget`).

    A seed that is stored costs nothing. Jobs of unknown duration count as 0.

    Args:
        first: Cases whose first seed is included in the estimate of a seed that is not stored.
    """

    pending = plan_for(session, first, session.model, [1])

    def cost(cases: Sequence[Case], seed: int) -> float:
        nonlocal pending
        own = plan_for(session, cases, session.model, [seed])
        if not remaining(session, own):
            return 0.0
        pending = _unfinished(session, pending)
        return sum(estimate.seconds or 0 for estimate in estimate_jobs(session, pending | own))

    return cost


def _unfinished(session: Session, planned: Plan) -> Plan:
    """Return the jobs of a plan that are not in the store, with their trainings and leaders."""
    left = remaining(session, planned)
    needed = {*left, *left.values(), *(job.training for job in left)}
    return {job: leader for job, leader in planned.items() if job in needed}


def within(estimates: Sequence[JobEstimate], budget: float | None, at_once: int) -> list[JobEstimate]:
    """Return the estimates for as many seeds as the budget allows, at least one, assuming no claim is decided early."""
    seeds = sorted({estimate.request.subject.seed for estimate in estimates})
    affordable = list(estimates)
    while len(seeds) > 1 and budget is not None:
        needed = total_seconds(affordable)
        if needed is not None and needed / at_once <= budget:
            break
        seeds.pop()
        affordable = [estimate for estimate in estimates if estimate.request.subject.seed in seeds]
    return affordable


# ---------------------------------------------------------------------- time


@dataclass(frozen=True)
class Record:
    """The recorded time of a stored checkpoint or measurement.

    `examples` is the number of examples trained on or measured. `parameters` is the model's size, or None if unknown.
    """

    request: Request
    seconds: float
    examples: int
    device: str = ""
    parameters: int | None = None


def read_records(root: Path) -> list[Record]:
    """Read the records in a store, skipping damaged entries and those from earlier versions."""
    records = []
    for entry in entries(root):
        with suppress(UserError, KeyError, TypeError, ValueError, AttributeError):
            records.append(_record(entry))
    return [record for record in records if record.seconds > 0 and record.examples > 0]


def _record(entry: Path) -> Record:
    manifest = read_manifest(entry)
    key, subject = Key(**manifest["key"]), Subject(**manifest["subject"])
    device = str(key.made_by["device"])  # "None" if the result is the same on every device
    if manifest["kind"] in (CHECKPOINTS, DROPPED):
        job, training = Request(None, subject), manifest["training"]
        seconds = training["seconds"]
        examples = training["steps"] * key.inputs["finetune"]["batch_size"] if training["steps"] else 1
    else:
        data = read_json(entry / VALUES)
        job, training = request(manifest["measure"], subject, data["options"]), data["provenance"]["training"] or {}
        seconds = data["provenance"]["seconds"]
        examples = int(data["examples"]) if job.on_task else 1
    return Record(job, float(seconds), examples, device, training.get("parameters"))


def _kind(job: Request) -> tuple[Any, ...]:
    """Return a key that is the same for jobs with comparable times."""
    ordinary = get_initialisation(job.subject.initialisation).trains_encoder
    return job.measure, job.options, "" if ordinary else job.subject.initialisation


def seconds_on_record(
    records: Sequence[Record], job: Request, examples: int, parameters: int | None = None
) -> tuple[float | None, str]:
    """Estimate the seconds of a job from the most similar jobs on record; also return the basis of the estimate.

    Records with the same model and task are preferred. Other records are scaled by the number of tokens and, for a
    different model, by the number of parameters.

    Args:
        examples: Number of examples in the job.
        parameters: Size of its model.
    """
    model, on_task = job.subject.model, job.subject.task
    similar = [record for record in records if _kind(record.request) == _kind(job)]
    same_model = [record for record in similar if record.request.subject.model == model]
    similar = same_model or [record for record in similar if record.parameters and parameters]
    similar = [record for record in similar if record.request.subject.task == on_task] or similar
    if not similar:
        return None, "unknown"
    seconds, tokens = 0.0, 0
    for record in similar:
        seconds += record.seconds if same_model else record.seconds * (parameters or 0) / (record.parameters or 1)
        tokens += record.examples * _tokens(record.request)
    others = {record.request.subject.task for record in similar} - {on_task}
    others |= {record.request.subject.model for record in similar} - {model}
    basis = f"on record for {', '.join(sorted(others))}" if others else "on record"
    return seconds / tokens * examples * _tokens(job), basis


def _tokens(job: Request) -> int:
    """Return the mean number of tokens per example of a job."""
    return dict(job.options).get("padded_to") or TOKENS.get(job.subject.task, 1)


class Costs:
    """Cost estimates for a session's jobs."""

    def __init__(self, session: Session, trial: Record | None = None):
        """
        Args:
            trial: Time of a few training steps, for jobs of which the store has no record.
        """
        self.session, self.trial = session, trial

    def seconds(self, job: Request) -> tuple[float | None, str]:
        """Return the estimated seconds of a job and the basis of the estimate."""
        devices = (device_name(self.session.resources.device), "None")
        records = [record for record in self._records if record.device in devices]
        parameters = None if self.model is None else self.model.num_parameters()
        examples = self._examples(job)
        seconds, basis = seconds_on_record(records, job, examples, parameters)
        if seconds is not None:
            return seconds, basis
        if not _reads_model(job):
            return WITHOUT_MODEL.get(job.measure or "", SHORT), "reads no model"
        training = Request(None, replace(job.subject, initialisation="pretrained"))
        trained = [record for record in records if record.request.subject.model == job.subject.model]
        seconds, _ = seconds_on_record([self.trial] if self.trial else trained, training, examples)
        if seconds is None:
            return None, "unknown"
        return seconds * self._share(job) * _tokens(job) / _tokens(training), FROM_STEPS

    def _share(self, job: Request) -> float:
        """Return the approximate cost of a job per example, relative to a training step per example."""
        if job.measure is None:
            trains_encoder = get_initialisation(job.subject.initialisation).trains_encoder
            return 1.0 if trains_encoder else FORWARD / self.session.settings.finetune.epochs  # encoded once
        measure, (layers, heads, width) = get_measure(job.measure), self._sizes
        if isinstance(measure, AblationMeasure):
            sets = layers * (heads if job.measure == "head-ablation" else 1)
            if given := dict(job.options).get("heads"):
                with suppress(UserError):  # raised again when heads are disabled
                    sets = len(parse_sets(given, layers, heads))
            return FORWARD * (1 + SUFFIX * sets)
        if isinstance(measure, AttentionMeasure):
            return 2 * FORWARD + MAPS * heads / width**2
        return FORWARD * measure.passes

    def memory(self, job: Request) -> int | None:
        """Return the estimated memory of a job in bytes."""
        if not _reads_model(job):
            return PROCESS
        if self.model is None:
            return None
        models = 2 if job.measure is not None and get_measure(job.measure).compares else 1
        step = CPU_BYTES
        if job.measure is None and get_initialisation(job.subject.initialisation).trains_encoder:
            finetune, device = self.session.settings.finetune, self.session.resources.device.type
            step = training_bytes(self.model, finetune.batch_size, finetune.max_length, finetune.precision, device)
        return PROCESS + models * 4 * self.model.num_parameters() + step

    def disk(self, job: Request) -> int | None:
        """Return the estimated size of a result in bytes: the weights, or one float32 per example and head."""
        if not _reads_model(job):
            return 0
        if self.model is None:
            return None
        if job.measure is None:
            return 4 * self.model.num_parameters()
        layers, heads, _ = self._sizes
        return 4 * self._examples(job) * layers * heads

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Layers, heads per layer and hidden size of the session's model; BERT-base's value for any that is unknown."""
        config = None if self.model is None else self.model.config
        usual = {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768}
        layers, heads, width = (getattr(config, name, None) or size for name, size in usual.items())
        return layers, heads, width

    @functools.cached_property
    def model(self) -> Any:
        """The session's model without weights; None if its configuration is not available."""
        try:
            config = configuration.open_config(self.session.ref(self.session.model))
            with torch.device("meta"):
                return AutoModelForSequenceClassification.from_config(config)
        except Exception:  # any failure is reported when the model is opened
            return None

    @functools.cached_property
    def _records(self) -> list[Record]:
        return read_records(self.session.store.root)

    def _examples(self, job: Request) -> int:
        """Return the number of examples that a job trains on (over all epochs) or measures."""
        settings, rows = self.session.settings, self.session.resources.rows
        if job.measure is None:
            if not get_initialisation(job.subject.initialisation).trains:
                return 1
            steps = -(-self._rows(job.subject.task, "train", rows.train_limit) // settings.finetune.batch_size)
            return steps * settings.finetune.epochs * settings.finetune.batch_size
        if not job.on_task:
            return 1
        measure = get_measure(job.measure)
        most = rows.grid_limit if isinstance(measure, AblationMeasure) else measure.most(settings)
        return self._rows(job.subject.task, "dev", rows.limit, most)

    def _rows(self, task_name: str, split: str, *limits: int | None) -> int:
        """Return the number of rows in a split: the official count, or that of unofficial local files."""
        rows = task(task_name).train_rows if split == "train" else task(task_name).dev_rows
        if self.session.options.allow_unofficial_data and self.session.options.glue_folders:
            with suppress(UserError):  # missing here, but possibly not where the job runs
                rows = len(self.session.resources.rows.whole(task_name, split))
        return min([rows, *filter(None, limits)])


def _reads_model(job: Request) -> bool:
    return job.measure is None or get_measure(job.measure).reads_model
