"""Export plans as shell scripts that contain one command per job."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence

from bertsecrets.errors import UserError
from bertsecrets.open_session import with_absolute_paths
from bertsecrets.options import PARSING, RunOptions, flag
from bertsecrets.types import Request

EXPORTED_VARIABLES = ("BERTSECRETS_PARAMS", "BERTSECRETS_EXPECTED", "BERTSECRETS_MAPS", "BERTSECRETS_PATTERNS")
RUN_ONLY_OPTIONS = ("seeds", "budget", "keep_checkpoints")  # not options of a single job


def command(request: Request, options: RunOptions) -> str:
    """Return a command that runs a job with the current Python interpreter unless the job's result is already stored.

    Raises:
        UserError: A name or path contains a line break or another control character.
    """
    subject = request.subject
    job = ["finetune"] if request.measure is None else ["measure", request.measure]
    arguments = [sys.executable, "-m", "bertsecrets", *job]
    if request.on_task:
        arguments += ["--task", subject.task, "--init", subject.initialisation, "--seed", str(subject.seed)]
    for name, value in request.options:
        arguments += ["--option", f"{name}={value}"]
    arguments += words_of(options, (*RUN_ONLY_OPTIONS, "jobs"))  # `--threads` is given instead of `--jobs`
    for argument in arguments:
        _check_line(argument)
    return shlex.join(arguments) + ("" if request.measure is None else " > /dev/null")


def words_of(options: RunOptions, without: Sequence[str] = ()) -> Iterator[str]:
    """Yield run options as command-line arguments that work in any folder."""
    given = with_absolute_paths(options)
    for name in PARSING:
        value = None if name in without else getattr(given, name)
        if value is True:
            yield flag(name)
        elif value not in (None, False):
            for argument in value if isinstance(value, tuple) else [value]:
                yield from (flag(name), str(argument))


def shell_script(jobs: Iterable[Request], options: RunOptions) -> str:
    """Return a script with one command per job. The script stops if the store is not found at its path.

    The exit code is that of the last job that failed.
    """
    lines = [
        "#!/bin/sh",
        "# One line per job, training jobs first. Any line can be run again, on any machine with access to the store.",
    ]
    for variable in EXPORTED_VARIABLES:
        if value := os.environ.get(variable):
            _check_line(value)
            lines.append(f"export {variable}={shlex.quote(os.path.abspath(value))}")
    store = os.path.abspath(options.store_folder)
    _check_line(store)
    message = f"bertsecrets: the store of this plan was not found at {store}: create the plan again with --store"
    lines.append(f"[ -d {shlex.quote(store)} ] || {{ echo {shlex.quote(message)} >&2; exit 2; }}")
    lines += [f"{command(job, options)} || failed=$?" for job in jobs]
    return "\n".join([*lines, "exit ${failed:-0}"]) + "\n"


def _check_line(argument: str) -> None:
    """Check that an argument contains no control characters, such as a line break that would end the command."""
    if not argument.isprintable():
        raise UserError(f"{argument!r} contains a line break or another control character: rename it")
