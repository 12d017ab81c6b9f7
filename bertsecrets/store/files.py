"""Files that are written completely or not at all, and their digests; errors of the disk, in one line."""

import ctypes
import errno
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertsecrets.errors import RunError, UserError
from bertsecrets.store.locks import in_use, unused
from bertsecrets.store.permissions import file_mode, make_folders, open_up

MANIFEST = "manifest.json"  # in every entry of a store
UNFINISHED = ".tmp"  # at the end of the name of what is being written
REPLACED = ".replaced"  # at the end of the name of a folder that is being replaced
UNSUPPORTED = (errno.ENOTSUP, errno.EOPNOTSUPP)  # by the file system


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


def signed(data: dict[str, Any]) -> dict[str, Any]:
    """Return data for a JSON file together with their digest, by which the reader sees whether they have changed.

    >>> is_whole(signed({"a": 1}))
    True
    >>> is_whole({**signed({"a": 1}), "a": 2})
    False
    """
    return {**data, "sha256": digest(data)}


def is_whole(data: Any) -> bool:
    """Return whether data are as `signed` returned them."""
    return isinstance(data, dict) and data.get("sha256") == digest({k: v for k, v in data.items() if k != "sha256"})


@contextmanager
def whole_folder(folder: Path, *, replace: bool = False, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary folder that becomes `folder` when the block succeeds, and is removed when it fails.

    What processes left behind that were killed while they made this folder is removed.

    Args:
        replace: an earlier `folder` is replaced; otherwise it stays, and OSError is raised, unless it is empty.
        durable: it also survives a power cut; otherwise only a kill, and is written twice as fast.
    """
    _put_back(folder)
    with _temporary(folder, tempfile.mkdtemp) as temporary:
        yield temporary
        open_up(temporary)
        for path in (*temporary.rglob("*"), temporary) if durable else ():
            _sync(path)
        if replace:
            _replace(temporary, folder)
        else:
            temporary.rename(folder)
        if durable:
            _sync(folder.parent)


@contextmanager
def _temporary(target: Path, make: Callable[..., str]) -> Iterator[Path]:
    """Yield a new file or folder beside `target`, marked as in use; afterwards it is removed, unless it was renamed.

    Args:
        make: makes it, under the prefix, with the suffix and in the folder that it is given.
    """
    for path in leftovers(target):
        remove_unused(path)
    while True:
        path = Path(make(prefix=f".{target.name}.", suffix=UNFINISHED, dir=target.parent))
        with in_use(path) as there:
            if there:  # and not taken for a leftover in the moment before it was marked
                try:
                    yield path
                finally:
                    remove(path)
                return


def leftovers(target: Path) -> list[Path]:
    """Return the temporary files and folders of a file or folder, those in use among them."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}{re.escape(UNFINISHED)}")
    try:
        return [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]
    except OSError:  # a folder that may be written but not listed
        return []


def remove_unused(path: Path) -> bool:
    """Remove a temporary file or folder unless a running process uses it; returns whether it is gone."""
    with unused(path) as free:
        if free:
            remove(path)
    return not os.path.lexists(path)


def remove(path: Path) -> None:
    """Remove a file or folder, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _new_file(**name: Any) -> str:
    handle, path = tempfile.mkstemp(**name)
    os.close(handle)
    return path


# ---------------------------------------------------------------------- replacing a folder


def _replace(fresh: Path, folder: Path) -> None:
    """Rename `fresh` to `folder`; what was there is then at `fresh`, or gone. At no moment is there no folder.

    Where the system cannot exchange two names, the old folder is put aside for a moment, under a name from which
    `_put_back` fetches it if this process is killed then.
    """
    while True:
        try:
            fresh.rename(folder)  # it is new, or empty, or was put aside
            remove(_aside(folder))
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _exchange(fresh, folder):
            return
        remove(_aside(folder))
        with suppress(FileNotFoundError):  # another process is replacing it
            folder.rename(_aside(folder))


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step; returns whether system and file system can do that."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    if renameat2 is None:
        return False
    if renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS, *UNSUPPORTED):
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(second))


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{REPLACED}")


def _put_back(folder: Path) -> None:
    """Give a folder its name back if a process was killed while it replaced it, and remove what it left behind."""
    aside = _aside(folder)
    if not aside.is_dir():
        return
    if folder.exists():
        remove(aside)
    else:
        aside.rename(folder)


def check_free(folder: Path, ours: Collection[str] | None = None, more: Collection[str] = ()) -> None:
    """Make sure, before any long work, that a folder can be written: it is new, empty, or an earlier result.

    Args:
        ours: the files that an earlier result has, all of them; by default those that its manifest lists.
        more: files that it may have in addition.

    Raises:
        UserError: a file has that name, or the folder holds other files.
    """
    named = folder
    with guarded_writes(folder):
        folder = Path(os.path.realpath(folder))
        _put_back(folder)
        nearest = next(place for place in (folder, *folder.parents) if place.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        held = {path.name for path in folder.iterdir()} if nearest == folder else set()
    expected = _listed(folder) if ours is None else set(ours)
    if held and not expected <= held <= expected.union(more):
        foreign = min(held - expected.union(more) or held)
        raise UserError(f"{named} holds other files ({foreign}), which would be lost: name a new folder")


def _listed(folder: Path) -> set[str]:
    """Return the manifest and what holds the files that it lists; nothing where a folder has no readable manifest."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {MANIFEST, *(name.partition("/")[0] for name in files)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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
        make_folders(folder.parent)
        with whole_folder(folder, replace=True) as temporary:
            shutil.copytree(source, temporary, dirs_exist_ok=True)


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
        make_folders(target.parent)
        with _temporary(target, _new_file) as temporary:
            temporary.write_bytes(data)
            temporary.chmod(file_mode(target.parent))
            _sync(temporary)
            os.replace(temporary, target)


def check_writable(path: Path) -> None:
    """Make sure that a file or folder can be written there, as far as this can be told without writing.

    Raises:
        UserError: a file stands where a folder is needed, or the folder above may not be written.
    """
    nearest = next(place for place in (path, *Path(os.path.realpath(path)).parents) if place.exists())
    if nearest != path and not nearest.is_dir():
        raise RunError(f"cannot write {path}: {nearest} is a file: name another place")
    if not os.access(nearest, os.W_OK):
        raise RunError(f"cannot write {path}: {nearest} is not writable: name another place")


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
        number = _number(error)
        if number is None or isinstance(error, ConnectionError):
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
        }.get(number)
        if advice is None and not _is_near(error.filename, place):
            raise
        advice = advice or f"{error.strerror or os.strerror(number)}: name another place"
        raise RunError(f"cannot write {place}: {advice}") from error
    except SafetensorError as error:
        if "os error" not in str(error):
            raise
        raise RunError(f"cannot write {place}: {error}: free some space, or name another place") from error


def _number(error: OSError) -> int | None:
    """Return an error's number; that of `shutil.Error`, which lists several in words, is the first one's."""
    if isinstance(error, shutil.Error) and error.errno is None:
        first = re.search(r"\[Errno (\d+)\]", str(error))
        return int(first[1]) if first else None
    return error.errno


def _is_near(name: str | None, place: Path) -> bool:
    """Return whether an error is about the place: it has no file name, or that of a file in the place or beside it."""
    return name is None or Path(os.path.realpath(name)).is_relative_to(os.path.realpath(place.parent))


def _sync(path: Path) -> None:
    """Write a file or folder through to the disk, on file systems that can do that."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # one that may be written but not listed; Windows opens none at all
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, *UNSUPPORTED):
            raise
    finally:
        os.close(handle)
