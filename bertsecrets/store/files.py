"""Atomic writes of files and folders, digests, and one-line errors for disk problems."""

import errno
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertsecrets.errors import RunError, UserError
from bertsecrets.progress import in_bytes
from bertsecrets.reading import unique_keys
from bertsecrets.store.locks import in_use, unused

MANIFEST = "manifest.json"  # in every entry of a store
UNFINISHED_SUFFIX = ".tmp"  # suffix of files and folders that are being written
REPLACED_SUFFIX = ".replaced"  # suffix of a folder that is being replaced
FILE_IN_THE_WAY = "a file exists where a folder is needed: choose another location"
WRITE_ADVICE = {  # what to do about errors on writing
    errno.ENOSPC: "no space left: free some space, or choose another location",
    errno.EDQUOT: "disk quota exceeded: free some space, or choose another location",
    errno.EFBIG: "the file exceeds the size limit: raise the limit, or choose another location",
    errno.EACCES: "not writable: choose another location",
    errno.EROFS: "read-only: choose another location",
    errno.ENOTDIR: FILE_IN_THE_WAY,
    errno.EEXIST: FILE_IN_THE_WAY,
    errno.EISDIR: "it is a folder, not a file: choose another file",
}
FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # these errors may name the file that was being read


def temporary_folder(owner: object) -> Path:
    """Return a new folder that is deleted together with the object `owner`, or when the process ends.

    Processes that were forked from this one have copies of `owner`, but do not delete the folder.
    """
    folder = Path(tempfile.mkdtemp())
    weakref.finalize(owner, _remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, process: int) -> None:
    if os.getpid() == process:
        remove(folder)


def file_sha256(path: Path) -> str:
    """Return the hex sha256 of a file, cached until the file changes."""
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
    """Return a digest of the names and contents of all files in a folder."""
    return digest({str(path.relative_to(folder)): file_sha256(path) for path in files_below(folder, pattern)})


def digest(data: Any) -> str:
    """Return the hex sha256 of JSON data, independent of key order.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def with_digest(data: dict[str, Any]) -> dict[str, Any]:
    """Return JSON data with an added digest, so that `is_intact` can detect changes.

    >>> is_intact(with_digest({"a": 1}))
    True
    >>> is_intact({**with_digest({"a": 1}), "a": 2})
    False
    """
    return {**data, "sha256": digest(data)}


def is_intact(data: Any) -> bool:
    """Return whether data match the digest that `with_digest` added."""
    return isinstance(data, dict) and data.get("sha256") == digest({k: v for k, v in data.items() if k != "sha256"})


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error})") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or {} if the file is missing or unreadable, or contains no object."""
    try:
        content = read_json(path)
    except UserError:
        return {}
    return content if isinstance(content, dict) else {}


def listed(folder: Path, pattern: str = "[!.]*") -> list[Path]:
    """Return the items in a folder whose names match a pattern, in sorted order. A missing folder counts as empty.

    Args:
        pattern: Shell-style pattern. By default, all names match except those of hidden items.

    Raises:
        UserError: If the folder cannot be listed, which `Path.glob` would treat as empty.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"cannot list {folder}: {error.strerror}") from error
    return [folder / name for name in sorted(names) if fnmatchcase(name, pattern)]


def listed_below(folder: Path) -> list[Path]:
    """Return all items in a folder and its subfolders, as `listed` does, but including hidden items."""
    found = []
    for path in listed(folder, "*"):
        found.append(path)
        if path.is_dir() and not path.is_symlink():
            found += listed_below(path)
    return sorted(found)


def files_below(folder: Path, pattern: str = "*") -> list[Path]:
    """Return all files in a folder and its subfolders whose names match a pattern, as `listed_below` does."""
    return [path for path in listed_below(folder) if fnmatchcase(path.name, pattern) and path.is_file()]


def visible_files(folder: Path, name: str) -> list[Path]:
    """Return all files with this name in a folder and its subfolders, except those in hidden folders."""
    paths = files_below(folder, name)
    return [path for path in paths if not any(part[0] == "." for part in path.relative_to(folder).parts)]


@contextmanager
def whole_folder(folder: Path, *, replace: bool = False, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary folder that becomes `folder` if the block succeeds, and is deleted if it fails.

    Args:
        replace: Whether to replace an existing `folder`. If False, a `folder` that is not empty raises OSError.
        durable: Whether to sync to disk, so that the result survives a power cut. Syncing doubles the time.
    """
    with _temporary(folder, Path.mkdir) as temporary:
        yield temporary
        for path in (*listed_below(temporary), temporary) if durable else ():
            _sync(path)
        _rename(temporary, folder, replace)
        if durable:
            _sync(folder.parent)


def _rename(fresh: Path, folder: Path, replace: bool) -> None:
    """Rename the complete folder `fresh`. If killed in between, an earlier folder remains as `.NAME.replaced`."""
    aside = folder.with_name(f".{folder.name}{REPLACED_SUFFIX}")
    if replace and folder.is_dir():
        remove(aside)
        with suppress(FileNotFoundError):  # another process is replacing it
            folder.rename(aside)
    fresh.rename(folder)
    if replace:
        remove(aside)


@contextmanager
def _temporary(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a hidden file or folder next to `target`, marked as in use, and delete it unless it was renamed."""
    for path in leftovers(target):
        remove_unused(path)
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}{UNFINISHED_SUFFIX}")
        make(path)
        with in_use(path) as exists:
            if exists:  # another process may have deleted it as a leftover before it was marked
                try:
                    yield path
                finally:
                    remove(path)
                return


def leftovers(target: Path) -> list[Path]:
    """Return the temporary files and folders of `target`, including those in use."""
    # Names contain eight random characters.
    leftover = re.compile(rf"(?s)\.{re.escape(target.name)}\..{{8}}{re.escape(UNFINISHED_SUFFIX)}")
    try:
        names = os.listdir(target.parent)
    except OSError:  # the folder can be written to but not listed
        return []
    return [target.with_name(name) for name in names if leftover.fullmatch(name)]


def remove_unused(path: Path) -> bool:
    """Delete a file or folder unless a running process uses it, and return whether it no longer exists.

    The item is renamed first, so that a killed process does not leave a partial item under the original name.
    """
    with unused(path) as free:
        if free and not path.name.startswith("."):
            path = path.rename(path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED_SUFFIX}"))
        if free:
            remove(path)
    return not os.path.lexists(path)


def remove(path: Path) -> None:
    """Delete a file or folder, ignoring errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def check_free(folder: Path, ours: Collection[str] | None = None, more: Collection[str] = ()) -> None:
    """Check that a folder can be written, and that replacing it would lose at most an earlier result.

    Long computations check this before they start. An earlier result contains all items in `ours` (by default, its
    manifest and the items listed there). It may also contain those in `more`.
    """
    named = folder
    check_writable(folder)
    with guarded_writes(folder):
        folder = Path(os.path.realpath(folder))
        present = {path.name for path in folder.iterdir()} if folder.exists() else set()
    expected = _files_of(folder) if ours is None else set(ours)
    if present and not expected <= present <= expected.union(more):
        foreign = min(present - expected.union(more) or present)
        raise UserError(f"{named} contains other files ({foreign}), which would be lost: choose a new folder")


def _files_of(folder: Path) -> set[str]:
    """Return the names of a folder's manifest and of the top-level items it lists; empty if it cannot be read."""
    with suppress(UserError, KeyError, TypeError, AttributeError):
        return {MANIFEST, *(name.partition("/")[0] for name in read_json(folder / MANIFEST)["files"])}
    return set()


def copy_whole(source: Path, folder: Path, ours: Collection[str] | None = None, more: Collection[str] = ()) -> None:
    """Copy a folder atomically, replacing an earlier copy. For `ours` and `more`, see `check_free`."""
    check_free(folder, ours, more)
    with guarded_writes(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder, replace=True) as temporary:
            for path in listed_below(source):
                target = temporary / path.relative_to(source)
                if path.is_dir():
                    target.mkdir()
                else:
                    shutil.copyfile(path, target)  # without the file's mode, which may be private


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically.

    If the path is a symbolic link, the link is kept and its target is written. Pipes and devices are written directly,
    which is not atomic. A file to which this process prints, such as `/dev/stdout`, gets the content after what has
    been printed.
    """
    data = content.encode() if isinstance(content, str) else content
    with guarded_writes(path):
        if stream := next((each for each in (sys.stdout, sys.stderr) if _is_printed_to(path, each)), None):
            stream.flush()
            with open(stream.fileno(), "ab", closefd=False) as file:
                file.write(data)
            return
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(target, Path.touch) as temporary:
            temporary.write_bytes(data)
            _sync(temporary)
            os.replace(temporary, target)


def _is_printed_to(path: Path, stream: Any) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except (OSError, ValueError, AttributeError):  # no such path, or no file behind the stream
        return False


def check_writable(path: Path) -> None:
    """Check that a file or folder can be written.

    A temporary file is created in the folder or, if the path is missing, in the nearest existing folder above it.
    """
    with guarded_writes(path):
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # fails for a loop of symbolic links
        if path.is_char_device():
            handle = os.open(path, os.O_WRONLY | os.O_NOCTTY)
            try:
                os.write(handle, b"")  # devices such as /dev/full refuse even this
            finally:
                os.close(handle)
    nearest = _nearest(path)
    if nearest != path and not nearest.is_dir():
        raise RunError(f"cannot write {path}: {nearest} is a file: choose another location")
    try:
        if not os.access(nearest, os.W_OK):
            raise PermissionError
        if nearest.is_dir():
            tempfile.TemporaryFile(dir=nearest).close()  # needed because /proc claims to be writable
    except OSError as error:
        raise RunError(f"cannot write {path}: {nearest} is not writable: choose another location") from error


def _nearest(path: Path) -> Path:
    """Return `path` if it exists. Otherwise, return the nearest existing folder above it."""
    return next(place for place in (path, *Path(os.path.realpath(path)).parents) if place.exists())


def check_space(what: str, needed: int, folder: Path) -> None:
    """Check that the disk of `folder` has `needed` bytes free, before starting a long computation."""
    free = shutil.disk_usage(_nearest(folder)).free
    if needed > free:
        raise RunError(
            f"not enough disk space for {what}: {in_bytes(needed)} needed, {in_bytes(free)} free in {folder}: "
            "free some space, or choose another location"
        )


@contextmanager
def guarded_writes(place: Path) -> Iterator[None]:
    """Turn an error that occurs while writing to `place` into a RunError whose one-line message says what to do.

    Connection errors, broken pipes, and errors about files in other folders are raised unchanged.
    """
    try:
        yield
    except OSError as error:
        number = error.errno
        if number is None or isinstance(error, ConnectionError):
            raise
        if number not in FULL_DISK_ERRORS and not _is_near(error.filename, place):
            raise
        advice = WRITE_ADVICE.get(number, f"{error.strerror or os.strerror(number)}: choose another location")
        raise RunError(f"cannot write {place}: {advice}") from error
    except SafetensorError as error:
        if "os error" not in str(error):
            raise
        raise RunError(f"cannot write {place}: {error}: free some space, or choose another location") from error


def _is_near(name: str | None, place: Path) -> bool:
    """Return whether the file `name` is inside or next to `place`. If `name` is None, return True."""
    forms = (os.path.abspath, os.path.realpath)  # the path may be a link
    return name is None or any(Path(form(name)).is_relative_to(Path(form(place)).parent) for form in forms)


def _sync(path: Path) -> None:
    """Sync a file or folder to disk, if the file system supports it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # a folder that cannot be listed, or any folder on Windows
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):  # unsupported
            raise
    finally:
        os.close(handle)
