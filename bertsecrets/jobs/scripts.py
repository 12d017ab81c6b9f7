"""Export a plan as a script: one shell command per job, or two Slurm job arrays."""

import math
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bertsecrets.jobs.estimates import JobEstimate, total_seconds
from bertsecrets.options import PARSING, RunOptions, flag
from bertsecrets.types import Request

VARIABLES = ("BERTSECRETS_PARAMS", "BERTSECRETS_EXPECTED", "BERTSECRETS_MAPS", "BERTSECRETS_PATTERNS")
NOT_OF_JOBS = ("seeds", "budget", "keep_checkpoints")  # not options of a single job
MARGIN = 3  # time limit in Slurm, as a multiple of the estimate
LEAST_MINUTES, UNKNOWN_MINUTES = 10, 24 * 60


def command(request: Request, options: RunOptions) -> str:
    """Return the command that runs a job. It does nothing if the result is stored."""
    subject = request.subject
    words = ["bertsecrets", "finetune"] if request.measure is None else ["bertsecrets", "measure", request.measure]
    if request.on_task:
        words += ["--task", subject.task, "--init", subject.initialisation, "--seed", str(subject.seed)]
    for name, value in request.options:
        words += ["--option", f"{name}={value}"]
    words += words_of(options, NOT_OF_JOBS)
    return shlex.join(words) + ("" if request.measure is None else " > /dev/null")


def words_of(options: RunOptions, without: Sequence[str] = ()) -> Iterator[str]:
    """Yield the words of run options on a command line that works in any folder."""
    given = with_absolute_paths(options)
    for name in PARSING:
        value = None if name in without else getattr(given, name)
        if value is True:
            yield flag(name)
        elif value not in (None, False):
            for argument in value if isinstance(value, tuple) else [value]:
                yield from (flag(name), str(argument))


def with_absolute_paths(options: RunOptions) -> RunOptions:
    """Return options that work in any working directory."""

    def absolute(name: Any) -> Any:
        return os.path.abspath(name) if name and os.path.isdir(name) else name

    return replace(
        options,
        store=os.path.abspath(options.store_folder),
        glue=tuple(map(os.path.abspath, options.glue_folders)) or options.glue,
        frames=os.path.abspath(options.frames_path) if options.frames_path else None,
        model=absolute(options.model),
        spacy=absolute(options.spacy),
    )


def shell_script(estimates: Sequence[JobEstimate], options: RunOptions) -> str:
    """Return a script with one command per remaining job."""
    lines = [
        "#!/bin/sh",
        "# One line per job, trainings first. Each can be repeated, on any machine with access to the store.",
        *_beginning(options),
        *(command(job.request, options) for job in estimates if job.state != "stored"),
    ]
    return "\n".join(lines) + "\n"


def slurm_script(estimates: Sequence[JobEstimate], options: RunOptions, *, gpu: bool) -> str:
    """Return a script that submits an array of training jobs and then an array of measurements to Slurm."""
    left = {job.request: job for job in estimates if job.state != "stored"}
    trainings = [[job] for request, job in left.items() if request.measure is None]
    passes: dict[Request, list[JobEstimate]] = {}
    for request, job in left.items():
        if request.measure is not None:
            passes.setdefault(job.leader if job.leader in left else request, []).append(job)
    lines = [
        "#!/bin/bash",
        "# Submits the plan as job arrays. Arguments go to sbatch: bash plan.sh --partition=gpu",
        "set -euo pipefail",
        *_beginning(options),
        "after=",
    ]
    if trainings:
        lines += _array("train", "after", trainings, options, gpu)
        lines += ["after=--dependency=afterany:$after"]
    if passes:
        lines += _array("measure", "measured", list(passes.values()), options, gpu)
        lines += ['echo "bertsecrets: the measurements are job $measured" >&2']
    return "\n".join(lines) + "\n"


def _array(name: str, variable: str, groups: list[list[JobEstimate]], options: RunOptions, gpu: bool) -> Iterator[str]:
    seconds = [total_seconds(group) for group in groups]
    known = [time for time in seconds if time is not None]
    minutes = max(LEAST_MINUTES, math.ceil(MARGIN * max(known, default=0) / 60))
    memory = [job.memory for group in groups for job in group]
    wanted = [
        "--parsable", f"--job-name=bertsecrets-{name}", f"--array=1-{len(groups)}",
        f"--time={minutes if len(known) == len(groups) else UNKNOWN_MINUTES}",
        *([f"--cpus-per-task={options.threads}"] if options.threads else []),
        *([f"--mem={math.ceil(1.2 * max(filter(None, memory)) / 1e6)}M"] if any(memory) else []),
        *(["--gpus-per-task=1", "--ntasks=1"] if gpu else []),
    ]  # fmt: skip
    end = f"END_OF_{name.upper()}"
    yield f"{variable}=$(sbatch {shlex.join(wanted)} $after \"$@\" <<'{end}'"
    yield "#!/bin/bash"
    yield from _beginning(options)
    yield "case $SLURM_ARRAY_TASK_ID in"
    for number, group in enumerate(groups, start=1):
        yield f"{number})"
        yield from (f"  {command(job.request, options)} || failed=$?" for job in group)
        yield "  ;;"
    yield "esac"
    yield "exit ${failed:-0}"
    yield end
    yield ")"


def _beginning(options: RunOptions) -> Iterator[str]:
    """Yield the lines that set the environment and stop the script if the store is not at its path."""
    for variable in VARIABLES:
        if value := os.environ.get(variable):
            yield f"export {variable}={shlex.quote(os.path.abspath(value))}"
    store = os.path.abspath(options.store_folder)
    message = f"bertsecrets: the store of this plan is not at {store}: create the plan again with --store"
    yield f"[ -d {shlex.quote(store)} ] || {{ echo {shlex.quote(message)} >&2; exit 2; }}"
