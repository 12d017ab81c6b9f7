"""Commands that a launcher starts several times: one process does them, the others only help it to train."""

import argparse
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from bertsecrets.cli.signals import ENDING
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions

if TYPE_CHECKING:
    from bertsecrets.models.processes import Processes

SET = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # by `torchrun` and `accelerate launch`


def launched() -> bool:
    """Return whether this is one of several processes of one command."""
    return all(os.environ.get(name, "").isdecimal() for name in SET) and int(os.environ["WORLD_SIZE"]) > 1


def helping() -> bool:
    """Return whether this process only helps, and says nothing that the main one says too."""
    return launched() and int(os.environ["RANK"]) > 0


def run(do: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Do a command, or help the process that does it; returns the exit code."""
    if not launched():
        return do(options)
    if helping():
        os.environ["TQDM_DISABLE"] = "1"
    from bertsecrets.models.processes import FAILED, LostError, joined

    try:
        with joined(getattr(options, "device", None)) as processes:
            return do(options) if processes.main else _help(processes, options)
    except LostError:
        if helping():  # the main process says so
            return FAILED
        raise


def _help(processes: "Processes", options: argparse.Namespace) -> int:
    """Take part in every training that the main process calls to; returns the exit code that it gives at its end.

    Raises:
        UserError: something fails here alone.
    """
    from bertsecrets.session import Session

    for name in ("SIGINT", *ENDING):  # there is nothing to clean up here, and waiting may take long
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    session = None
    while not isinstance(call := processes.waited_for(), int):
        subject, key = call
        try:
            with processes.at_one():
                session = session or Session(RunOptions.of(options))
                session.check_alike(subject, key)
            session.train_along(subject)
        except UserError:
            if processes.called:
                raise
    return call
