"""Locks: one process at a time (`held`), and marks on what a running process uses (`in_use`).

The operating system drops both when a process ends, however it ends. Where a file system has no such locks for folders,
nothing is taken for unused.
"""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from bertsecrets.store.permissions import file_mode

try:
    import fcntl
except ImportError:  # Windows: nothing is marked, so nothing is taken for unused
    fcntl = None  # type: ignore[assignment]

FIRST, AGAIN = 5.0, 60.0  # seconds of waiting after which a line says so, and after which it says so again
PAUSE = 0.1  # seconds between two looks at what another process reads


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold the lock `path`, a file, inside the block; a line on standard error says so when it takes long to get it.

    Args:
        what: is waited for, for the message: `the checkpoint minilm-rte-pretrained-s1`.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path, mode=file_mode(path.parent))
    patience = FIRST
    while True:
        try:
            lock.acquire(timeout=patience)
            break
        except Timeout:
            print(f"bertsecrets: waiting for {what}, which {_holder(path)} holds", file=sys.stderr, flush=True)
            patience = AGAIN
    try:
        _sign(path)
        yield
    finally:
        lock.release()


@contextmanager
def held_now(path: Path) -> Iterator[bool]:
    """Hold the lock `path` inside the block if no other process does; yields whether it is held.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path, mode=file_mode(path.parent))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        _sign(path)
        yield True
    finally:
        lock.release()


def _sign(path: Path) -> None:
    """Write this process into its lock file."""
    with suppress(OSError):  # a full disk, for instance: the lock holds without it
        path.write_text(f"process {os.getpid()} on host {socket.gethostname()}", encoding="utf-8")


def _holder(path: Path) -> str:
    """Return who holds a lock, as far as its file says so."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    return text if text.startswith("process ") and text.isprintable() else "another process"


@contextmanager
def in_use(path: Path) -> Iterator[bool]:
    """Mark a file or folder as used inside the block; yields whether it was still there."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    except OSError:  # Windows opens no folders
        yield path.exists()
        return
    try:
        _lock(handle, exclusive=False)
        yield _is_at(handle, path)
    finally:
        os.close(handle)


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Yield whether no process has marked a file or folder as used; inside the block none can."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        yield False
        return
    try:
        yield _lock(handle, exclusive=True) and _is_at(handle, path)
    finally:
        os.close(handle)


@contextmanager
def left_alone(path: Path, what: str) -> Iterator[None]:
    """Wait until no process has marked a file or folder as used; inside the block none can.

    A line on standard error says so when it takes long. Where there are no such marks nothing is waited for.

    Args:
        what: is read, for the message: `checkpoint minilm-rte-pretrained-s1`.
    """
    handle, patience = None, FIRST
    with suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY) if fcntl is not None else None
    try:
        while handle is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(PAUSE)
            except OSError:  # the file system has no such locks
                break
            patience -= PAUSE
            if patience <= 0:
                print(f"bertsecrets: waiting for another process to finish reading {what}", file=sys.stderr, flush=True)
                patience = AGAIN
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int, *, exclusive: bool) -> bool:
    """Return whether an open file or folder could be locked; to share a lock, the one who removes it is waited for."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except OSError:  # another process uses it, or the file system has no such locks
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file or folder is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False
