"""A worker process that runs jobs. The process imports heavy libraries only after its environment is set."""

import os
import pickle  # nosec B403
import signal
import threading
import time
import traceback
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import TERMINATION_SIGNALS, interrupt
from bertsecrets.progress import LINES_VALUE, PROGRESS_VARIABLE, hidden, log

if TYPE_CHECKING:
    from bertsecrets.jobs.plan import JobResult
    from bertsecrets.options import RunOptions
    from bertsecrets.types import Request


def serve(connection: Connection, options: "RunOptions") -> None:
    """Run jobs received over a connection and send back their outcomes, until the connection is closed."""
    for number in {*TERMINATION_SIGNALS} - {signal.SIGTERM}:  # sent to all processes, but only for the parent
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        runner = JobRunner(options)
        while True:
            connection.send(runner.run(connection.recv()))
    except (EOFError, OSError, KeyboardInterrupt):  # the parent has exited or is stopping this worker
        return


class JobRunner:
    """Runs jobs in a given session. In a worker process, no session is given, and one is opened for the first job."""

    def __init__(self, options: "RunOptions", session: Any = None):
        if session is None and not hidden():  # the bars of parallel processes would overwrite each other
            os.environ[PROGRESS_VARIABLE] = LINES_VALUE
        if session is None and options.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(options.threads)
        self.options = options
        self.session = session

    def run(self, request: "Request") -> "JobResult":
        """Run a job and return its outcome, including any error."""
        from bertsecrets.jobs.plan import JobResult, perform
        from bertsecrets.session import Session

        began = time.monotonic()
        try:
            self.session = self.session or Session(self.options)
            made, error = perform(self.session, request), None
        except Exception as raised:
            made, error = False, portable(raised)
        return JobResult(request, made, error, time.monotonic() - began)


def portable(error: Exception) -> Exception:
    """Return an error that another process can unpickle, with its traceback as a note."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # nosec B301  # just pickled here
    except Exception:
        copy = None
    if not isinstance(copy, Exception):
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note("".join(traceback.format_exception(error)))
    return copy


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        log.info("stopping this worker because its run has ended")
        os.kill(os.getpid(), signal.SIGTERM)
