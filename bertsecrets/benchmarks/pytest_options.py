"""The benchmarks' options in pytest. Other plugins and conftest files may have options with the same names."""

import os
import sys
from inspect import getsource
from typing import Any

import pytest

from bertsecrets.cli.baseline import BASELINE_OPTIONS
from bertsecrets.cli.console import USER_ERROR
from bertsecrets.cli.outputs import EXAMPLES_OPTION
from bertsecrets.errors import UserError, errors_in
from bertsecrets.options import (
    CHECKPOINT_OPTION,
    EXPECTED_OPTION,
    FROM_ENVIRONMENT,
    PARSING,
    RunOptions,
    flag,
    path,
    variable,
)

PREFIX = "bertsecrets_"  # prefix of the options' names in pytest's namespace
OWN_OPTIONS: dict[str, dict[str, Any]] = {
    "checkpoint": CHECKPOINT_OPTION,
    "measurements": {
        "type": path,
        "metavar": "DIR",
        "help": "judge the measurements that `measure --save` or the DVC pipeline saved in DIR; measure nothing",
    },
    "task": {"metavar": "NAME", "help": "the task that --checkpoint was fine-tuned on"},
    "expected": EXPECTED_OPTION,
    "strict_verdicts": {"action": "store_true", "help": "fail undecided claims instead of skipping them"},
    "report": {"type": path, "metavar": "DIR", "help": "write report.html and verdicts.json to DIR"},
    "examples": EXAMPLES_OPTION,
    **BASELINE_OPTIONS,
    "against": {
        "type": path,
        "metavar": "PIN",
        "help": "instead of judging claims, test whether the model has drifted from this pin",
    },
}
SWITCH_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
RUN_OPTIONS = {**PARSING, **OWN_OPTIONS}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add all options that no other plugin has added.

    If another plugin has already added an option, that plugin gets the value from the command line. The value for the
    benchmarks must then be set by an environment variable. If the variable is not set, end the process with a message
    and exit code 2.
    """
    group, groups = parser.getgroup("bertsecrets"), [*parser._groups, parser._anonymous]
    taken = {name for group in groups for option in group.options for name in option.names()}
    for name, parsing in RUN_OPTIONS.items():
        if flag(name) not in taken:
            group.addoption(flag(name), dest=PREFIX + name, **{**parsing, "default": None})
        elif variable(name) not in os.environ:
            owner = _owner(flag(name), pluginmanager)
            line = (
                f"bertsecrets: {flag(name)} is an option of the benchmarks and of {owner}: to set it for the "
                f"benchmarks, use the environment variable {variable(name)} (an empty value means the default)"
            )
            print(line, file=sys.stderr)
            raise SystemExit(USER_ERROR)


def get_option(config: pytest.Config, name: str) -> Any:
    """Return an option's value: the one given to pytest, otherwise its environment variable, otherwise the default.

    If no other plugin has an option with this name, only documented variables are read.

    Raises:
        UserError: If the value in the environment is invalid.
    """
    parsing = RUN_OPTIONS[name]
    flagged = parsing.get("action") == "store_true"
    if (value := config.getoption(PREFIX + name, None)) is not None:
        return value
    ours = hasattr(config.option, PREFIX + name)
    text = os.environ.get(variable(name), "") if name in FROM_ENVIRONMENT or not ours else ""
    if not text or name in ("glue", "store", "frames", "jobs"):  # RunOptions reads these
        return parsing.get("default", False if flagged else None)
    place = f"{variable(name)} in the environment"
    if flagged:
        if text.lower() not in SWITCH_WORDS:
            raise UserError(f"{place} is {text!r}: give one of {', '.join(SWITCH_WORDS)}")
        return SWITCH_WORDS[text.lower()]
    try:
        parsed = parsing.get("type", str)(text)
    except Exception as error:  # whatever the parser of this option raises
        raise UserError(f"{place}: {error}") from error
    if parsed not in parsing.get("choices", [parsed]):
        raise UserError(f"{place} is {text!r}: give one of {', '.join(parsing['choices'])}")
    with errors_in(place):
        RunOptions(**({name: parsed} if name in PARSING else {}))
    return parsed


def _owner(name: str, plugins: pytest.PytestPluginManager) -> str:
    for plugin in plugins.get_plugins():
        if hasattr(plugin, "pytest_addoption") and not getattr(plugin, "__name__", "").startswith("bertsecrets"):
            try:
                source = getsource(plugin)
            except (OSError, TypeError):
                continue
            if f'"{name}"' in source or f"'{name}'" in source:
                return str(getattr(plugin, "__file__", plugin))
    return "another plugin"
