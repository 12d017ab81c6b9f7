"""Unexpected errors: those of the machine are one line, bugs a traceback and a line that says how to report them."""

import errno
import signal
import sys
import traceback
from pathlib import Path

from bertsecrets.errors import first_line, shortened

USER_ERROR = 2  # exit code: the user can fix what is wrong
BUG = 70  # exit code, as in sysexits.h: an internal error of the software
MACHINE_ERRORS = (
    *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.EISDIR, errno.ENOTDIR),
)


def of_the_machine(error: BaseException) -> str | None:
    """Return a message in one line for an error of the machine (memory, files); None for other errors."""
    if _ran_out(error):
        return (
            f"not enough memory ({first_line(error)[:200]}): close other programs, use a smaller model, "
            "or use a machine with more"
        )
    if isinstance(error, OSError) and error.filename is not None and error.errno in MACHINE_ERRORS:
        return f"cannot use {shortened(str(error.filename))}: {error.strerror}"
    return None


def _ran_out(error: BaseException) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from bertsecrets.models.memory import ran_out  # loads torch

    return ran_out(error)


def interrupted(signalled: KeyboardInterrupt) -> int:
    """Return the exit code of a run that a signal ended: 128 plus the signal's number."""
    number = signalled.args[0] if signalled.args else signal.SIGINT
    return 128 + (number if isinstance(number, int) else signal.SIGINT)


def what_is_kept(store: Path) -> str:
    """Return the message of an interrupted run, in one line."""
    return f"interrupted; finished results are kept in {store}: the same command continues from there"


def in_short(error: BaseException) -> str:
    """Return an error of the code in one line.

    >>> in_short(TypeError("no number"))
    'a bug in bertsecrets or a damaged file (TypeError: no number)'
    """
    name, text = type(error).__name__, shortened(first_line(error))
    return f"a bug in bertsecrets or a damaged file ({name}{f': {text}' if text != name else ''})"


def report_bug(error: BaseException) -> str:
    """Print the traceback of a bug to standard error, and return the line that says how to report it."""
    traceback.print_exception(error)
    return f"this is {in_short(error)}: please report it with this traceback and the output of `bertsecrets doctor`"
