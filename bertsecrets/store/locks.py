"""Locks that let only one process at a time make an entry (`held`), or protect items in use from deletion (`in_use`).

The operating system releases the locks when a process ends for any reason. `one_thread` only concerns threads.
"""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from bertsecrets.progress import log

try:
    import fcntl
except ImportError:  # on Windows, items cannot be marked, so nothing is deleted
    fcntl = None  # type: ignore[assignment]

UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
FIRST_MESSAGE_SECONDS = 5.0  # time before the first message about waiting
NEXT_MESSAGE_SECONDS = 60.0  # time between messages
_THREADS = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let only one thread at a time open, train or measure models. It must not wait for other threads meanwhile.

    Torch draws random numbers for the whole process, and transformers changes its own code while it opens a model.
    """
    with _THREADS:
        yield


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` until the block ends. While waiting for the lock, log messages that name the item."""
    timeout = FIRST_MESSAGE_SECONDS
    while True:
        with held_now(path, timeout) as ours:
            if ours:
                yield
                return
        log.info(f"waiting for {what}, locked by {_holder(path)}")
        timeout = NEXT_MESSAGE_SECONDS


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Let only one process at a time change files in a folder, without leaving a lock file in it.

    If the system does not support such locks, several processes can change files at the same time.
    """
    with _opened(folder) as handle:
        if handle is not None and fcntl is not None:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def held_now(path: Path, timeout: float = 0) -> Iterator[bool]:
    """Try to lock the file `path`, and yield whether this succeeded. The lock is held until the `with` block ends.

    If another process holds the lock, this waits for up to `timeout` seconds. On a file system that does not support
    locks, this always succeeds; at worst, two processes then make the same entry.
    """
    lock = FileLock(path, fallback_to_soft=False)  # the fallback would be a file that outlives a killed process
    try:
        lock.acquire(timeout=timeout)
    except Timeout:
        yield False
        return
    except OSError as error:
        if error.errno not in UNSUPPORTED_ERRORS:
            raise
        yield True
        return
    try:
        with suppress(OSError):  # for example, a full disk; the lock works without the name
            path.write_text(f"process {os.getpid()} on host {socket.gethostname()}", encoding="utf-8")
        yield True
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """Return the name of the process that wrote a lock file, or `another process` if the file names none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    return text if text.startswith("process ") and text.isprintable() else "another process"


@contextmanager
def in_use(path: Path) -> Iterator[bool]:
    """Mark a file or folder as in use until the block ends, and yield whether it exists. Processes can share it."""
    with _opened(path) as handle:
        if handle is None:  # missing, or a folder on Windows
            yield path.exists()
        else:
            _lock(handle, exclusive=False)
            yield _is_at(handle, path)


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Yield whether a file or folder is unused. If so, no process can start using it until the block ends.

    If the file system does not support locks, every item counts as used.
    """
    with _opened(path) as handle:
        yield handle is not None and _lock(handle, exclusive=True) and _is_at(handle, path)


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int, *, exclusive: bool) -> bool:
    """Try to lock an open file or folder, and return whether it worked. A shared lock waits for an exclusive one."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except OSError:  # used by another process, or locks are not supported
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Return whether the open file or folder is still at `path`. It may have been deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False
