"""Run a function in a subprocess that is killed at its n-th file operation, for every n.

It is killed before the operation, unless the operation opens a file for writing: then the file is already open and
empty.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

OPERATIONS = (  # audit events
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.listdir", "os.scandir"),
    *("fcntl.flock", "ctypes.dlsym", "shutil.copytree", "shutil.rmtree"),
)


def killed_at_each_operation(work: Callable[[], object]) -> Iterator[int]:
    """Yield the number of completed operations (0, 1, 2, ...) after each kill, until the work finishes undisturbed.

    The work runs in a fork, so everything that it needs must be imported in advance.
    """
    for operations in range(10_000):
        child = os.fork()
        if child == 0:
            _work_and_die(work, operations)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield operations


def _work_and_die(work: Callable[[], object], operations: int) -> None:
    done = 0

    def count(event: str, arguments: tuple) -> None:
        nonlocal done
        if event in OPERATIONS:
            done += 1
            if done == operations + 1:
                path, _, flags = arguments if event == "open" else (None, None, 0)
                if isinstance(path, str) and flags & os.O_TRUNC and not os.path.isdir(path):
                    os.open(path, flags, 0o600)
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
