"""Export a plan as a shell script with one command per job."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bertsecrets.options import PARSING, RunOptions, flag
from bertsecrets.types import Request

EXPORTED_VARIABLES = ("BERTSECRETS_PARAMS", "BERTSECRETS_EXPECTED", "BERTSECRETS_MAPS", "BERTSECRETS_PATTERNS")
RUN_ONLY_OPTIONS = ("seeds", "budget", "keep_checkpoints")  # not options of a single job


def command(request: Request, options: RunOptions) -> str:
    """Return the command that runs a job. It does nothing if the result is stored."""
    subject = request.subject
    words = ["bertsecrets", "finetune"] if request.measure is None else ["bertsecrets", "measure", request.measure]
    if request.on_task:
        words += ["--task", subject.task, "--init", subject.initialisation, "--seed", str(subject.seed)]
    for name, value in request.options:
        words += ["--option", f"{name}={value}"]
    words += words_of(options, RUN_ONLY_OPTIONS)
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


def shell_script(jobs: Iterable[Request], options: RunOptions) -> str:
    """Return a script with one command per job. It stops if the store is not at its path."""
    lines = [
        "#!/bin/sh",
        "# One line per job, trainings first. Each can be repeated, on any machine with access to the store.",
    ]
    for variable in EXPORTED_VARIABLES:
        if value := os.environ.get(variable):
            lines.append(f"export {variable}={shlex.quote(os.path.abspath(value))}")
    store = os.path.abspath(options.store_folder)
    message = f"bertsecrets: the store of this plan is not at {store}: create the plan again with --store"
    lines.append(f"[ -d {shlex.quote(store)} ] || {{ echo {shlex.quote(message)} >&2; exit 2; }}")
    return "\n".join([*lines, *(command(job, options) for job in jobs)]) + "\n"
