"""Errors that users can fix, helpers for one-line messages, and checks for optional packages."""

import difflib
import errno
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from typing import NoReturn

MACHINE_ERRNOS = (
    *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.EISDIR, errno.ENOTDIR),
)
# Optional packages: the module, the extra that installs it, and what needs it.
OPTIONAL_PACKAGES = {
    "scikit-learn": ("sklearn", "dev", "training pattern classifiers"),
    "pillow": ("PIL", "dev", "drawing contact sheets and pictures of maps"),
    "matplotlib": ("matplotlib", "dev", "drawing maps in their colours"),
    "altair": ("altair", "report", "drawing charts"),
    "vl-convert-python": ("vl_convert", "report", "drawing charts"),
    "jinja2": ("jinja2", "report", "writing a report page"),
    "ray": ("ray", "ray", "running on a Ray cluster"),
}
# The numbers of the signals that end a command. Some systems lack some of them.
TERMINATION_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
]
MEMORY_MESSAGES = ("can't allocate memory", "cannot allocate memory", "unable to mmap", "std::bad_alloc")


class UserError(Exception):
    """An error that the user can fix. The one-line message states the problem, the invalid value, and what to do.

    The command line prints the message and exits with code 2. In a run of several claims, the other claims are judged
    before the run ends with this error.
    """


class MissingError(UserError):
    """An error about missing data or a missing tool. A run may skip the measurements that need the missing input."""


class NotApplicableError(UserError):
    """An error about a quantity that does not exist for a model or that cannot be measured on it."""


class NotGivenError(NotApplicableError):
    """An error about an input that a quantity needs but the user did not give, such as a second model."""


class MisreadError(UserError, RuntimeError):
    """An error about a failed consistency check. The model is not measured, because the suite might misread it."""


class RunError(UserError):
    """An error that affects every measurement and therefore ends the run, such as a full disk."""


def interrupt(number: int, _frame: object) -> NoReturn:
    """Handle a signal by raising KeyboardInterrupt with its number."""
    raise KeyboardInterrupt(number)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error message, or the error's class name if it has no message.

    A line that introduces the next one is completed, and an object that is shown in several lines is abridged.

    >>> first_line(ValueError("bad header:\\n  at byte 3"))
    'bad header: at byte 3'
    >>> first_line(ValueError("Layer(\\n  (norm): Norm()\\n) must be a decoder"))
    'Layer(...) must be a decoder'
    >>> first_line(EOFError())
    'EOFError'
    """
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    if more and first.endswith("("):
        return f"{first}...{more[-1].strip()}"
    return f"{first} {more[0].strip()}".rstrip(":") if more and first.endswith(":") else first.rstrip(":")


def one_line(text: object) -> str:
    r"""Return text as a single line, with unprintable characters escaped.

    >>> one_line("not valid:\n  at byte\x1b[2J 3")
    'not valid: at byte\\x1b[2J 3'
    """
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in line)


def shortened(text: str, most: int = 300) -> str:
    """Replace the middle of `text` with `...` if it is longer than `most` characters.

    >>> shortened("a" * 10, most=4)
    'aa...aa'
    """
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


def excerpt(text: object, most: int = 300) -> str:
    r"""Put text on one line, and replace the middle of the line with `...` if it is longer than `most` characters.

    >>> excerpt("bad\n  value")
    'bad value'
    """
    return shortened(one_line(str(text)[: 20 * most]), most)


def quoted(value: object) -> str:
    """Describe a value for a message: by a shortened `repr` if it is text, a number or a path, otherwise by its type.

    >>> quoted("2"), quoted([2, {}])
    ("'2'", 'a list of 2, a dict')
    >>> quoted(object())
    'an object'
    """
    if value is None or isinstance(value, str | bytes | int | float | os.PathLike):
        return excerpt(repr(value), 60)
    items = ", ".join(map(quoted, islice(value, 9))) if isinstance(value, list | tuple | set) else ""
    name = type(value).__name__
    return excerpt(f"{'an' if name[0] in 'AEIOaeiou' else 'a'} {name}{items and f' of {items}'}", 60)


@contextmanager
def errors_in(place: object) -> Iterator[None]:
    """Start the message of a UserError with `place`, such as the file or variable that contains the invalid value."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{place}: {error}") from error


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return a hint for an error message: names similar to `name` or, if none is similar, the first 20 known names.

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


def of_the_machine(error: BaseException) -> str | None:
    """Return a one-line message for a system error (memory, files, packages), or None for any other error."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("bertsecrets"):
        name = error.name.partition(".")[0]
        return f"the package {name} is not installed: reinstall bertsecrets with its dependencies, or install {name}"
    if ran_out(error):
        return (
            f"not enough memory ({first_line(error)[:200]}): close other programs, use a smaller model, "
            "or use a machine with more memory"
        )
    if isinstance(error, OSError) and error.filename is not None and error.errno in MACHINE_ERRNOS:
        return f"cannot use {shortened(str(error.filename))}: {error.strerror}"
    return None


def ran_out(error: BaseException) -> bool:
    """Return whether an error means that memory ran out. On a CPU, torch's error is recognised only by its message."""
    torch = sys.modules.get("torch")  # if torch is not loaded, it cannot have raised the error
    said = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or (torch is not None and isinstance(error, torch.OutOfMemoryError))
        or any(words in said for words in MEMORY_MESSAGES)
    )


def in_short(error: BaseException) -> str:
    """Return a one-line message for an unexpected error.

    >>> in_short(TypeError("no number"))
    'a bug in bertsecrets or a damaged file (TypeError: no number)'
    """
    name, text = type(error).__name__, shortened(first_line(error))
    return f"a bug in bertsecrets or a damaged file ({name}{f': {text}' if text != name else ''})"


# ---------------------------------------------------------------------- optional packages


@contextmanager
def from_extra(package: str) -> Iterator[None]:
    """Raise MissingError if the block cannot import a package, as in `with from_extra("pillow"): import PIL`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(OPTIONAL_PACKAGES[package][0]):
            raise
        raise MissingError(_advice(package)) from error


def check_extra(extra: str) -> None:
    """Check that all packages of an extra are installed, without importing them."""
    for package, (module, own, _) in OPTIONAL_PACKAGES.items():
        if own == extra and find_spec(module) is None:
            raise MissingError(_advice(package))


def _advice(package: str) -> str:
    _, extra, purpose = OPTIONAL_PACKAGES[package]
    return f'{purpose} needs {package}, which is not installed: pip install "bertsecrets[{extra}]"'
