"""Drift from a pin as pytest benchmarks: `pytest benchmarks --model my-bert --against expected/variants/my-bert.yaml`.

This plugin takes the place of the claims where `--against` names a pin: one benchmark for each measure and task of the
pin. All of them are judged together, since the false discovery rate is held over all their heads.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bertsecrets.benchmarks.workers import worker
from bertsecrets.cli.crash import USER_ERROR
from bertsecrets.cli.sides import model_side
from bertsecrets.compare.comparison import Compared, Comparison, compare
from bertsecrets.compare.pins import side_of_pin
from bertsecrets.compare.sides import Part, Side, Wanted
from bertsecrets.errors import UserError, one_line
from bertsecrets.options import RunOptions
from bertsecrets.report.drift import drift_message, drift_table, verdict_line
from bertsecrets.types import Subject

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from bertsecrets.session import Session as Run

PINNED = pytest.StashKey[Side]()
SELECTED = pytest.StashKey[list[Part]]()
FOUND = pytest.StashKey[list[str]]()  # the lines of the summary
GIVEN = pytest.StashKey[RunOptions]()
End = Callable[[pytest.Session, str, int], object]
END = pytest.StashKey[End]()
SUMMARY = "bertsecrets.drift"  # what a worker of pytest-xdist hands to its controller
OUTCOME = "verdict"  # a property of reports, and so of JUnit's XML


def judge_against(config: pytest.Config, pin: Path, options: RunOptions, end: End) -> None:
    """Let a run judge drift from a pin.

    Args:
        end: ends the run with a line and an exit code.

    Raises:
        UserError: the pin cannot be read, or is not one.
    """
    config.stash[PINNED], config.stash[GIVEN], config.stash[END] = side_of_pin(pin), options, end
    config.pluginmanager.register(sys.modules[__name__], "bertsecrets.drift")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `pinned` with every measure on every task of the pin."""
    if "pinned" in metafunc.fixturenames:
        parts = metafunc.config.stash[PINNED].parts
        metafunc.parametrize("pinned", [pytest.param(part, id=_name(part)) for part in parts])


def _name(part: Part) -> str:
    wanted = part.wanted
    initialisation = [] if wanted.initialisation == "pretrained" else [wanted.initialisation]
    options = [f"{name}-{value}" for name, value in wanted.options.items()]
    return "-".join([wanted.measure, wanted.task, *initialisation, *options])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which measures were selected: these alone are made and judged."""
    chosen = [item for item in session.items if "pinned" in getattr(item, "fixturenames", ())]
    parts: list[Part] = [item.callspec.params["pinned"] for item in chosen]  # type: ignore[attr-defined]
    session.config.stash[SELECTED] = parts


@pytest.fixture(scope="session")
def comparison(request: pytest.FixtureRequest) -> Comparison | UserError:
    """Return how far the model of the run has drifted from the pin; or why that cannot be told."""
    from bertsecrets.session import Session  # takes seconds to import

    config = request.config
    selected = config.stash[SELECTED]
    pin = replace(config.stash[PINNED], parts=tuple(selected))
    try:
        session = Session(config.stash[GIVEN])
        session.check_model()
        wanted = [part.wanted for part in pin.parts]
        _measure_share(session, wanted, *worker(config))
        found = compare(pin, model_side(session, session.model, wanted), session.settings.judge)
    except UserError as error:
        return error
    config.stash[FOUND] = [
        f"from {found.before.name} ({found.before.kind}) to {found.after.name}",
        drift_table(found),
        verdict_line(found),
    ]
    return found


def _measure_share(session: "Run", wanted: Sequence[Wanted], place: int, workers: int) -> None:
    """Measure a worker's share of the seeds, which the others then find in the store."""
    for seed in session.seeds[place::workers] if workers > 1 else ():
        for one in wanted:
            subject = Subject(session.model, one.task, one.initialisation, seed)
            with suppress(UserError):  # which is met again, and then judged
                session.measurement(one.measure, subject, **one.options)


@pytest.fixture
def drifted(comparison: Comparison | UserError, request: pytest.FixtureRequest):
    """Return a function that takes a part of the pin and hands back what has become of it."""
    if isinstance(comparison, UserError):
        request.config.stash[END](request.session, one_line(comparison), USER_ERROR)
        raise comparison

    def found(pinned: Part) -> Compared:
        one = next(one for one in comparison.measures if one.wanted.key == pinned.wanted.key)
        request.node.user_properties.append((OUTCOME, one.outcome))
        if one.outcome in ("open", "not comparable") and request.config.getoption("strict_verdicts"):
            pytest.fail(f"{one.outcome}: {one.reason or 'too few seeds to show that it is the same'}", pytrace=False)
        if one.outcome == "not comparable":
            pytest.skip(f"not comparable: {one.reason}")
        return one

    return found


def check_drift(one: Compared) -> None:
    """Make sure that a measure has not drifted.

    Raises:
        AssertionError: it has; the message names the heads, and by how many standard deviations.
    """
    __tracebackhide__ = True
    if one.outcome == "drift":
        raise AssertionError(drift_message(one))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was found to the controller, in a worker of pytest-xdist."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and FOUND in session.config.stash:
        output[SUMMARY] = session.config.stash[FOUND]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what a worker of pytest-xdist has found; all of them find the same."""
    found = getattr(node, "workeroutput", {}).get(SUMMARY)
    if found is not None:
        node.config.stash[FOUND] = found


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: "TerminalReporter", config: pytest.Config) -> None:
    """Print the table of all that was compared."""
    if FOUND in config.stash:
        terminalreporter.section("drift")
        for line in config.stash[FOUND]:
            terminalreporter.write_line(line)
