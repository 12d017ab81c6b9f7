"""All claims as pytest benchmarks: `pytest benchmarks`, or `pytest --pyargs bertsecrets.benchmarks` from a wheel.

This module is the installed pytest entry point. It registers the actual plugin only if pytest is told to collect the
benchmarks: on the command line, in a file of arguments, or by `addopts`, `PYTEST_ADDOPTS` or `testpaths`. In all other
test runs, the plugin's options (`--model`, `--glue`, ...) cannot clash with those of other plugins.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

PLUGIN = "bertsecrets.benchmarks.plugin"
PACKAGE = Path(__file__).parents[1]
FOLDERS = (PACKAGE / "benchmarks", PACKAGE.parent / "benchmarks")  # in the package, and in a checkout


class NotStartedError(Exception):
    """Raised if pytest collects benchmarks that were not named when pytest started."""


@pytest.hookimpl(trylast=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Once all conftest files and plugins are loaded, register the plugin if this run collects the benchmarks."""
    named = [str(name) for name in early_config.known_args_namespace.file_or_dir]  # plus values of unknown options
    if not any(map(os.path.exists, named)) and early_config.invocation_params.dir == early_config.rootpath:
        named += early_config.getini("testpaths")
    if collects_benchmarks(named):
        take_part(early_config.pluginmanager)


def collects_benchmarks(arguments: Iterable[str]) -> bool:
    """Return whether any of pytest's arguments is the name or path of this package or of its benchmarks.

    >>> collects_benchmarks(["tests", "bertsecrets.benchmarks"]), collects_benchmarks(["tests"])
    (True, False)
    """
    for name in [argument.partition("::")[0] for argument in arguments]:
        if name in (__name__, __name__.partition(".")[0]) or name.startswith(f"{__name__}."):
            return True
        paths = _parents(name)
        if paths[:1] == [PACKAGE] or {*FOLDERS} & {*paths}:
            return True
    return False


def take_part(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin that collects and judges claims, unless already registered."""
    if not pluginmanager.has_plugin(PLUGIN):
        from bertsecrets.benchmarks import plugin

        pluginmanager.register(plugin, PLUGIN)


def check_started(metafunc: Any) -> None:
    """Check that the plugin is registered in the run that collects a benchmark.

    Raises:
        NotStartedError: If the benchmarks were not named when pytest was started.
    """
    if not metafunc.config.pluginmanager.has_plugin(PLUGIN):
        raise NotStartedError("pytest was started without the benchmarks: use pytest --pyargs bertsecrets.benchmarks")


def _parents(name: str) -> list[Path]:
    """Return a path and its parents, or an empty list for text that cannot be a path, such as an option's value."""
    try:
        path = Path(name).resolve()
    except (OSError, ValueError):
        return []
    return [path, *path.parents] if name else []
