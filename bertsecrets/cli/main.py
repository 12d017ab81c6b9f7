"""The command line: `bertsecrets claims | explain | fetch | finetune | measure | report | doctor` and others.

Nothing heavy is imported before a command needs it, which keeps `--help` fast. Bad input ends in one line and exit
code 2.
"""

import argparse
import errno
import os
import signal
import sys
from typing import NoReturn

from bertsecrets import __version__
from bertsecrets.cli import claims, doctor, fetch, measure, patterns, report, store
from bertsecrets.cli.notices import in_one_line
from bertsecrets.cli.signals import as_interrupt
from bertsecrets.errors import UserError
from bertsecrets.options import check_seed

# Errors of writing to standard output when it is a file or a device; they name no path.
OUTPUT_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and their options."""
    parser = _Parser(
        prog="bertsecrets",
        description='"Revealing the Dark Secrets of BERT" (Kovaleva et al. 2019) as benchmarks that can fail.',
    )
    parser.add_argument("--version", action="version", version=f"bertsecrets {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for group in (claims, fetch, measure, report, patterns, store, doctor):
        group.add_parsers(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code: 0; 2 for an error that the user can fix; 128 plus a signal's number.

    SIGTERM, SIGHUP and SIGQUIT are treated like Ctrl-C: unfinished work is cleaned up.
    """
    options = build_parser().parse_args(argv)
    with as_interrupt(), in_one_line():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        if hasattr(options, "seed"):
            check_seed(options.seed)
        options.run(options)
        print(end="", flush=True)
    except UserError as error:
        print(f"bertsecrets: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as signalled:
        print("bertsecrets: interrupted; finished results are in the store", file=sys.stderr)
        return 128 + (signalled.args[0] if signalled.args else signal.SIGINT)
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT_FAILS:
            raise
        _drop_output()
        print(f"bertsecrets: cannot write the output ({error.strerror}): redirect it to another place", file=sys.stderr)
        return 2
    return 0


def _drop_output() -> None:
    """Discard output that is still buffered, so that it raises no second error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
