"""Drift from a pin as pytest benchmarks: `pytest benchmarks --model my-bert --against expected/variants/my-bert.yaml`.

With `--against`, this plugin replaces the claims with one benchmark per measure and task of the pin. Benchmarks are
judged jointly, because the false discovery rate is controlled over all heads.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bertsecrets.benchmarks.workers import worker
from bertsecrets.cli.console import USER_ERROR
from bertsecrets.cli.sides import model_side
from bertsecrets.compare.comparison import Compared, Comparison, compare
from bertsecrets.compare.pins import side_of_pin
from bertsecrets.compare.sides import Part, Wanted
from bertsecrets.errors import UserError, one_line
from bertsecrets.options import RunOptions
from bertsecrets.report.comparison import drift_message, drift_table, verdict_line

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from bertsecrets.session import Session as Run

End = Callable[[pytest.Session, str, int], object]
SUMMARY = "bertsecrets.drift"  # key of the summary that a pytest-xdist worker sends to the controller
OUTCOME = "verdict"  # a report property, also written to JUnit XML


def judge_against(config: pytest.Config, pin: Path, options: RunOptions, end: End) -> None:
    """Register the plugin that judges drift from a pin.

    Args:
        end: Function that ends the run with a message and an exit code.

    Raises:
        UserError: If the file cannot be read, or is not a pin.
    """
    config.pluginmanager.register(Drift(pin, options, end), "bertsecrets.drift")


class Drift:
    """Hooks and fixtures for judging drift from a pin."""

    def __init__(self, pin: Path, options: RunOptions, end: End):
        self.pin, self.options, self.end = side_of_pin(pin), options, end
        self.summary: list[str] = []
        self._comparison: Comparison | UserError | None = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize `pinned` with every measure on every task of the pin."""
        if "pinned" in metafunc.fixturenames:
            metafunc.parametrize("pinned", [pytest.param(part, id=_name(part.wanted)) for part in self.pin.parts])

    def comparison(self, run: pytest.Session) -> Comparison | UserError:
        """Return the cached comparison of the model with the pin on the selected measures, or its error."""
        self._comparison = self._comparison or self._compare(run)
        return self._comparison

    def _compare(self, run: pytest.Session) -> Comparison | UserError:
        from bertsecrets.session import Session  # takes seconds to import

        selected = [item for item in run.items if "pinned" in getattr(item, "fixturenames", ())]
        parts: list[Part] = [item.callspec.params["pinned"] for item in selected]  # type: ignore[attr-defined]
        wanted = [part.wanted for part in parts]
        try:
            session = Session(self.options)
            session.check_model()
            _measure_share(session, wanted, *worker(run.config))
            side = model_side(session, session.model, wanted)
            comparison = compare(replace(self.pin, parts=tuple(parts)), side, session.settings.judge)
        except UserError as error:
            return error
        about = f"from {self.pin.name} ({self.pin.kind}) to {side.name}"
        self.summary = [about, drift_table(comparison).text(), verdict_line(comparison)]
        return comparison

    @pytest.fixture
    def drifted(self, request: pytest.FixtureRequest):
        """Return a function that compares the model with a part of the pin."""
        comparison = self.comparison(request.session)
        if isinstance(comparison, UserError):
            self.end(request.session, one_line(comparison), USER_ERROR)
            raise comparison

        def compared(pinned: Part) -> Compared:
            measure = next(each for each in comparison.measures if each.wanted.key == pinned.wanted.key)
            request.node.user_properties.append((OUTCOME, measure.outcome))
            reason = measure.reason or "too few seeds to show equivalence"
            if measure.outcome in ("open", "not comparable") and request.config.getoption("strict_verdicts"):
                pytest.fail(f"{measure.outcome}: {reason}", pytrace=False)
            if measure.outcome == "not comparable":
                pytest.skip(f"not comparable: {reason}")
            return measure

        return compared

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the summary from a pytest-xdist worker to the controller."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[SUMMARY] = self.summary

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Keep the summary of a pytest-xdist worker. All workers have the same one."""
        self.summary = getattr(node, "workeroutput", {}).get(SUMMARY) or self.summary

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: "TerminalReporter") -> None:
        """Print the table of the comparison."""
        if self.summary:
            terminalreporter.section("drift")
            for line in self.summary:
                terminalreporter.write_line(line)


def _name(wanted: Wanted) -> str:
    initialisation = [] if wanted.initialisation == "pretrained" else [wanted.initialisation]
    options = [f"{name}-{value}" for name, value in wanted.options.items()]
    return "-".join([wanted.measure, wanted.task, *initialisation, *options])


def _measure_share(session: "Run", wanted: Sequence[Wanted], place: int, workers: int) -> None:
    """Measure the seeds assigned to this worker. Other workers then read them from the store."""
    for seed in session.seeds[place::workers] if workers > 1 else ():
        for part in wanted:
            with suppress(UserError):  # raised again when the side is measured
                session.measurement(part.measure, part.subject(session.model, seed), **part.options)


def check_drift(measure: Compared) -> None:
    """Check that a measure has not drifted.

    Raises:
        AssertionError: If the measure has drifted. The message lists the heads and their differences in standard
            deviations.
    """
    __tracebackhide__ = True
    if measure.outcome == "drift":
        raise AssertionError(drift_message(measure))
