"""Errors that the user can fix, and helpers that word them in one line."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can fix: one line with what was found, what was expected and what to do next.

    The command line prints it and exits with code 2; pytest stops the session with the same code.
    """


class MissingError(UserError):
    """Data or a tool that a measurement needs is missing; a run of many measurements may skip this one."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, or the error's name where it has no text.

    >>> first_line(ValueError("bad header:\\n  at byte 3"))
    'bad header'
    >>> first_line(EOFError())
    'EOFError'
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(":")


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the known names most like `name`, or else the first 20 known names.

    >>> near_matches("rtee", ["mrpc", "rte", "sst2"])
    'did you mean rte?'
    >>> near_matches("x", ["mrpc", "rte", "sst2"])
    'known: mrpc, rte, sst2'
    """
    names = list(known)
    lower = {known_name.lower(): known_name for known_name in names}
    close = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names[:20])}"
