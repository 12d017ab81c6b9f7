"""Signals that end a process, treated like Ctrl-C, so that unfinished work is cleaned up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")  # not every system has all of them


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Make these signals raise KeyboardInterrupt, with the signal's number, inside the block; only in the main thread.

    One that is ignored, as `nohup` ignores SIGHUP, stays so.
    """
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    handled = {number: action for number, action in before.items() if action not in (signal.SIG_IGN, None)}
    for number in handled:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, action in handled.items():
            signal.signal(number, action)


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)
