"""What goes wrong with zip and tar archives, of which Python has an error of its own for every kind of damage."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsecrets.errors import UserError, first_line

# RuntimeError stands for an encrypted zip, or one packed in a way that is not known here.
UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)


@contextmanager
def unpacking(path: Path, advice: str) -> Iterator[None]:
    """Read an archive, or the folder that it was unpacked to, in this block.

    Raises:
        UserError: it is damaged, encrypted, no archive or not readable; the line ends with the advice.
    """
    try:
        yield
    except (*UNREADABLE, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({first_line(error)}): {advice}") from error
