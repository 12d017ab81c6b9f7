"""What a run says beside its results: the suite's own warnings, one line each, and bars on terminals alone."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from bertsecrets.progress import IN_LOGS, SWITCH


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


@contextmanager
def bars_on_terminals() -> Iterator[None]:
    """Leave out libraries' progress bars inside the block if standard error is no terminal: in a log each would be many
    lines. Our own progress is a line now and then there (`progress`).

    tqdm reads the variable when it is first imported, and processes that are started here hand it on. Set by the user,
    it leaves all of them out.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if terminal or SWITCH in os.environ:
        yield
        return
    os.environ[SWITCH] = IN_LOGS
    try:
        yield
    finally:
        os.environ.pop(SWITCH, None)
