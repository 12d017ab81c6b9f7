"""Benchmarks of drift from a pin: `pytest benchmarks --model my-bert --against expected/variants/my-bert.yaml`.

With `--against`, this plugin replaces the claims with one benchmark per measure and task of the pin. All of these
benchmarks are judged together, because the false discovery rate is controlled over all heads.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bertsecrets.benchmarks.exit_code import ENTERED, OUTCOME_PROPERTY, end_run
from bertsecrets.benchmarks.pytest_options import get_option
from bertsecrets.cli.compare_sides import check_rows, model_side
from bertsecrets.compare.comparison import Compared, Comparison, compare
from bertsecrets.compare.pins import side_of_pin
from bertsecrets.compare.sides import MeasureOnTask, Part
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions
from bertsecrets.report.findings import comparison_line, drift_message, drift_table

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


class Drift:
    """A pytest plugin that tests whether the model has drifted from a pin."""

    def __init__(self, pin: Path, options: RunOptions):
        self.pin, self.options = side_of_pin(pin), options
        self.summary: list[str] = []
        self.comparison: Comparison | None = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize `pinned` with the parts of the pin. Each part holds the results of one measure on one task."""
        if "pinned" in metafunc.fixturenames:
            metafunc.parametrize("pinned", [pytest.param(part, id=_name(part.wanted)) for part in self.pin.parts])

    def _compare(self, run: pytest.Session) -> Comparison:
        from bertsecrets.session import Session  # takes seconds to import

        selected = [item for item in run.items if "pinned" in getattr(item, "fixturenames", ())]
        parts: list[Part] = [item.callspec.params["pinned"] for item in selected]  # type: ignore[attr-defined]
        wanted = [part.wanted for part in parts]
        session = Session(self.options)
        session.check_model()
        check_rows(parts, session)
        side = model_side(session, session.model, wanted, required=True)
        comparison = compare(replace(self.pin, parts=tuple(parts)), side, session.settings.judge)
        about = f"from {self.pin.name} ({self.pin.kind}) to {side.name}"
        self.summary = [about, drift_table(comparison).text(), comparison_line(comparison)]
        return comparison

    @pytest.fixture
    def drifted(self, request: pytest.FixtureRequest, in_start_folder: None):
        """Return a function that compares the model with one part of the pin."""
        request.node.stash[ENTERED] = True
        try:
            comparison = self.comparison = self.comparison or self._compare(request.session)
        except (UserError, KeyboardInterrupt) as error:
            end_run(request.config, error)

        def compared(pinned: Part) -> Compared:
            measure = next(each for each in comparison.measures if each.wanted.key == pinned.wanted.key)
            request.node.user_properties.append((OUTCOME_PROPERTY, measure.outcome))
            reason = measure.reason or "too few seeds to show equivalence"
            if measure.outcome in ("open", "not comparable") and get_option(request.config, "strict_verdicts"):
                pytest.fail(f"{measure.outcome}: {reason}", pytrace=False)
            if measure.outcome == "not comparable":
                pytest.skip(f"not comparable: {reason}")
            return measure

        return compared

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: "TerminalReporter") -> None:
        """Print the table of the comparison."""
        if self.summary:
            terminalreporter.section("drift")
            for line in self.summary:
                terminalreporter.write_line(line)


def _name(wanted: MeasureOnTask) -> str:
    initialisation = [] if wanted.initialisation == "pretrained" else [wanted.initialisation]
    options = [f"{name}-{value}" for name, value in wanted.options.items()]
    return "-".join([wanted.measure, wanted.task, *initialisation, *options])


def check_drift(measure: Compared) -> None:
    """Fail the test if a measure has drifted. The message lists the drifted heads, without a traceback."""
    if measure.outcome == "drift":
        drifted = sum(int(difference.drifted.sum()) for difference in measure.differences)
        compared = sum(len(difference.drifted) for difference in measure.differences)
        # A short form comes first, for pytest's summary line.
        short = measure.reason or f"{drifted} of {compared} numbers have drifted"
        pytest.fail(f"{short}\n{drift_message(measure)}", pytrace=False)
