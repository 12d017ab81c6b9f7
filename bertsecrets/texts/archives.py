"""The files of zip and tar archives, read within limits and never unpacked; what is damaged is told in one line."""

import bz2
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError, excerpt

MEMBER_LIMIT = 64 * 2**20  # bytes of one file; FrameNet's largest has 2 MiB
TOTAL_LIMIT = 2 * 2**30  # bytes of everything that an archive unpacks to; FrameNet 1.7 has 0.9 GiB
HEADER_LIMIT = 2**20  # bytes of what a tar archive says of one file: long names, attributes
DESCRIPTIONS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
COMPRESSED: dict[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}

# Python has a different error for each kind of damage. RuntimeError: an encrypted zip, an unknown compression.
UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError),
)


class DamagedArchiveError(ValueError):
    """An archive that is damaged, cut off, encrypted or too large, or a file that is not an archive."""


@contextmanager
def unpacking(path: Path, advice: str) -> Iterator[None]:
    """Turn errors of reading an archive, or the folder that it was unpacked to, into one line that ends with `advice`.

    Raises:
        UserError: it is damaged, encrypted, too large, not an archive or not readable.
    """
    try:
        yield
    except (DamagedArchiveError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{excerpt(path)} cannot be read ({excerpt(error, 150)}): {advice}") from error


def read_members(path: Path, wanted: Callable[[str], bool], limit: int = MEMBER_LIMIT) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the wanted files of a zip or tar archive, in its order; links and devices are no files.

    A tar archive is read to its very end, so that one that was cut off is never taken for a shorter one.

    Args:
        limit: bytes that one file may have.

    Raises:
        DamagedArchiveError: it is cut off or damaged in another way, too large, has a file twice, or is not an archive.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(8)
    files = _zipped(path, wanted, limit) if start.startswith(b"PK") else _tarred(path, start, wanted, limit)
    seen: set[str] = set()
    total = 0
    while True:
        try:
            name, content = next(files)
        except StopIteration:
            return
        except UNREADABLE as error:
            raise DamagedArchiveError(excerpt(error) or type(error).__name__) from error
        if name in seen:
            raise DamagedArchiveError(f"it has {excerpt(name, 60)} twice")
        seen.add(name)
        total += len(content)
        if len(content) > limit or total > TOTAL_LIMIT:
            raise DamagedArchiveError(_too_large(name, limit))
        yield name, content


def _too_large(name: str, limit: int) -> str:
    return (
        f"{excerpt(name, 60)} unpacks to more than {limit >> 20} MiB, "
        f"or all files together to more than {TOTAL_LIMIT >> 20} MiB"
    )


def _zipped(path: Path, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if wanted(info.filename) and not info.is_dir():
                with archive.open(info) as member:
                    yield info.filename, member.read(limit + 1)


def _tarred(path: Path, start: bytes, wanted: Callable[[str], bool], limit: int) -> Iterator[tuple[str, bytes]]:
    opener = next((opener for magic, opener in COMPRESSED.items() if start.startswith(magic)), None)
    with (
        opener(path) if opener else path.open("rb") as unpacked,
        tarfile.open(fileobj=_Bounded(unpacked), mode="r|", tarinfo=_Header) as archive,  # type: ignore[call-overload]
    ):
        for member in archive:
            if not 0 <= member.size <= TOTAL_LIMIT:
                raise ValueError(_too_large(member.name, limit))
            if member.issparse():
                raise ValueError(f"{excerpt(member.name, 60)} is stored with holes: pack it without --sparse")
            if member.isfile() and wanted(member.name):
                opened = archive.extractfile(member)
                assert opened is not None  # it is a file
                yield member.name, opened.read(limit + 1)
        while rest := archive.fileobj.read(2**20):
            if rest.strip(b"\0"):
                raise ValueError("it goes on after its end: a block of zeros stands inside it")


class _Header(tarfile.TarInfo):
    """A header that has to be whole: tarfile itself takes a damaged or missing one for the end of the archive."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):
                raise  # the block of zeros with which an archive ends
            raise tarfile.ReadError("not a tar archive, cut off or damaged") from error
        if not 0 <= info.size <= (HEADER_LIMIT if info.type in DESCRIPTIONS else TOTAL_LIMIT):
            raise tarfile.ReadError(f"a header says {info.size} bytes")
        return info


class _Bounded:
    """A stream of unpacked bytes that ends in an error when they become too many."""

    def __init__(self, stream: Any):
        self.stream = stream
        self.left = TOTAL_LIMIT

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"it unpacks to more than {TOTAL_LIMIT >> 20} MiB")
        return data
