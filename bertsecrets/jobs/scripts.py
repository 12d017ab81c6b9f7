"""A plan as a script: one command per job for any shell, or two job arrays for Slurm."""

import math
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bertsecrets.jobs.estimates import Estimate, total_seconds
from bertsecrets.options import PARSING, RunOptions
from bertsecrets.types import Request

VARIABLES = ("BERTSECRETS_PARAMS", "BERTSECRETS_EXPECTED", "BERTSECRETS_MAPS", "BERTSECRETS_PATTERNS")
ELSEWHERE = ("seeds", "budget", "accept_older", "keep_checkpoints")  # of judging, or named by the job itself
MARGIN = 3  # Slurm may end a job that takes so many times its estimate
LEAST_MINUTES, UNKNOWN_MINUTES = 10, 24 * 60


def command(request: Request, options: RunOptions) -> str:
    """Return the command that does a job, which does nothing if the store has its result already."""
    subject = request.subject
    words = ["bertsecrets", "finetune"] if request.measure is None else ["bertsecrets", "measure", request.measure]
    if request.on_task:
        words += ["--task", subject.task, "--init", subject.initialisation, "--seed", str(subject.seed)]
    for name, value in request.options:
        words += ["--option", f"{name}={value}"]
    return shlex.join([*words, *_common(options)]) + ("" if request.measure is None else " > /dev/null")


def _common(options: RunOptions) -> Iterator[str]:
    given = with_absolute_paths(options)
    for name in PARSING:
        value = None if name in ELSEWHERE else getattr(given, name)
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif value not in (None, False):
            for one in value if isinstance(value, tuple) else [value]:
                yield from (option, str(one))


def with_absolute_paths(options: RunOptions) -> RunOptions:
    """Return the same options for a job that runs in another folder."""

    def absolute(name: Any) -> Any:
        return os.path.abspath(name) if name and os.path.isdir(name) else name

    return replace(
        options,
        store=os.path.abspath(options.store_folder),
        glue=tuple(map(os.path.abspath, options.glue_folders)) or None,
        frames=os.path.abspath(options.frames_path) if options.frames_path else None,
        model=absolute(options.model),
        spacy=absolute(options.spacy),
    )


def shell_script(estimates: Sequence[Estimate], options: RunOptions) -> str:
    """Return a script that does all jobs that are left, one line each; every line may be run again, or elsewhere."""
    lines = [
        "#!/bin/sh",
        "# One line per job, trainings first; each can be run again, and on any machine that sees the store.",
        *_beginning(options),
        *(command(one.request, options) for one in estimates if one.state != "stored"),
    ]
    return "\n".join(lines) + "\n"


def slurm_script(estimates: Sequence[Estimate], options: RunOptions, *, gpu: bool) -> str:
    """Return a script that submits two job arrays: the trainings, and after them the measurements.

    Words after the script's name go to sbatch: `sh plan.sh --partition=gpu`.
    """
    left = {one.request: one for one in estimates if one.state != "stored"}
    trainings = [[one] for request, one in left.items() if request.measure is None]
    passes: dict[Request, list[Estimate]] = {}
    for request, one in left.items():
        if request.measure is not None:
            passes.setdefault(one.leader if one.leader in left else request, []).append(one)
    lines = [
        "#!/bin/bash",
        "# Submits the plan as job arrays; what follows the script's name goes to sbatch: bash plan.sh --partition=gpu",
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


def _array(name: str, variable: str, groups: list[list[Estimate]], options: RunOptions, gpu: bool) -> Iterator[str]:
    seconds = [total_seconds(group) for group in groups]
    known = [of_group for of_group in seconds if of_group is not None]
    minutes = max(LEAST_MINUTES, math.ceil(MARGIN * max(known, default=0) / 60))
    memory = [one.memory for group in groups for one in group]
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
        yield from (f"  {command(one.request, options)} || failed=$?" for one in group)
        yield "  ;;"
    yield "esac"
    yield "exit ${failed:-0}"
    yield end
    yield ")"


def _beginning(options: RunOptions) -> Iterator[str]:
    """Yield the lines that set the environment of the plan, and end a script whose store has moved."""
    for variable in VARIABLES:
        if value := os.environ.get(variable):
            yield f"export {variable}={shlex.quote(os.path.abspath(value))}"
    store = os.path.abspath(options.store_folder)
    told = f"bertsecrets: the store of this plan is not at {store}: make the plan again, with --store"
    yield f"[ -d {shlex.quote(store)} ] || {{ echo {shlex.quote(told)} >&2; exit 2; }}"
