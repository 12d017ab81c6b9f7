"""Errors that the user can fix, and helpers that word them in one line."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that the user can fix: one line with what was found, what was expected and what to do next.

    The command line prints it and exits with code 2. In a run of many claims, only the claim that it concerns is an
    error: the others are judged, and then the run ends with the same code.
    """


class MissingError(UserError):
    """Data or a tool that a measurement needs is missing; a run of many measurements may skip this one."""


class NotApplicableError(UserError):
    """The model does not have this quantity, or cannot be measured in this way; the message says why."""


class MisreadError(UserError, RuntimeError):
    """A check has failed: what the suite sees of a model is not what the model computes, so nothing is measured."""


class RunError(UserError):
    """What is wrong concerns every measurement of a run (no model, a full disk), so the run ends with what is done."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, or the error's name where it has no text.

    >>> first_line(ValueError("bad header:\\n  at byte 3"))
    'bad header'
    >>> first_line(EOFError())
    'EOFError'
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(":")


def one_line(text: object) -> str:
    r"""Return a message as the one line that it must be, whatever names and contents of files are quoted in it.

    >>> one_line("not valid:\n  at byte\x1b[2J 3")
    'not valid: at byte\\x1b[2J 3'
    """
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in words)


def shortened(text: str, most: int = 300) -> str:
    """Return a text that fits into a message: the middle of a very long one is left out.

    >>> shortened("a" * 10, most=4)
    'aa...aa'
    """
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


def excerpt(text: object, most: int = 300) -> str:
    r"""Return a text as it may be quoted inside a message: on one line, without the middle if it is very long.

    >>> excerpt("bad\n  value")
    'bad value'
    """
    return shortened(one_line(str(text)[: 20 * most]), most)


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
