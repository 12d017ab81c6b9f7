"""The package's sources in another folder, where a test may edit them between two digests of the code."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertsecrets.store import code


@contextmanager
def edited_package(folder: Path) -> Iterator[Path]:
    """Let digests of the code be those of a copy of the package, whose folder is yielded."""
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
    """Read the sources again at the next digest, as a new process does."""
    for value in vars(code).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
