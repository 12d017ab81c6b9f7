"""The command line. Each command imports what it needs when it runs, which keeps `--help` fast."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from bertsecrets import __version__
from bertsecrets.cli import claims, compare, doctor, fetch, measure, plan, report, store
from bertsecrets.cli.console import (
    BUG,
    USER_ERROR,
    as_interrupt,
    bars_on_terminals,
    interrupted,
    report_bug,
    warnings_in_one_line,
    what_is_kept,
)
from bertsecrets.cli.parsing import LONGEST_LINE, Parser
from bertsecrets.errors import UserError, of_the_machine, one_line, shortened
from bertsecrets.options import RunOptions, check_seed

GROUPS = {
    "claims": ("claims", "explain", "history"),
    "measurements and verdicts": ("measure", "report", "compare", "pin"),
    "many jobs": ("plan", "run"),
    "models, data and results": ("fetch", "finetune", "doctor", "store", "corpus"),
    "instruments": ("lab",),
}
RENAMED = {
    "schema": "report --schema",
    "changes": "compare OLD.json NEW.json",
    "gallery": "report --model A --model B --html FILE",
    **{
        name: f"lab {name}"
        for name in (
            *("annotate", "calibrate", "check-ablation", "classify", "import-patterns", "sheets", "specifications"),
            *("train-parser", "train-patterns"),
        )
    },
}
# Errors of writing to standard output when it is a file or a device; they name no path.
OUTPUT_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
LONGEST_WORD = 100_000  # of a command: sets of heads may be long


class _Commands(Parser):
    """The parser of all commands; its help lists them in groups."""

    commands: Any

    def format_help(self) -> str:
        lines = [self.format_usage(), f"{self.description}"]
        for title, names in GROUPS.items():
            lines += ["", f"{title}:", *(f"  {name:<9} {self.commands.choices[name].description}" for name in names)]
        return "\n".join([*lines, "", "`bertsecrets COMMAND --help` lists the options of a command.", ""])


def build_parser() -> _Commands:
    """Return the parser of all commands and their options."""
    parser = _Commands(
        prog="bertsecrets",
        description='"Revealing the Dark Secrets of BERT" (Kovaleva et al. 2019) as benchmarks that can fail.',
    )
    parser.add_argument("--version", action="version", version=f"bertsecrets {__version__}")
    parser.commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for group in (claims, measure, report, compare, plan, fetch, doctor, store):
        group.add_parsers(parser.commands)
    help_lab = "make and check the suite's instruments: annotated maps, classifiers, parser, judge"
    parser.commands.add_parser("lab", help=help_lab, description=help_lab, add_commands=_add_lab)
    return parser


def _add_lab(commands: Any) -> None:
    from bertsecrets.lab.commands import add_parsers

    add_parsers(commands)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code.

    0: nothing deviates. 1: a claim deviates that was not known to. 2: an error that the user can fix. 70: a bug.
    128 plus a signal's number: interrupted. SIGTERM, SIGHUP and SIGQUIT are treated like Ctrl-C: unfinished
    work is cleaned up.
    """
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in RENAMED:
        return _tell(f"`bertsecrets {words[0]}` is now `bertsecrets {RENAMED[words[0]]}`")
    try:
        _check_words(words)
    except UserError as error:
        return _tell(error)
    options = build_parser().parse_args(words, argparse.Namespace(words=words))
    with as_interrupt(), warnings_in_one_line(), bars_on_terminals():
        return _run(options, words)


def _check_words(words: Sequence[str]) -> None:
    """Make sure that every word of a command can be a name, a number or a path.

    Raises:
        UserError: one is not text, or is too long for a path.
    """
    for place, word in enumerate(words, start=1):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise UserError(f"word {place} of the command is not valid text ({shortened(word)}): write it in UTF-8")
        if len(word) > LONGEST_WORD:
            raise UserError(
                f"word {place} of the command has {len(word)} characters ({shortened(word)}), "
                f"more than any option takes: give at most {LONGEST_WORD}"
            )


def _run(options: argparse.Namespace, words: Sequence[str]) -> int:
    code = 0
    try:
        code = _do(options)
        print(end="", flush=True)
    except UserError as error:
        return _tell(error)
    except KeyboardInterrupt as signalled:
        return _tell(what_is_kept(RunOptions.of(options).store_folder), interrupted(signalled))
    except BrokenPipeError:
        _drop_output()
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in OUTPUT_FAILS:
            _drop_output()
            return _tell(f"cannot write the output ({error.strerror}): redirect it to another place")
        line = of_the_machine(error)
        if line is not None:
            return _tell(line)
        return _tell(report_bug(error), BUG)
    return code


def _do(options: argparse.Namespace) -> int:
    if isinstance(getattr(options, "seed", None), int):
        check_seed(options.seed)
    return options.run(options) or 0


def _tell(problem: object, code: int = USER_ERROR) -> int:
    """Print one line about what is wrong, and return the exit code."""
    with suppress(OSError):  # where standard error is a full disk, the exit code still tells
        print(f"bertsecrets: {one_line(shortened(str(problem), LONGEST_LINE))}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Discard output that is still buffered, so that it raises no second error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
