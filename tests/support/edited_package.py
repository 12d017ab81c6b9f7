"""A copy of the package's source code that a test can edit between two code digests."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertsecrets.store import code


@contextmanager
def edited_package(folder: Path) -> Iterator[Path]:
    """Compute code digests from a copy of the package within the block, and yield the copy's folder."""
    source, copy = Path(code.__file__).parents[1], folder / "bertsecrets"
    for path in source.rglob("*.py"):
        (copy / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy / path.relative_to(source))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "__file__", str(copy / "store" / "code.py"))
        forget()
        yield copy
    forget()


def forget() -> None:
    """Clear the caches, so that the next digest reads the source code again, as in a new process."""
    for value in vars(code).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    code.IMPORTED.__init__()
