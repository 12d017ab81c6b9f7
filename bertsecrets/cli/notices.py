"""The suite's own warnings, each shown as one line, as its errors are."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_one_line() -> Iterator[None]:
    """Show the suite's own warnings without the line of code that raised them, inside the block; others as always."""
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
