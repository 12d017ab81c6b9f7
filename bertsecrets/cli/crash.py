"""Errors that nobody foresaw: those of the machine in one line, and those of the code in a file with the traceback."""

import errno
import os
import platform
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bertsecrets.errors import first_line, shortened

USER_ERROR = 2  # exit code: what is wrong is the user's to fix
BUG = 70  # exit code, as in sysexits.h: an internal error of the software
LIBRARIES = ("bertsecrets", "torch", "transformers", "tokenizers", "datasets", "numpy", "scipy", "pydantic", "pytest")
OF_THE_MACHINE = (
    *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ESTALE),
    *(errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.EISDIR, errno.ENOTDIR),
)
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY", re.I)
SECRET = re.compile(r"hf_\w{8,}|(?<=://)[^/\s@]+:[^/\s@]+(?=@)|(?<=Bearer )\S+")


def of_the_machine(error: BaseException) -> str | None:
    """Return what to tell the user of an error that is the machine's (memory, files), in one line; None for others."""
    if _ran_out(error):
        return (
            f"not enough memory ({first_line(error)[:200]}): close other programs, use a smaller model, "
            "or use a machine with more"
        )
    if isinstance(error, OSError) and error.filename is not None and error.errno in OF_THE_MACHINE:
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
    """Return what to tell the user of an interrupted run, in one line."""
    return f"interrupted; what is finished is kept in {store}: the same command goes on from there"


def in_short(error: BaseException) -> str:
    """Return an error of the code in one line.

    >>> in_short(TypeError("no number"))
    'a bug in bertsecrets or a damaged file (TypeError: no number)'
    """
    name, text = type(error).__name__, shortened(first_line(error))
    return f"a bug in bertsecrets or a damaged file ({name}{f': {text}' if text != name else ''})"


def report_bug(error: BaseException, store: Path, command: Sequence[object]) -> str:
    """Write an error's traceback to a file in the store, and return the line that says so.

    Where there is no store, or it cannot be written, the file is in the system's temporary folder.
    """
    where = _write(_record(error, command), store)
    place = f"the traceback is in {where}" if where else "the traceback could not be written"
    return f"this is {in_short(error)}: {place}; please report it"


def _record(error: BaseException, command: Sequence[object]) -> str:
    """Return traceback, command and versions as text, without secrets."""
    lines = [
        f"arguments: {shlex.join(map(str, command))}",
        f"python {platform.python_version()} on {platform.platform()}",
        *(f"{name} {_version(name)}" for name in LIBRARIES),
        "",
        *traceback.format_exception(error),
    ]
    text = "\n".join(lines)
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) > 3:
            text = text.replace(value, "***")
    return SECRET.sub("***", text)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"


def _write(text: str, store: Path) -> Path | None:
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    for folder in (store / "crashes" if store.is_dir() else None, Path(tempfile.gettempdir())):
        if folder is None:
            continue
        try:
            folder.mkdir(exist_ok=True)
            path = folder / (name if folder.name == "crashes" else f"bertsecrets-{name}")
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return path.resolve()
    return None
