"""What a plan costs: seconds as recorded for earlier jobs of the same kind, memory and disk by the model's size."""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import Plan, State, plan_for, states
from bertsecrets.measures.base import AblationMeasure
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

# Mean word-pieces of GLUE's examples in BERT's uncased vocabulary.
TOKENS = {"mrpc": 53, "stsb": 28, "sst2": 14, "qqp": 30, "rte": 67, "qnli": 51, "mnli": 40}
WITHOUT_MODEL = 10.0  # seconds of a measure that reads no model
PROCESS = 700 * 10**6  # bytes of a process that has imported everything


@dataclass(frozen=True)
class Estimate:
    """A request of a plan, its state in the store, and what it costs; None is unknown.

    `basis` says where the seconds come from. `leader` is the measurement of the plan whose pass yields this one too.
    """

    request: Request
    state: State
    seconds: float | None
    basis: str
    memory: int | None
    disk: int | None
    leader: Request | None = None


def estimate(session: Session, planned: Plan) -> list[Estimate]:
    """Return what every request of a plan costs. Nothing is trained, measured or fetched."""
    costs, known = Costs(session), states(session, planned)
    estimates = []
    for one, leader in planned.items():
        cost: tuple[float | None, str, int | None, int | None]
        if known[one] == "stored":
            cost = (0.0, "in the store", 0, 0)
        elif leader is not None and known[leader] != "stored":
            cost = (0.0, f"comes with {leader.measure}", costs.memory(one), costs.disk(one))
        else:
            cost = (*costs.seconds(one), costs.memory(one), costs.disk(one))
        estimates.append(Estimate(one, known[one], *cost, leader))
    return estimates


def total_seconds(estimates: Sequence[Estimate]) -> float | None:
    """Return the seconds of all requests that are left, one after another; None if one is unknown."""
    return total([one.seconds for one in estimates if one.state != "stored"])


def total(numbers: Sequence[float | None]) -> float | None:
    """Return a sum; None if a number is unknown."""
    return None if None in numbers else round(sum(filter(None, numbers)), 1)


# ---------------------------------------------------------------------- adding seeds


def seed_cost(session: Session, first: Sequence[Case] = ()) -> Callable[[Sequence[Case], int], float]:
    """Return a function that estimates the seconds that some cases need for a further seed (`judging.SeedBudget`).

    Jobs of a kind that is not on record count as nothing.

    Args:
        first: cases whose first seed must be made in the same time.
    """

    def cost(cases: Sequence[Case], seed: int) -> float:
        model = session.model
        plan = plan_for(session, first, model, [1]) | plan_for(session, cases, model, [seed])
        return sum(one.seconds or 0 for one in estimate(session, plan))

    return cost


def within(estimates: Sequence[Estimate], budget: float | None, at_once: int) -> list[Estimate]:
    """Return the estimates of the first seeds of a plan, as many as a budget affords if no claim is decided early."""
    seeds = sorted({one.request.subject.seed for one in estimates})
    chosen = list(estimates)
    while len(seeds) > 1 and budget is not None:
        needed = total_seconds(chosen)
        if needed is not None and needed / at_once <= budget:
            break
        seeds.pop()
        chosen = [one for one in estimates if one.request.subject.seed in seeds]
    return chosen


# ---------------------------------------------------------------------- records


@dataclass(frozen=True)
class Record:
    """The seconds that a stored checkpoint or measurement took.

    `examples` were trained on or measured; `parameters` of the model are None if they are not on record.
    """

    request: Request
    seconds: float
    examples: int
    device: str = ""
    precision: str = "float32"
    parameters: int | None = None


def read_records(root: Path) -> list[Record]:
    """Return the records of a store; entries that are damaged or from an earlier version have none."""
    records = []
    for entry in entries(root):
        try:
            records.append(_record(entry))
        except (UserError, KeyError, TypeError, ValueError, AttributeError):
            continue
    return [record for record in records if record.seconds > 0 and record.examples > 0]


def _record(entry: Path) -> Record:
    manifest = read_manifest(entry)
    key, subject = Key(**manifest["key"]), Subject(**manifest["subject"])
    device = str(key.made_by["device"])  # "None" if no device changes the result
    if manifest["kind"] in (CHECKPOINTS, DROPPED):
        training = manifest["training"]
        trained = training["steps"] * key.inputs["finetune"]["batch_size"] if training["steps"] else 1
        seconds, parameters = float(training["seconds"]), training.get("parameters")
        return Record(Request(None, subject), seconds, trained, device, training["precision"], parameters)
    data = read_json(entry / VALUES)
    own = request(manifest["measure"], subject, data["options"])
    provenance, precision = data["provenance"], key.inputs.get("precision", "float32")
    parameters = (provenance.get("training") or {}).get("parameters")
    examples = int(data["examples"]) if own.on_task else 1
    return Record(own, float(provenance["seconds"]), examples, device, precision, parameters)


def kind(one: Request) -> tuple[Any, ...]:
    """Return what two requests must have in common for the time of one to say something about that of the other."""
    ordinary = get_initialisation(one.subject.initialisation).trains_encoder
    special = "" if ordinary else one.subject.initialisation
    return one.measure, one.options, special


def seconds_on_record(
    records: Sequence[Record], one: Request, examples: int, parameters: int | None = None
) -> tuple[float | None, str]:
    """Return about how long a job takes by those records that are nearest to it, and whose they are.

    Records of the same model and task are preferred. Those of other tasks are scaled by the tokens of all examples,
    those of other models also by the number of parameters.

    Args:
        examples: of the job.
        parameters: of its model.
    """
    near = [record for record in records if kind(record.request) == kind(one)]
    model, on_task = one.subject.model, one.subject.task
    of_model = [record for record in near if record.request.subject.model == model]
    near = of_model or [record for record in near if record.parameters and parameters]
    near = [record for record in near if record.request.subject.task == on_task] or near
    if not near:
        return None, "unknown"
    taken = 0.0
    for record in near:
        taken += record.seconds if of_model else record.seconds * (parameters or 0) / (record.parameters or 1)
    seconds = taken / sum(record.examples * _tokens(record.request) for record in near) * examples * _tokens(one)
    others = {of.task for record in near if (of := record.request.subject).task != on_task}
    others |= {of.model for record in near if (of := record.request.subject).model != model}
    return seconds, f"on record for {', '.join(sorted(others))}" if others else "on record"


def _tokens(one: Request) -> int:
    """Return the mean number of tokens of a job's examples."""
    return dict(one.options).get("padded_to") or TOKENS.get(one.subject.task, 1)


# ---------------------------------------------------------------------- costs


class Costs:
    """What the requests of a session cost."""

    def __init__(self, session: Session):
        self.session = session

    def seconds(self, one: Request) -> tuple[float | None, str]:
        """Return about how many seconds a job takes, and where that comes from."""
        parameters = None if self.model is None else self.model.num_parameters()
        devices, precision = (device_name(self.session.resources.device), "None"), self._precision(one)
        records = [record for record in self._records if record.device in devices and record.precision == precision]
        seconds, basis = seconds_on_record(records, one, self._examples(one), parameters)
        if seconds is None and one.measure is not None and not get_measure(one.measure).reads_model:
            return WITHOUT_MODEL, "reads no model"
        return seconds, basis

    def memory(self, one: Request) -> int | None:
        """Return about how many bytes of memory a job takes."""
        if one.measure is not None and not get_measure(one.measure).reads_model:
            return PROCESS
        if self.model is None:
            return None
        models = 2 if one.measure is not None and get_measure(one.measure).compares else 1
        more = CPU_BYTES
        if one.measure is None and get_initialisation(one.subject.initialisation).trains_encoder:
            finetune, device = self.session.settings.finetune, self.session.resources.device.type
            about = (finetune.batch_size, finetune.max_length, finetune.precision, device)
            more = training_bytes(self.model, *about)
        return PROCESS + models * 4 * self.model.num_parameters() + more

    def disk(self, one: Request) -> int | None:
        """Return about how many bytes of disk a result takes: the weights, or a number per example and head."""
        if one.measure is not None and not get_measure(one.measure).reads_model:
            return 0
        if self.model is None:
            return None
        if one.measure is None:
            return 4 * self.model.num_parameters()
        config = self.model.config
        return 4 * self._examples(one) * config.num_hidden_layers * config.num_attention_heads

    @functools.cached_property
    def model(self) -> Any:
        """The session's model without weights; None if its configuration is not available."""
        try:
            config = configuration.open_config(self.session.ref(self.session.model))
            with torch.device("meta"):
                return AutoModelForSequenceClassification.from_config(config)
        except Exception:  # of many kinds, raised by arithmetic on a configuration; whoever opens the model says which
            return None

    @functools.cached_property
    def _records(self) -> list[Record]:
        return read_records(self.session.store.root)

    def _precision(self, one: Request) -> str:
        if one.measure is None:
            trained = get_initialisation(one.subject.initialisation).trains
            return self.session.settings.finetune.precision if trained else "float32"
        ablates = isinstance(get_measure(one.measure), AblationMeasure)
        return self.session.resources.grid_precision if ablates else "float32"

    def _examples(self, one: Request) -> int:
        """Return the number of examples that are trained on, in all epochs, or measured."""
        settings, rows = self.session.settings, self.session.resources.rows
        if one.measure is None:
            if not get_initialisation(one.subject.initialisation).trains:
                return 1
            steps = -(-self._rows(one.subject.task, "train", rows.train_limit) // settings.finetune.batch_size)
            return steps * settings.finetune.epochs * settings.finetune.batch_size
        measure = get_measure(one.measure)
        if not one.on_task:
            return 1
        most = rows.grid_limit if isinstance(measure, AblationMeasure) else measure.most(settings)
        return self._rows(one.subject.task, "dev", rows.limit, most)

    def _rows(self, task_name: str, split: str, *limits: int | None) -> int:
        """Return the number of rows of a split: those of official GLUE, unless local files may have others."""
        official = task(task_name).train_rows if split == "train" else task(task_name).dev_rows
        if self.session.options.allow_unofficial_data and self.session.options.glue_folders:
            with suppress(UserError):  # not here: it may be where the job runs
                official = len(self.session.resources.rows.whole(task_name, split))
        return min([official, *filter(None, limits)])
