"""Every claim as a pytest benchmark: `pytest benchmarks` in a checkout, else `pytest --pyargs bertsecrets.benchmarks`.

This module is the installed pytest plugin. It stays out of everybody else's tests: only where the benchmarks are named
does it take part, with its options (`--model`, `--glue`, ...), which other plugins may have too.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

PLUGIN = "bertsecrets.benchmarks.plugin"


def pytest_addoption(parser: "pytest.Parser", pluginmanager: "pytest.PytestPluginManager") -> None:
    """Take part where this package, or its folder, is among what pytest was called with."""
    config: Any = pluginmanager.get_plugin("pytestconfig")
    arguments = [str(argument).partition("::")[0] for argument in config.invocation_params.args]
    folder = Path(__file__).parent
    if any(name.startswith(__name__) or (name and folder in _parents(name)) for name in arguments):
        take_part(pluginmanager)


def take_part(pluginmanager: "pytest.PytestPluginManager") -> None:
    """Register the plugin that collects and judges claims, unless it is there already."""
    if not pluginmanager.has_plugin(PLUGIN):
        from bertsecrets.benchmarks import plugin

        pluginmanager.register(plugin, PLUGIN)


def _parents(name: str) -> list[Path]:
    try:
        place = Path(name).resolve()
    except (OSError, ValueError):
        return []
    return [place, *place.parents]
