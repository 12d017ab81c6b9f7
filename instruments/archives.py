"""Read files in zip, tar and tar.gz archives or folders, within size limits and without unpacking to disk."""

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsecrets.errors import UserError, excerpt
from bertsecrets.reading import read_bytes

MEMBER_LIMIT = 64 * 2**20  # bytes per file
TOTAL_LIMIT = 2 * 2**30  # bytes of an unpacked archive
GZIP = b"\x1f\x8b"  # first bytes of compressed files

# Python raises a different error for each kind of damage. RuntimeError means an encrypted zip or unknown compression.
UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError),
)


class DamagedArchiveError(ValueError):
    """An archive is damaged, truncated, encrypted or too large, or a file is not an archive."""


@contextmanager
def unpacking(path: Path, advice: str) -> Iterator[None]:
    """Turn errors from reading a packed or unpacked archive into a one-line error that ends with `advice`.

    Raises:
        UserError: If the file is damaged, encrypted, too large, unreadable or not an archive.
    """
    try:
        yield
    except (DamagedArchiveError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{excerpt(path)} cannot be read ({excerpt(error, 150)}): {advice}") from error


def read_members(path: Path, wanted: Callable[[str], bool], limit: int = MEMBER_LIMIT) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of the wanted regular files in a zip or tar archive or a folder, in their order.

    A tar archive is read to the end, to detect truncation.

    Args:
        limit: Maximum bytes per file.

    Raises:
        DamagedArchiveError: If the file is truncated, damaged, too large, has duplicate members, or is not an archive.
        OSError: If the file cannot be read.
        UserError: If a file in a folder cannot be read, or is too large.
    """
    if path.is_dir():
        yield from _in_folder(path, wanted, limit)
        return
    with path.open("rb") as file:
        start = file.read(8)
    files = _zipped(path, wanted, limit) if start.startswith(b"PK") else _tarred(path, start, wanted, limit)
    seen: set[str] = set()
    total = 0
    try:
        for name, content in files:
            total += len(content)
            if name in seen:
                raise ValueError(f"duplicate file {excerpt(name, 60)}")
            if len(content) > limit or total > TOTAL_LIMIT:
                raise ValueError(f"{excerpt(name, 60)} unpacks to more than {min(limit, TOTAL_LIMIT) >> 20} MiB")
            seen.add(name)
            yield name, content
    except UNREADABLE as error:
        raise DamagedArchiveError(excerpt(error) or type(error).__name__) from error


def _in_folder(folder: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if wanted(name) and path.is_file():
            yield name, read_bytes(path, limit)


def _zipped(path: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if wanted(info.filename) and not info.is_dir():
                with archive.open(info) as member:
                    yield info.filename, member.read(limit + 1)


def _tarred(path: Path, start: bytes, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with gzip.open(path) if start.startswith(GZIP) else path.open("rb") as file:
        unpacked = file.read(TOTAL_LIMIT + 1)  # to the end, where the checksum is
    if len(unpacked) > TOTAL_LIMIT:
        raise ValueError(f"it unpacks to more than {TOTAL_LIMIT >> 20} MiB")
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        for member in archive:
            if member.isfile() and wanted(member.name):
                opened = archive.extractfile(member)
                assert opened is not None  # the member is a file
                yield member.name, opened.read(limit + 1)
