"""The command line. Commands import their dependencies lazily, which keeps `--help` fast."""

import argparse
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TextIO

from bertsecrets import __version__
from bertsecrets.cli import claims, compare, console, doctor, fetch, measure, plan, report, store
from bertsecrets.cli.outputs import check_command
from bertsecrets.errors import UserError, near_matches, one_line, shortened
from bertsecrets.option_checks import check_seed, check_threads
from bertsecrets.options import RunOptions
from bertsecrets.reading import READ_FILES, working_directory
from bertsecrets.texts.tasks import register_tasks

COMMAND_GROUPS = {
    "claims": ("claims", "explain"),
    "measurements and verdicts": ("measure", "report", "compare", "pin"),
    "parallel jobs": ("plan", "run"),
    "models, data and results": ("fetch", "finetune", "doctor", "store", "corpus"),
}
# Errors when writing to standard output if it is a file or a device. They do not contain a path.
OUTPUT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
MESSAGE_CHARACTERS = 2000  # maximum characters of a message


class Parser(argparse.ArgumentParser):
    """A parser that reports invalid usage in one line."""

    commands: Any

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **named})

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """Parse the arguments of this command. This parser, not the main parser, reports unknown arguments."""
        options, unknown = super().parse_known_args(*given, **named)
        if unknown and not unknown[0].startswith("-"):
            self.error(f"unrecognized argument {unknown[0]!r}")
        if unknown:
            name, flags = unknown[0].partition("=")[0], [flag for flag in self._option_string_actions if len(flag) > 2]
            self.error(f"unknown option {name}: {near_matches(name, flags)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        line = one_line(shortened(message, MESSAGE_CHARACTERS))
        self.exit(console.USER_ERROR, f"{self.prog}: {line} (see {self.prog} --help)\n")


class _MainParser(Parser):
    """The parser of all commands. Its help lists the commands in groups."""

    def format_help(self) -> str:
        lines = [self.format_usage(), f"{self.description}"]
        for title, names in COMMAND_GROUPS.items():
            lines += ["", f"{title}:", *(f"  {name:<9} {self.commands.choices[name].description}" for name in names)]
        return "\n".join([*lines, "", "`bertsecrets COMMAND --help` lists the options of a command.", ""])


def build_parser() -> _MainParser:
    """Return the parser of all commands and their options."""
    parser = _MainParser(
        prog="bertsecrets", description='"Revealing the Dark Secrets of BERT" (Kovaleva et al. 2019) as a test suite.'
    )
    parser.add_argument("--version", action="version", version=f"bertsecrets {__version__}")
    parser.commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for group in (claims, measure, report, compare, plan, fetch, doctor, store):
        group.add_parsers(parser.commands)
    return parser


def main(argv: list[str] | None = None, build: Callable[[], argparse.ArgumentParser] = build_parser) -> int:
    """Run a command of the parser that `build` returns, and return the exit code.

    0: no unexpected deviation. 1: a claim deviates unexpectedly. 2: an error that the user can fix. 70: a bug.
    128 + n: interrupted by signal n. SIGTERM, SIGHUP and SIGQUIT are handled like Ctrl-C: unfinished work is cleaned
    up.
    """
    words = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that cannot be shown must not end a run
    for place, word in enumerate(words, start=1):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            advice = "write it in UTF-8, and set LC_ALL=C.UTF-8 or PYTHONUTF8=1 if the locale has another encoding"
            return _tell(f"word {place} of the command ({shortened(word)}) is not valid text: {advice}")
    READ_FILES.clear()
    options = build().parse_args(words, argparse.Namespace(words=words))
    with console.as_interrupt(), console.warnings_in_one_line(), console.bars_on_terminals():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    code = 0
    try:
        _check_process()
        if isinstance(getattr(options, "seed", None), int):
            check_seed(options.seed)
        if hasattr(options, "threads"):
            check_threads(options.threads)  # before torch is imported, which would print a line about invalid numbers
        if getattr(options, "task_file", None):
            register_tasks(RunOptions.from_namespace(options).tasks)
        check_command(options)
        code = options.run(options) or 0
        print(end="", flush=True)
    except KeyboardInterrupt as signalled:
        return _tell(console.interrupted_message(_store_of(options)), console.interrupted(signalled))
    except BrokenPipeError:
        _drop(sys.stdout)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in OUTPUT_ERRNOS:
            _drop(sys.stdout)
            return _tell(f"cannot write the output ({error.strerror}): redirect the output to another file")
        return _tell(*console.explained(error))
    return code


def _check_process() -> None:
    """Check what the libraries need of this process, before one of them ends the process without an explanation."""
    working_directory()
    if sys.flags.optimize > 1:
        raise UserError("Python runs without docstrings, which transformers needs: leave out -OO and PYTHONOPTIMIZE=2")


def _store_of(options: argparse.Namespace) -> Path | None:
    """Return the store that a command uses, or None if the project's default options cannot be read."""
    with suppress(Exception):  # a signal may arrive before the defaults have been read
        return RunOptions.from_namespace(argparse.Namespace(store=getattr(options, "store", None))).store_folder
    return None


def _tell(problem: object, code: int = console.USER_ERROR) -> int:
    """Print a one-line error message to standard error, and return the exit code."""
    try:
        print(f"bertsecrets: {one_line(shortened(str(problem), MESSAGE_CHARACTERS))}", file=sys.stderr, flush=True)
    except OSError:  # if standard error is not writable, the exit code still signals the problem
        _drop(sys.stderr)
    return code


def _drop(stream: TextIO) -> None:
    """Discard a stream's buffered output. Flushing it at exit would fail again and change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
