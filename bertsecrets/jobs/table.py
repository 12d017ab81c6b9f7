"""A plan as people and programs read it."""

import itertools
from collections.abc import Sequence
from typing import Any

from bertsecrets.jobs.estimates import Estimate
from bertsecrets.jobs.scripts import command
from bertsecrets.options import RunOptions
from bertsecrets.progress import in_time

COLUMNS = ("job", "task", "initialisation", "options", "seeds", "stored", "to do", "time", "by", "memory", "disk")


def totals(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Return the sums over all jobs that are left; None where a part is unknown. Memory is that of the largest job."""
    left = [one for one in estimates if one.state != "stored"]
    states = [one.state for one in estimates]
    memory = [one.memory for one in left]
    return {
        "jobs": len(estimates),
        "trainings": sum(one.step.job.measure is None for one in estimates),
        **{state.replace(" ", "_"): states.count(state) for state in ("stored", "to do", "not yet")},
        "seconds": total_seconds(left),
        "memory_bytes": None if None in memory else max((size or 0 for size in memory), default=0),
        "disk_bytes": _sum([one.disk for one in left]),
    }


def total_seconds(estimates: Sequence[Estimate]) -> float | None:
    """Return the seconds of all jobs that are left, one after another; None where a part is unknown."""
    return _sum([one.seconds for one in estimates if one.state != "stored"])


def _sum(numbers: Sequence[float | None]) -> float | None:
    return None if None in numbers else round(sum(filter(None, numbers)), 1)


def as_json(estimates: Sequence[Estimate], options: RunOptions) -> list[dict[str, Any]]:
    """Return one object a job."""
    numbers = {one.step.job: number for number, one in enumerate(estimates, start=1)}
    return [
        {
            "job": numbers[one.step.job],
            "what": str(one.step.job),
            "measure": one.step.job.measure,
            "task": one.step.job.subject.task,
            "initialisation": one.step.job.subject.initialisation,
            "seed": one.step.job.subject.seed,
            "options": dict(one.step.job.options),
            "waits_for": [numbers[job] for job in one.step.waits_for],
            "state": one.state,
            "seconds": None if one.seconds is None else round(one.seconds, 1),
            "seconds_by": one.basis,
            "memory_bytes": one.memory,
            "disk_bytes": one.disk,
            "command": command(one.step.job, options),
        }
        for one in estimates
    ]


def rows(estimates: Sequence[Estimate]) -> list[tuple[str, ...]]:
    """Return the table of a plan: one row for jobs that differ by their seed alone."""
    grouped = {key: list(group) for key, group in itertools.groupby(sorted(estimates, key=_order), _order)}
    return [_row(group) for group in grouped.values()]


def _order(one: Estimate) -> tuple[Any, ...]:
    job = one.step.job
    return job.measure is not None, job.measure or "", job.subject.task, job.subject.initialisation, str(job.options)


def _row(group: Sequence[Estimate]) -> tuple[str, ...]:
    job, left = group[0].step.job, [one for one in group if one.state != "stored"]
    memory = [one.memory for one in left]
    bases = dict.fromkeys(one.basis for one in left)
    return (
        job.measure or "train",
        job.subject.task,
        job.subject.initialisation,
        " ".join(f"{name}={value}" for name, value in job.options),
        in_ranges([one.step.job.subject.seed for one in group]),
        str(len(group) - len(left)),
        str(len(left)),
        in_time(total_seconds(left)) if left else "-",
        "; ".join(bases) or "in the store",
        "-" if not left else "unknown" if None in memory else in_size(max(filter(None, memory), default=0)),
        in_size(_sum([one.disk for one in left])) if left else "-",
    )


def in_ranges(numbers: Sequence[int]) -> str:
    """Return whole numbers in few words.

    >>> in_ranges([1, 2, 3, 7])
    '1-3 7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def in_size(size: float | None) -> str:
    """Return a number of bytes as a person reads it.

    >>> in_size(1_400_000_000), in_size(2e5), in_size(None)
    ('1.4 GB', '0.2 MB', 'unknown')
    """
    if size is None:
        return "unknown"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
