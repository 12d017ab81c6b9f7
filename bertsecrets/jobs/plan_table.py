"""Format a plan as a table or as JSON."""

import itertools
from collections.abc import Sequence
from typing import Any

from bertsecrets.jobs.estimates import JobEstimate, total, total_seconds
from bertsecrets.jobs.scripts import command
from bertsecrets.options import RunOptions
from bertsecrets.progress import in_bytes, in_time
from bertsecrets.report.findings import seed_ranges

COLUMNS = ("job", "task", "initialisation", "options", "seeds", "stored", "to do", "time", "by", "memory", "disk")


def totals(estimates: Sequence[JobEstimate]) -> dict[str, Any]:
    """Return the totals of all remaining jobs, or None for unknown totals. Memory is that of the largest job."""
    left = [job for job in estimates if job.state != "stored"]
    states = [job.state for job in estimates]
    return {
        "jobs": len(estimates),
        "trainings": sum(job.request.measure is None for job in estimates),
        **{state.replace(" ", "_"): states.count(state) for state in ("stored", "to do", "not yet")},
        "seconds": total_seconds(left),
        "memory_bytes": _largest([job.memory for job in left]),
        "disk_bytes": total([job.disk for job in left]),
    }


def _largest(numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else max(filter(None, numbers), default=0)


def as_json(estimates: Sequence[JobEstimate], options: RunOptions) -> list[dict[str, Any]]:
    """Return one JSON object per job."""
    numbers = {job.request: number for number, job in enumerate(estimates, start=1)}
    return [
        {
            "job": numbers[job.request],
            "what": str(job.request),
            "measure": job.request.measure,
            "task": job.request.subject.task,
            "initialisation": job.request.subject.initialisation,
            "seed": job.request.subject.seed,
            "options": dict(job.request.options),
            "waits_for": [numbers[other] for other in (job.request.training, job.leader) if other in numbers],
            "state": job.state,
            "seconds": None if job.seconds is None else round(job.seconds, 1),
            "seconds_by": job.basis,
            "memory_bytes": job.memory,
            "disk_bytes": job.disk,
            "command": command(job.request, options),
        }
        for job in estimates
    ]


def rows(estimates: Sequence[JobEstimate]) -> list[tuple[str, ...]]:
    """Return the rows of a plan's table, merging jobs that differ only in their seed."""
    return [_row(list(group)) for _, group in itertools.groupby(sorted(estimates, key=_order), _order)]


def _order(job: JobEstimate) -> tuple[Any, ...]:
    request = job.request
    about = (request.subject.task, request.subject.initialisation, str(request.options))
    return (request.measure is not None, request.measure or "", *about)


def _row(group: Sequence[JobEstimate]) -> tuple[str, ...]:
    request, left = group[0].request, [job for job in group if job.state != "stored"]
    memory, disk = _largest([job.memory for job in left]), total([job.disk for job in left])
    return (
        request.measure or "train",
        request.subject.task,
        request.subject.initialisation,
        " ".join(f"{name}={value}" for name, value in request.options),
        seed_ranges([job.request.subject.seed for job in group]),
        str(len(group) - len(left)),
        str(len(left)),
        in_time(total_seconds(left)) if left else "-",
        "; ".join(dict.fromkeys(job.basis for job in left)) or "in the store",
        in_bytes(memory) if left else "-",
        in_bytes(disk) if left else "-",
    )
