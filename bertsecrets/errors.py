"""The errors that a user can put right, and helpers for their one line."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can put right: one line with what was found, what was expected, what to do next.

    The command line prints it and exits with 2; pytest stops the session with the same code.
    """


class MissingError(UserError):
    """Data or a tool that a measurement needs is not there; whoever asked for many measurements may skip this one."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error, for a message of one line; its name, where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(":")


def near_matches(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names most like `name`, or all of them where few are known."""
    names = list(known)
    folded = {n.lower(): n for n in names}
    close = [folded[m] for m in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names[:20])}"
