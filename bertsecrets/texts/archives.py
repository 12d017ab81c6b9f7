"""Errors of damaged zip and tar archives, in one line; Python has a different error for each kind of damage."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsecrets.errors import UserError, first_line

# zipfile raises RuntimeError for encrypted archives and unknown compression methods.
UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)


@contextmanager
def unpacking(path: Path, advice: str) -> Iterator[None]:
    """Turn errors of reading an archive, or the folder that it was unpacked to, into one line that ends with `advice`.

    Raises:
        UserError: it is damaged, encrypted, not an archive or not readable.
    """
    try:
        yield
    except (*UNREADABLE, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({first_line(error)}): {advice}") from error
