"""What a store says of the time that its checkpoints and measurements took."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import Job
from bertsecrets.store.entries import Key, entries, read_json, read_manifest
from bertsecrets.store.measurements import VALUES
from bertsecrets.types import Subject


@dataclass(frozen=True)
class Record:
    """A job that was done: its device and precision, its seconds, its size in steps of training or in examples."""

    job: Job
    device: str
    seconds: float
    size: int
    precision: str = "float32"


def read_records(root: Path) -> list[Record]:
    """Return the records of a store; what is damaged, or was trained in several parts, has none."""
    found = []
    for entry in entries(root):
        try:
            found.append(_record(entry))
        except (UserError, KeyError, TypeError, ValueError, AttributeError):  # damaged, or of an earlier version
            continue
    return [record for record in found if record is not None and record.seconds > 0 and record.size > 0]


def _record(entry: Path) -> Record | None:
    manifest = read_manifest(entry)
    key = Key.of_manifest(manifest)
    if key is None:
        return None
    subject, device = Subject(**manifest["subject"]), str(key.made_by.get("device"))
    if manifest["kind"] == "checkpoints":
        training = manifest["training"]
        return Record(Job(subject), device, float(training["seconds"]), int(training["steps"]), training["precision"])
    data = read_json(entry / VALUES)
    job = Job.of(manifest["measure"], subject, data["options"])
    precision = str(key.inputs.get("precision", "float32"))
    return Record(job, device, float(data["provenance"]["seconds"]), int(data["examples"]), precision)


def seconds_on_record(
    records: list[Record],
    job: Job,
    device: str,
    size: float,
    tokens: Callable[[Job], float],
    precision: str = "float32",
) -> tuple[float, str] | None:
    """Return about how long a job takes by what is on record, and of which task that is; None if nothing is.

    Of the same task the seconds of a step or example are taken, of other tasks those of a token.

    Args:
        size: of the job, in steps or examples.
        tokens: the mean number of tokens of a job's examples.
    """
    same = list(_of_the_same_kind(records, job, device, precision))
    of_task = [record for record in same if record.job.subject.task == job.subject.task]
    if of_task:
        return size * sum(r.seconds for r in of_task) / sum(r.size for r in of_task), job.subject.task
    if not same:
        return None
    rate = sum(r.seconds for r in same) / sum(r.size * tokens(r.job) for r in same)
    return size * tokens(job) * rate, ", ".join(sorted({r.job.subject.task for r in same}))


def _of_the_same_kind(records: list[Record], job: Job, device: str, precision: str) -> Iterator[Record]:
    frozen = job.subject.initialisation == "frozen"
    for record in records:
        other = record.job
        if (other.measure, other.options, other.subject.model) != (job.measure, job.options, job.subject.model):
            continue
        alike = (record.device, record.precision) == (device, precision)
        if alike and (other.subject.initialisation == "frozen") == frozen:
            yield record
