"""Files that are written completely or not at all, and their digests; errors of the disk, in one line."""

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

MANIFEST = "manifest.json"  # in every entry of a store


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, in hex; computed again only when the file's state changes.

    Raises:
        UserError: it cannot be read.
    """
    try:
        status = path.stat()
        return _sha256(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


@functools.cache
def _sha256(path: Path, *_state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path, pattern: str = "*") -> str:
    """Return a digest of the names and contents of a folder's files, those of its folders among them.

    Raises:
        UserError: one cannot be read.
    """
    files = (path for path in folder.rglob(pattern) if path.is_file())
    return digest({str(path.relative_to(folder)): file_sha256(path) for path in files})


def digest(data: Any) -> str:
    """Return the sha256, in hex, of anything that JSON can hold; the order of keys does not matter.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` when the block succeeds, and removed when it fails."""
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
    """Make sure, before any long work, that a folder can be written: it is new, empty, or an earlier result.

    Args:
        ours: the files that an earlier result has, all of them; by default those that its manifest lists.
        more: files that it may have in addition.

    Raises:
        UserError: a file has that name, or the folder holds other files.
    """
    with guarded_writes(folder):
        nearest = next(place for place in (folder, *folder.parents) if place.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        held = {path.name for path in folder.iterdir()} if nearest == folder else set()
    expected = _listed(folder) if ours is None else set(ours)
    if held and not expected <= held <= expected.union(more):
        foreign = min(held - expected.union(more) or held)
        raise UserError(f"{folder} holds other files ({foreign}), which would be lost: name a new folder")


def _listed(folder: Path) -> set[str]:
    """Return the manifest and the files that it lists; nothing where a folder has no readable manifest."""
    try:
        return {MANIFEST, *json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def copy_whole(source: Path, folder: Path, ours: Collection[str] | None = None, more: Collection[str] = ()) -> None:
    """Copy a folder completely or not at all; an earlier copy is replaced.

    Args:
        ours, more: the files by which an earlier copy is recognised, as for `check_free`.

    Raises:
        UserError: the disk is full, the folder cannot be written, or it holds other files.
    """
    check_free(folder, ours, more)
    with guarded_writes(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            fresh, old = Path(temporary) / "fresh", Path(temporary) / "old"
            shutil.copytree(source, fresh)
            fresh.chmod(0o755)
            if folder.exists():
                folder.rename(old)
            fresh.rename(folder)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all; a link stays a link, and its target is replaced.

    Anything that exists and is not a regular file, such as a pipe or /dev/stdout, is written to directly.

    Raises:
        UserError: the disk is full or the file cannot be written.
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
    """Turn the error of a failed write to `place` into one line that says what to do.

    Errors that have another cause are raised unchanged: those of connections and of pipes that nobody reads, those
    without a number, and those of other files, such as one that is missing.

    Raises:
        UserError: the disk is full, or the place cannot be written.
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
            errno.EFBIG: "the file would be larger than this system allows: raise the limit, or name another place",
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
    """Return whether an error is about the place: it has no file name, or that of a file in the place or beside it."""
    return name is None or Path(os.path.realpath(name)).is_relative_to(os.path.realpath(place.parent))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
