"""Tests and benchmarks that need a GPU: marked `gpu`, and skipped where there is none. `make gpu` runs them alone."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m gpu`, open only the files that have such tests: others may need what a machine with a GPU lacks."""
    if config.option.markexpr != "gpu" or not collection_path.match("test_*.py"):
        return None
    return True if "mark.gpu" not in collection_path.read_text(encoding="utf-8") else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
