"""Which tests run where: `gpu` needs a GPU; `make test` leaves out `slow` and those of the instruments."""

import re
from pathlib import Path

import pytest

WHOLE_FILE_IS_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import test files in which `-m` would deselect everything: importing them takes the time.

    `-m gpu` also runs on machines that lack what other files import.
    """
    chosen = config.option.markexpr
    if chosen not in ("gpu", "not slow") or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if chosen == "gpu":
        return True if "mark.gpu" not in text else None
    excluded = collection_path.parent.name == "instruments" or WHOLE_FILE_IS_SLOW.search(text)
    return True if excluded else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
