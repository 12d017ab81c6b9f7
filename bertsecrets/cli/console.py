"""Exit codes, signal handling and messages on standard error, for the command line and pytest."""

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bertsecrets.errors import TERMINATION_SIGNALS, UserError, in_short, interrupt, of_the_machine
from bertsecrets.progress import LINES_VALUE, PROGRESS_VARIABLE

USER_ERROR = 2  # exit code of an error that the user can fix
BUG = 70  # exit code of an internal error, as in sysexits.h


def interrupted(signalled: KeyboardInterrupt) -> int:
    """Return the exit code of a run that was terminated by a signal: 128 plus the signal number."""
    number = signalled.args[0] if signalled.args else signal.SIGINT
    return 128 + (number if isinstance(number, int) else signal.SIGINT)


def interrupted_message(store: Path | None) -> str:
    """Return the message to print when a run is interrupted. The message names the run's store if it is known."""
    return f"interrupted; finished results are saved in {store or 'the store'}: run the same command to continue"


def explained(error: Exception) -> tuple[str, int]:
    """Return a message about an error, and the exit code. If the error is a bug, print its traceback first."""
    line = str(error) if isinstance(error, UserError) else of_the_machine(error)
    if line is None:
        traceback.print_exception(error)
        advice = "please report it with this traceback and the output of `bertsecrets doctor`"
        return f"this is {in_short(error)}: {advice}", BUG
    return line, USER_ERROR


def as_interrupt() -> AbstractContextManager[None]:
    """Turn termination signals into KeyboardInterrupt, so that unfinished work is cleaned up.

    Must be used in the main thread. Signals that are ignored, such as SIGHUP under `nohup`, stay ignored.
    """
    return _on_termination(interrupt)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Postpone termination signals until the end of the block, so that all files that belong together are written."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield
        return
    received: list[int] = []
    with _on_termination(lambda number, _frame: received.append(number)):
        yield
    if received:
        raise KeyboardInterrupt(received[0])


@contextmanager
def _on_termination(action: Callable[[int, Any], object]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in TERMINATION_SIGNALS}
    handled = {number: earlier for number, earlier in before.items() if earlier not in (signal.SIG_IGN, None)}
    for number in handled:
        signal.signal(number, action)
    try:
        yield
    finally:
        for number, earlier in handled.items():
            signal.signal(number, earlier)


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Show the suite's warnings without the source line that issued them."""
    before = warnings.formatwarning

    def shown(message, category, filename, lineno, line=None) -> str:
        if category.__module__.partition(".")[0] == __name__.partition(".")[0]:
            return f"bertsecrets: {message}\n"
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextmanager
def bars_on_terminals() -> Iterator[None]:
    """Hide libraries' progress bars unless standard error is a terminal. Log files get progress lines instead.

    An environment variable hides the bars: tqdm reads it during import, and child processes inherit it. If the user
    has already set this variable, it is not changed.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if terminal or PROGRESS_VARIABLE in os.environ:
        yield
        return
    os.environ[PROGRESS_VARIABLE] = LINES_VALUE
    try:
        yield
    finally:
        os.environ.pop(PROGRESS_VARIABLE, None)


ASCII_SYMBOLS = str.maketrans(
    {"\u2500": "-", "\u2713": "+", "\u2717": "x", "\u2026": "...", "\u2013": "-", "\u00b1": "+-"}
)


def encodable(text: str, stream: Any) -> str:
    """If a stream cannot encode a text, replace symbols in the text with similar ASCII characters or `?`.

    >>> import io
    >>> encodable("\u2713 50 %", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    '+ 50 %'
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(ASCII_SYMBOLS).encode(encoding, "replace").decode(encoding)
    return text
