"""Messages and progress displays (a bar or log lines) on standard error, and the formatting of numbers with units."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

PROGRESS_VARIABLE = "TQDM_DISABLE"  # environment variable that hides progress, here and in other libraries
LINES_VALUE = "lines"  # value of the variable for log lines instead of bars
LINE_SECONDS = 30.0  # seconds between log lines
LINE_SHARE, MIN_LINE_SECONDS = 0.1, 10.0  # log sooner after this fraction of the work, but not before this many seconds


class _Stderr(logging.Handler):
    """A log handler that looks up `sys.stderr` for each message, because it may be replaced."""

    inside: Callable[[], AbstractContextManager[Any]] = nullcontext

    def emit(self, record: logging.LogRecord) -> None:
        with self.inside():
            print(f"bertsecrets: {record.getMessage()}", file=sys.stderr, flush=True)


log = logging.getLogger("bertsecrets")
log.setLevel(logging.INFO)
log.propagate = False
_handler = _Stderr()
log.addHandler(_handler)


@contextmanager
def shown_by(inside: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Until the block ends, write messages inside the context `inside()`, which may, for example, suspend capturing."""
    before, _handler.inside = _handler.inside, inside
    try:
        yield
    finally:
        _handler.inside = before


class Progress:
    """A progress display. The base class shows nothing."""

    def advance(self, more: float = 1.0, note: str = "") -> None:
        """Report that `more` units of work have been completed, with a note such as the loss."""


@contextmanager
def progress(title: str | None, total: int, unit: str, *, done: float = 0) -> Iterator[Progress]:
    """Show the progress of the work in the block, with title, percentage, speed and time left.

    Args:
        title: Title of the progress display. If None, nothing is shown.
        unit: Unit of work, in the singular.
        done: Amount of work already done.
    """
    if title is None or hidden():
        yield Progress()
    elif os.environ.get(PROGRESS_VARIABLE) != LINES_VALUE and _on_terminal():
        with _bar(title, total, unit, done) as bar:
            yield bar
    else:
        yield LogLines(title, total, unit, done)


def hidden() -> bool:
    """Return whether the environment hides progress."""
    return os.environ.get(PROGRESS_VARIABLE) not in (None, "", LINES_VALUE)


class LogLines(Progress):
    """Progress as log lines. Work that takes only seconds is not logged."""

    def __init__(self, title: str, total: int, unit: str, done: float = 0):
        self.title, self.total, self.unit = title, total, unit
        self.done = self.first = self.reported = done
        self.began = self.last = time.monotonic()

    def advance(self, more: float = 1.0, note: str = "") -> None:
        """Report that `more` units of work have been completed, and write a log line if one is due."""
        self.done += more
        now = time.monotonic()
        waited, further = now - self.last, self.done - self.reported
        if waited < MIN_LINE_SECONDS or (waited < LINE_SECONDS and further < LINE_SHARE * self.total):
            return
        speed = (self.done - self.first) / (now - self.began)
        left = f"{in_time((self.total - self.done) / speed)} left" if speed else "nothing done yet"
        facts = ", ".join(filter(None, (f"{speed:.3g} {self.unit}s/s", left, note)))
        share = f"{self.done / self.total:.0%}, {int(self.done + 1e-6)} of {self.total} {self.unit}s"
        log.info(f"{self.title}: {share}, {facts}")
        self.last, self.reported = now, self.done


def counted(number: int, noun: str) -> str:
    """Return a number and a noun as text, with the noun in the singular or plural.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def time_left(began: float, done: int, total: int) -> str:
    """Return the time left at the rate so far, as text to append to a line, or "" if all items are done.

    `began` is a value of `time.monotonic()`, and `done` must be at least 1.
    """
    seconds = (time.monotonic() - began) / done * (total - done)
    return f"; about {in_time(seconds)} left at this rate" if done < total else ""


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


@contextmanager
def _bar(title: str, total: int, unit: str, done: float) -> Iterator[Progress]:
    from rich.console import Console  # imported only if a bar is drawn
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=10),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[facts]}", markup=False, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with Bar(*columns, console=Console(stderr=True), expand=True, redirect_stdout=False) as drawn:
        task = drawn.add_task(title, total=total, facts=f"{int(done)}/{total}")
        drawn.update(task, completed=done)

        class Drawn(Progress):
            note = ""

            def advance(self, more: float = 1.0, note: str = "") -> None:
                drawn.advance(task, more)
                [state] = drawn.tasks
                self.note, speed = note or self.note, f"{state.speed:.3g} {unit}s/s" if state.speed else ""
                facts = (f"{int(state.completed + 1e-6)}/{total}", speed, self.note)
                drawn.update(task, facts="  ".join(filter(None, facts)))

        yield Drawn()


def in_bytes(number: float) -> str:
    """Format a number of bytes with its unit.

    >>> in_bytes(90_900_000), in_bytes(999_700_000)
    ('90.9 MB', '1 GB')
    """
    amount, unit = float(number), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:  # larger numbers are shown in the next unit
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.3g} {unit}" if unit != "bytes" else f"{int(number)} bytes"


def in_time(seconds: float) -> str:
    """Format a duration in hours, minutes and seconds.

    >>> in_time(12.3), in_time(200), in_time(7300)
    ('12 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
