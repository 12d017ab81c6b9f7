"""A signal to end, taken as Ctrl-C is: what was begun is cleared away."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def as_interrupt() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, with the signal's number, as long as this lasts. For the main thread alone."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)
