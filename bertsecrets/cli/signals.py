"""SIGTERM, treated like Ctrl-C, so that unfinished work is cleaned up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt, with the signal's number, inside the block. Only for the main thread."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)
