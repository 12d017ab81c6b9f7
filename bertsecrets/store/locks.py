"""Locks: one process at a time makes an entry (`held`), and none deletes what another one uses (`in_use`).

The operating system releases them when a process ends for any reason.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from bertsecrets.progress import log

try:
    import fcntl
except ImportError:  # Windows: nothing can be marked, so nothing is deleted
    fcntl = None  # type: ignore[assignment]

FIRST, AGAIN = 5.0, 60.0  # seconds before the first message about waiting, and between later ones


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` inside the block; log messages while waiting for it.

    Args:
        what: what is locked, for messages: `the checkpoint minilm-rte-pretrained-s1`.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path)
    timeout = FIRST
    while True:
        try:
            lock.acquire(timeout=timeout)
            break
        except Timeout:
            log.info(f"waiting for {what}, which {_holder(path)} holds")
            timeout = AGAIN
    with _named(lock, path):
        yield


@contextmanager
def held_now(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` inside the block unless another process does; yield whether it is held.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    with _named(lock, path):
        yield True


@contextmanager
def _named(lock: FileLock, path: Path) -> Iterator[None]:
    """Write the name of this process into a held lock file, and release the lock at the end of the block."""
    try:
        with suppress(OSError):  # such as a full disk; the lock works without the name
            path.write_text(f"process {os.getpid()} on host {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """Return the process named in a lock file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    return text if text.startswith("process ") and text.isprintable() else "another process"


@contextmanager
def in_use(path: Path) -> Iterator[bool]:
    """Mark a file or folder as used inside the block, and yield whether it still exists; marks may be shared."""
    with _opened(path) as handle:
        if handle is None:  # missing, or a folder on Windows
            yield path.exists()
        else:
            _lock(handle, exclusive=False)
            yield _is_at(handle, path)


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Yield whether no process uses a file or folder; inside the block none can begin to.

    Without locks in the file system, everything counts as used.
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
    """Return whether an open file or folder could be locked; a shared lock waits for a process that deletes it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except OSError:  # another process uses it, or the file system has no such locks
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file or folder is still at the path."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False
