"""Unexpected errors: those of the machine are one line, bugs a traceback and a line that says how to report them."""

import signal
import traceback
from pathlib import Path

from bertsecrets.errors import in_short

USER_ERROR = 2  # exit code: the user can fix what is wrong
BUG = 70  # exit code, as in sysexits.h: an internal error of the software


def interrupted(signalled: KeyboardInterrupt) -> int:
    """Return the exit code of a run that a signal ended: 128 plus the signal's number."""
    number = signalled.args[0] if signalled.args else signal.SIGINT
    return 128 + (number if isinstance(number, int) else signal.SIGINT)


def what_is_kept(store: Path) -> str:
    """Return the message of an interrupted run, in one line."""
    return f"interrupted; finished results are kept in {store}: the same command continues from there"


def report_bug(error: BaseException) -> str:
    """Print the traceback of a bug to standard error, and return the line that says how to report it."""
    traceback.print_exception(error)
    return f"this is {in_short(error)}: please report it with this traceback and the output of `bertsecrets doctor`"
