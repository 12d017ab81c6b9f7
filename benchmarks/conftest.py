"""Collect the package's benchmarks in a checkout. Those in `speed` run only if their folder is given."""

from pathlib import Path

import pytest

from bertsecrets.benchmarks import take_part


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    take_part(pluginmanager)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = any("speed" in str(argument) for argument in config.args)
    return True if collection_path.name == "speed" and not named else None
