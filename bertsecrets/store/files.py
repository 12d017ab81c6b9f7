"""Files that appear whole or not at all, and their digests. The only place that knows how a disk fails."""

import errno
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertsecrets.errors import UserError

MANIFEST = "manifest.json"  # of an entry of a store


def file_sha256(path: Path) -> str:
    """The sha256, in hex, of a file; computed again only when its size or time of change differs.

    Raises:
        UserError: it cannot be read.
    """
    try:
        status = path.stat()
        return _sha256(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


@functools.cache
def _sha256(path: Path, _size: int, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(data: Any) -> str:
    """A sha256, in hex, of anything JSON can hold; equal data give equal digests whatever the key order."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when the block ends well, and vanishes when it does not."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    temporary.chmod(0o755)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        temporary.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(folder: Path, ours: Collection[str] | None = None, more: Collection[str] = ()) -> None:
    """Make sure, before anything long starts, that a folder can be written: it is new, empty, or one of ours.

    Args:
        ours: the files that an earlier one has, every one of them; by default those that its manifest lists.
        more: files that it may have besides.

    Raises:
        UserError: a file stands there, or other files are in it.
    """
    with guarded_writes(folder):
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        found = {path.name for path in folder.iterdir()} if there == folder else set()
    expected = _listed(folder) if ours is None else set(ours)
    if found and not expected <= found <= expected.union(more):
        other = min(found - expected.union(more) or found)
        raise UserError(f"{folder} holds other files ({other}), which would be lost: name a new folder")


def _listed(folder: Path) -> set[str]:
    """The files that a folder's manifest lists, and itself; none where there is no such manifest."""
    try:
        return {MANIFEST, *json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def copy_whole(source: Path, folder: Path, ours: Collection[str] | None = None, more: Collection[str] = ()) -> None:
    """Copy a folder so that the copy appears complete or not at all; an earlier copy that was there is replaced.

    Args:
        ours: what tells an earlier copy from a user's folder, as `more`: see `check_free`.

    Raises:
        UserError: the disk is full, the place cannot be written, or other files are there.
    """
    check_free(folder, ours, more)
    with guarded_writes(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as room:
            fresh, old = Path(room) / "fresh", Path(room) / "old"
            shutil.copytree(source, fresh)
            fresh.chmod(0o755)
            if folder.exists():
                folder.rename(old)
            fresh.rename(folder)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it appears complete or not at all; through a link, in the place that it leads to.

    What is there and is no regular file, such as a pipe or /dev/stdout, is written straight into.

    Raises:
        UserError: the disk is full or the place cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with guarded_writes(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def guarded_writes(place: Path) -> Iterator[None]:
    """Turn what the system says of a write that failed into one line that says what to do.

    Errors of connections and of pipes that nobody reads, those without a number, and those of other files, such as one
    that is missing, are not the place's and pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, ConnectionError):
            raise
        advice = {
            errno.ENOSPC: "no space left: free some, or name another place",
            errno.EDQUOT: "quota used up: free some space, or name another place",
            errno.EACCES: "not writable: name another place",
            errno.EROFS: "read-only: name another place",
            errno.ENOTDIR: "a file stands where a folder is needed: name another place",
            errno.EEXIST: "a file stands where a folder is needed: name another place",
            errno.EISDIR: "a folder stands where a file is needed: name another file",
            errno.EFBIG: "larger than files may be here: lift the limit, or name another place",
        }.get(error.errno)
        if advice is None and not _is_near(error.filename, place):
            raise
        advice = advice or f"{error.strerror}: name another place"
        raise UserError(f"cannot write {place}: {advice}") from error
    except SafetensorError as error:
        if "os error" not in str(error):
            raise
        raise UserError(f"cannot write {place}: {error}: free some space, or name another place") from error


def _is_near(name: str | None, place: Path) -> bool:
    """Whether an error names no file, or one beside the place or in it."""
    return name is None or Path(os.path.realpath(name)).is_relative_to(os.path.realpath(place.parent))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
