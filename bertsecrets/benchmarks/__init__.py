"""All claims as pytest benchmarks: `pytest benchmarks`, or `pytest --pyargs bertsecrets.benchmarks` from a wheel.

This module is the installed pytest entry point. It has no effect on other test runs: the actual plugin, whose options
(`--model`, `--glue`, ...) might clash with others, is registered only if pytest's arguments include the benchmarks.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

PLUGIN = "bertsecrets.benchmarks.plugin"


def pytest_addoption(parser: "pytest.Parser", pluginmanager: "pytest.PytestPluginManager") -> None:
    """Register the plugin if pytest's arguments include this package or its folder."""
    config: Any = pluginmanager.get_plugin("pytestconfig")
    arguments = [str(argument).partition("::")[0] for argument in config.invocation_params.args]
    folder = Path(__file__).parent
    if any(name.startswith(__name__) or (name and folder in _parents(name)) for name in arguments):
        take_part(pluginmanager)


def take_part(pluginmanager: "pytest.PytestPluginManager") -> None:
    """Register the plugin that collects and judges claims, unless already registered."""
    if not pluginmanager.has_plugin(PLUGIN):
        from bertsecrets.benchmarks import plugin

        pluginmanager.register(plugin, PLUGIN)


def _parents(name: str) -> list[Path]:
    try:
        path = Path(name).resolve()
    except (OSError, ValueError):
        return []
    return [path, *path.parents]
