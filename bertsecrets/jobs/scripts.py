"""A plan as a script: one command a job for any shell, or two job arrays for Slurm."""

import math
import os
import shlex
from collections.abc import Iterator, Sequence

from bertsecrets.jobs.estimates import Estimate
from bertsecrets.jobs.plan import Job, chains
from bertsecrets.measures.registry import get_measure
from bertsecrets.options import PARSING, RunOptions

VARIABLES = ("BERTSECRETS_PARAMS", "BERTSECRETS_EXPECTED", "BERTSECRETS_MAPS", "BERTSECRETS_PATTERNS")
PATHS = ("glue", "store", "frames")
ELSEWHERE = ("seeds", "budget", "accept_older", "keep_checkpoints")  # of judging, or said by the job itself
MARGIN = 3  # Slurm may end a job that takes so many times its estimate
LEAST_MINUTES, UNKNOWN_MINUTES = 10, 24 * 60


def command(job: Job, options: RunOptions) -> str:
    """Return the command that does a job, which does nothing where the store has its result already."""
    subject = job.subject
    words = ["bertsecrets", "finetune"] if job.measure is None else ["bertsecrets", "measure", job.measure]
    if job.measure is None or get_measure(job.measure).on_task:
        words += ["--task", subject.task, "--init", subject.initialisation, "--seed", str(subject.seed)]
    for name, value in job.options:
        words += ["--option", f"{name}={value}"]
    return shlex.join([*words, *_common(options)]) + ("" if job.measure is None else " > /dev/null")


def _common(options: RunOptions) -> Iterator[str]:
    """Yield the words of a run's options; folders in full, since a script may be run from anywhere."""
    given = {
        **{name: getattr(options, name) for name in PARSING if name not in ELSEWHERE},
        "glue": options.glue_folders,
        "store": options.store_folder,
        "frames": options.frames_path,
    }
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif value not in (None, False):
            for one in value if isinstance(value, list) else [value]:
                yield from (option, os.path.abspath(one) if name in PATHS or _is_folder(name, one) else str(one))


def _is_folder(name: str, value: object) -> bool:
    return name in ("model", "spacy") and os.path.isdir(str(value))


def shell_script(estimates: Sequence[Estimate], options: RunOptions) -> str:
    """Return a script that does all jobs that are left, one line each; every line may be run again, or elsewhere."""
    lines = [
        "#!/bin/sh",
        "# One line a job, trainings first; each can be run again, and on any machine that sees the store.",
        *_beginning(options),
        *(command(one.step.job, options) for one in _left(estimates)),
    ]
    return "\n".join(lines) + "\n"


def slurm_script(estimates: Sequence[Estimate], options: RunOptions, *, gpu: bool) -> str:
    """Return a script that submits two job arrays: the trainings, and after them the measurements.

    Words after the script's name go to sbatch: `sh plan.sh --partition=gpu`.
    """
    left = {one.step.job: one for one in _left(estimates)}
    trainings = [[job] for job in left if job.measure is None]
    groups = [[step.job for step in group] for group in chains([one.step for one in left.values()])]
    lines = [
        "#!/bin/bash",
        "# Submits the plan as job arrays; what follows the script's name goes to sbatch: bash plan.sh --partition=gpu",
        "set -euo pipefail",
        *_beginning(options),
        "after=",
    ]
    if trainings:
        lines += _array("train", "after", trainings, left, options, gpu)
        lines += ["after=--dependency=afterany:$after"]
    if groups:
        lines += _array("measure", "measured", groups, left, options, gpu)
        lines += ['echo "bertsecrets: the measurements are job $measured" >&2']
    return "\n".join(lines) + "\n"


def _array(
    name: str, variable: str, groups: list[list[Job]], left: dict[Job, Estimate], options: RunOptions, gpu: bool
) -> Iterator[str]:
    seconds = [[left[job].seconds for job in group] for group in groups]
    known = [sum(filter(None, group)) for group in seconds if None not in group]
    minutes = max(LEAST_MINUTES, math.ceil(MARGIN * max(known, default=0) / 60))
    memory = [left[job].memory for group in groups for job in group]
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
        yield from (f"  {command(job, options)} || failed=$?" for job in group)
        yield "  ;;"
    yield "esac"
    yield "exit ${failed:-0}"
    yield end
    yield ")"


def _beginning(options: RunOptions) -> Iterator[str]:
    """Yield the lines that set the environment of the plan, and end a script whose store is not where it was."""
    for variable in VARIABLES:
        if value := os.environ.get(variable):
            yield f"export {variable}={shlex.quote(os.path.abspath(value))}"
    store = os.path.abspath(options.store_folder)
    told = f"bertsecrets: the store of this plan is not at {store}: make the plan again, with --store"
    yield f"[ -d {shlex.quote(store)} ] || {{ echo {shlex.quote(told)} >&2; exit 2; }}"


def _left(estimates: Sequence[Estimate]) -> list[Estimate]:
    return [one for one in estimates if one.state != "stored"]
