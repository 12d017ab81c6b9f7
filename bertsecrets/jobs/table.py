"""A plan as people and programs read it."""

import itertools
from collections.abc import Sequence
from typing import Any

from bertsecrets.jobs.estimates import Estimate, total, total_seconds
from bertsecrets.jobs.scripts import command
from bertsecrets.options import RunOptions
from bertsecrets.progress import in_bytes, in_time
from bertsecrets.report.comparison import seed_ranges

COLUMNS = ("job", "task", "initialisation", "options", "seeds", "stored", "to do", "time", "by", "memory", "disk")


def totals(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Return the sums over all jobs that are left; None if a part is unknown. Memory is that of the largest job."""
    left = [one for one in estimates if one.state != "stored"]
    states = [one.state for one in estimates]
    return {
        "jobs": len(estimates),
        "trainings": sum(one.request.measure is None for one in estimates),
        **{state.replace(" ", "_"): states.count(state) for state in ("stored", "to do", "not yet")},
        "seconds": total_seconds(left),
        "memory_bytes": _largest([one.memory for one in left]),
        "disk_bytes": total([one.disk for one in left]),
    }


def _largest(numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else max(filter(None, numbers), default=0)


def as_json(estimates: Sequence[Estimate], options: RunOptions) -> list[dict[str, Any]]:
    """Return one object per job."""
    numbers = {one.request: number for number, one in enumerate(estimates, start=1)}
    return [
        {
            "job": numbers[one.request],
            "what": str(one.request),
            "measure": one.request.measure,
            "task": one.request.subject.task,
            "initialisation": one.request.subject.initialisation,
            "seed": one.request.subject.seed,
            "options": dict(one.request.options),
            "waits_for": [numbers[other] for other in (one.request.training, one.leader) if other in numbers],
            "state": one.state,
            "seconds": None if one.seconds is None else round(one.seconds, 1),
            "seconds_by": one.basis,
            "memory_bytes": one.memory,
            "disk_bytes": one.disk,
            "command": command(one.request, options),
        }
        for one in estimates
    ]


def rows(estimates: Sequence[Estimate]) -> list[tuple[str, ...]]:
    """Return the table of a plan: one row for jobs that differ only by their seed."""
    return [_row(list(group)) for _, group in itertools.groupby(sorted(estimates, key=_order), _order)]


def _order(one: Estimate) -> tuple[Any, ...]:
    request = one.request
    about = (request.subject.task, request.subject.initialisation, str(request.options))
    return (request.measure is not None, request.measure or "", *about)


def _row(group: Sequence[Estimate]) -> tuple[str, ...]:
    request, left = group[0].request, [one for one in group if one.state != "stored"]
    memory, disk = _largest([one.memory for one in left]), total([one.disk for one in left])
    return (
        request.measure or "train",
        request.subject.task,
        request.subject.initialisation,
        " ".join(f"{name}={value}" for name, value in request.options),
        seed_ranges([one.request.subject.seed for one in group]),
        str(len(group) - len(left)),
        str(len(left)),
        in_time(total_seconds(left)) if left else "-",
        "; ".join(dict.fromkeys(one.basis for one in left)) or "in the store",
        size_or_unknown(memory) if left else "-",
        size_or_unknown(disk) if left else "-",
    )


def size_or_unknown(size: float | None) -> str:
    """Return a number of bytes as text."""
    return "unknown" if size is None else in_bytes(size)
