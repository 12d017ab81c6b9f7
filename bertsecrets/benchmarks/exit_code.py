"""The exit code of a run of benchmarks: 1 for a deviation, 2 for bad input, 70 for a bug, 128 + n for a signal."""

import pytest

from bertsecrets.cli.console import (
    BUG,
    USER_ERROR,
    interrupted,
)
from bertsecrets.formats import ERROR

KIND, OUTCOME = "bertsecrets", "verdict"  # properties of reports, and so of JUnit's XML
OURS, CRASHED, FOREIGN = "benchmark", "crashed", "foreign"


class BugError(Exception):
    """A benchmark has crashed; never an AssertionError, which would be a deviation."""


class ExitCode:
    """The exit code of a run: pytest's own, unless all that failed are our benchmarks.

    Reports also come from the workers of pytest-xdist, so everything is read off them.
    """

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.signalled: KeyboardInterrupt | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a report says of one of our benchmarks, and whether another test has failed."""
        properties = report.user_properties
        kinds = [str(value) for name, value in properties if name == KIND]
        if not kinds:
            self.kinds |= {FOREIGN} if report.failed else set()
            return
        self.kinds |= {*kinds, *(str(value) for name, value in properties if name == OUTCOME)}

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note the signal that ends the run; pytest and pytest-xdist end runs by errors that are made of that one."""
        if type(excinfo.value) is KeyboardInterrupt:
            self.signalled = excinfo.value

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code of a run that holds our benchmarks."""
        if self.signalled is not None and session.exitstatus == pytest.ExitCode.INTERRUPTED:
            session.exitstatus = interrupted(self.signalled)
        elif session.exitstatus == pytest.ExitCode.INTERRUPTED and CRASHED in self.kinds:
            session.exitstatus = BUG
        elif session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and FOREIGN not in self.kinds:
            if CRASHED in self.kinds:
                session.exitstatus = BUG
            elif ERROR in self.kinds:
                session.exitstatus = USER_ERROR
