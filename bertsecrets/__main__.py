"""The entry point of the command line, for `bertsecrets` and `python -m bertsecrets`.

If a termination signal arrives while modules are still being imported, the process prints one line and ends.
"""

import os
import signal
import sys

from bertsecrets.errors import TERMINATION_SIGNALS


def start() -> int:
    """Run the command in `sys.argv` and return its exit code."""
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from bertsecrets.cli.main import main

    return main()


def _end(number: int, _frame: object) -> None:
    """End the process at once, because nothing that needs cleanup has been started."""
    os.write(2, b"bertsecrets: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(start())
