"""The exit code of a benchmark run: 1 for a deviation, 2 for a user error, 70 for a bug, 128 + n for signal n."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from _pytest.junitxml import xml_key

from bertsecrets.cli.console import BUG, USER_ERROR, interrupted
from bertsecrets.errors import UserError, one_line
from bertsecrets.formats import ERROR

KIND_PROPERTY, OUTCOME_PROPERTY = "bertsecrets", "verdict"  # report properties, also written to JUnit XML
EXIT_CODE_PLUGIN, DRIFT_PLUGIN = "bertsecrets.exit-code", "bertsecrets.drift"
BENCHMARK, CRASH, OTHER_TEST = "benchmark", "crashed", "foreign"
ENTERED = pytest.StashKey[bool]()  # set when a test's measurements begin: earlier errors are not the suite's
# A function of a pytest session and the phases in which each benchmark failed. It returns whether the run fails, and
# the cases whose test did not end as their verdict requires.
Weigh = Callable[[pytest.Session, Mapping[str, set[str]]], tuple[bool, list[str]]]


class BugError(Exception):
    """Raised if a benchmark crashes. Not an AssertionError, because that would count as a deviation."""


def end_run(config: pytest.Config, error: UserError | KeyboardInterrupt) -> NoReturn:
    """Skip this test, and end the run after it.

    If a fixture raised `error` itself, pytest would not finish the test, but other fixtures rely on this.
    """
    config.pluginmanager.get_plugin(EXIT_CODE_PLUGIN).ending = error  # type: ignore[union-attr]
    pytest.skip(one_line(error) or "interrupted")


class ExitCode:
    """A plugin that sets the exit code of the run and the names of benchmarks in JUnit XML.

    If tests other than benchmarks failed, a run that was not interrupted keeps pytest's exit code.
    """

    def __init__(self, config: pytest.Config, weigh: Weigh) -> None:
        self.config, self.weigh = config, weigh
        self.kinds: dict[str, set[str]] = {}  # by test; a repeated test counts with its last execution
        self.failed: dict[str, set[str]] = {}  # by benchmark, the phases in which it failed
        self.contradicting: list[str] = []  # cases whose test did not end as their verdict requires
        self.signalled: KeyboardInterrupt | None = None
        self.ending: UserError | KeyboardInterrupt | None = None  # see `end_run`

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        """After a test, end the run if the test called `end_run`."""
        result = yield
        if isinstance(self.ending, KeyboardInterrupt):
            raise self.ending
        if self.ending is not None:
            name = item.callspec.id  # type: ignore[attr-defined]
            pytest.exit(f"{name}: {one_line(self.ending)}", returncode=USER_ERROR)
        return result

    @pytest.hookimpl(tryfirst=True)  # before the JUnit plugin, which does not overwrite attributes
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a benchmark, or the failure of another test."""
        xml, is_benchmark = self.config.stash.get(xml_key, None), KIND_PROPERTY in dict(report.user_properties)
        if xml is not None and is_benchmark:
            module = Path(report.nodeid.partition("::")[0]).stem
            xml.node_reporter(report).attrs["classname"] = f"benchmarks.{module}"  # independent of the install location
        kinds = self.kinds.setdefault(report.nodeid, set())
        if report.when == "setup":
            kinds.clear()
            self.failed.pop(report.nodeid, None)
        if is_benchmark:
            kinds |= {str(value) for name, value in report.user_properties if name in (KIND_PROPERTY, OUTCOME_PROPERTY)}
            if report.failed:
                self.failed.setdefault(report.nodeid, set()).add(str(report.when))
        elif report.failed:
            kinds.add(OTHER_TEST)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record the signal that ended the run. Subclasses of KeyboardInterrupt come from pytest and are ignored."""
        if type(excinfo.value) is KeyboardInterrupt:
            self.signalled = excinfo.value

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code of a run that includes benchmarks."""
        kinds, ended = set().union(*self.kinds.values()), session.exitstatus
        stopped = ended == pytest.ExitCode.INTERRUPTED and bool(session.shouldstop)  # such as by --stepwise
        if self.signalled is not None and ended == pytest.ExitCode.INTERRUPTED:
            session.exitstatus = interrupted(self.signalled)
        elif CRASH in kinds and ended == pytest.ExitCode.INTERRUPTED:
            session.exitstatus = BUG
        elif (stopped or ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)) and OTHER_TEST not in kinds:
            fails, self.contradicting = self.weigh(session, self.failed)
            if CRASH in kinds:
                session.exitstatus = BUG
            elif ERROR in kinds:
                session.exitstatus = USER_ERROR
            elif fails:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif not (stopped or session.shouldfail):
                session.exitstatus = pytest.ExitCode.OK
