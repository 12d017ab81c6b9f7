"""The options, fixtures and verdict table of the benchmarks.

A benchmark is a claim on a task. The fixture `judged` gets the measurements that the claim needs (from the store, or
made now) and judges it. A claim known to deviate is a strict xfail, marked at collection from `expected/`.
"""

import argparse
import threading
from contextlib import ExitStack

import pytest

from bertsecrets.claims.schema import Case, cases
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.notices import in_one_line
from bertsecrets.cli.signals import as_interrupt
from bertsecrets.errors import UserError
from bertsecrets.options import PARSING, RunOptions, add_options
from bertsecrets.settings import load_settings
from bertsecrets.store.entries import DamagedEntryWarning

USER_ERROR = 2
VERDICTS = pytest.StashKey[list[Verdict]]()
OPTIONS = pytest.StashKey[RunOptions]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    add_options(parser.getgroup("bertsecrets").addoption)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read options, settings and claims first, so that a mistake in them ends the run before anything starts."""
    clearing = ExitStack()
    clearing.enter_context(in_one_line())
    if threading.current_thread() is threading.main_thread():  # no other thread may handle signals
        clearing.enter_context(as_interrupt())
    config.add_cleanup(clearing.close)
    config.addinivalue_line("filterwarnings", "default")  # a warning must not cost an hour of training
    config.addinivalue_line("filterwarnings", f"always::{DamagedEntryWarning.__module__}.DamagedEntryWarning")
    if not config.getoption("benchmark_verbose", False):
        config.option.benchmark_quiet = True  # the verdict table stands in for the table of seconds
    config.stash[VERDICTS] = []
    given = argparse.Namespace(**{name: config.getoption(name) for name in PARSING})
    try:
        config.stash[OPTIONS] = RunOptions.of(given)
        load_settings()
        implemented = cases()
    except UserError as error:
        pytest.exit(str(error), returncode=USER_ERROR)
    for name in sorted({mark for case in implemented for mark in marks(case)}):
        config.addinivalue_line("markers", f"{name}: benchmarks of the claim, family or task {name}")


def marks(case: Case) -> list[str]:
    """Return the marks by which `-m` selects a case exactly: family, claim and task.

    `-k` searches marks too, so measures are not marked: `-k "sst2 and D"` must not match the letter d in their names.
    """
    return [case.claim.id[0], case.claim.id, case.task]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `case` with every implemented claim on each of its tasks."""
    if "case" not in metafunc.fixturenames:
        return
    options = metafunc.config.stash[OPTIONS]
    model = options.model or load_settings().model
    params = []
    for case in cases():
        applied = [getattr(pytest.mark, name) for name in marks(case)]
        known = case.known_deviation(model)
        if known:
            reason = f"known to deviate: {known.evidence}"
            applied.append(pytest.mark.xfail(raises=AssertionError, reason=reason, strict=options.whole))
        params.append(pytest.param(case, id=str(case), marks=applied))
    metafunc.parametrize("case", params)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run before any benchmark starts if the model, or all data, are not available."""
    items = (item for item in session.items if "case" in getattr(item, "fixturenames", ()))
    selected = [case for item in items if isinstance(case := item.callspec.params["case"], Case)]  # type: ignore[attr-defined]
    if not selected or session.config.option.collectonly:
        return
    from bertsecrets.session import Session

    try:
        run = Session(session.config.stash[OPTIONS])
        run.check_model()
        names = dict.fromkeys(case.task for case in selected)
        missing = [problem for name in names if (problem := run.resources.rows.missing(name))]
        if len(missing) == len(names):
            raise UserError(missing[0])
    except UserError as error:
        pytest.exit(str(error), returncode=USER_ERROR)


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line with the given options and the model."""
    options = config.stash[OPTIONS]
    given = {name: value for name in PARSING if (value := getattr(options, name)) not in (None, False)}
    given["model"] = options.model or load_settings().model
    shown = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in given.items()}
    return "bertsecrets: " + ", ".join(f"{name} {value}" for name, value in sorted(shown.items()))


@pytest.fixture(scope="session")
def run_session(request: pytest.FixtureRequest):
    """Return the session in which all benchmarks measure."""
    from bertsecrets.session import Session

    return Session(request.config.stash[OPTIONS])


@pytest.fixture
def judged(run_session, benchmark, request: pytest.FixtureRequest):
    """Return a function that measures and judges a case, timed, adds it to the table, and hands back the verdict."""
    from bertsecrets.claims.plan import missing

    def run(case: Case) -> Verdict:
        reason = missing(run_session, case)
        if reason:
            pytest.skip(reason)
        try:
            measured = benchmark.pedantic(run_session.measure_case, args=(case,))
            verdict = run_session.verdict(case, measured)
        except UserError as error:
            pytest.exit(f"{case}: {error}", returncode=USER_ERROR)
        benchmark.extra_info.update(verdict.as_json())
        benchmark.extra_info["reused"] = all(m.reused for m in verdict.measurements)
        request.config.stash[VERDICTS].append(verdict)
        if verdict.outcome in ("inconclusive", "not applicable"):
            pytest.skip(f"{verdict.outcome}: {verdict.reason}")
        return verdict

    return run


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-benchmark's, which is a wrapper too
def pytest_sessionfinish(session: pytest.Session):
    """Leave interrupted benchmarks out of `--benchmark-json`: one entry without a time would spoil the whole file."""
    timed = session.config._benchmarksession  # type: ignore[attr-defined]
    timed.benchmarks[:] = [entry for entry in timed.benchmarks if entry]
    if not timed.benchmarks:
        timed.json = timed.save = timed.autosave = None
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Print the verdict table."""
    verdicts = config.stash[VERDICTS]
    if not verdicts:
        return
    from bertsecrets.report.text import verdict_table

    terminalreporter.section("verdicts")
    terminalreporter.write_line(verdict_table(verdicts))
    known = [v for v in verdicts if v.outcome == "deviates" and v.case.known_deviation(v.measurements[0].subject.model)]
    if known:
        terminalreporter.write_line(f"known to deviate: {', '.join(str(v.case) for v in known)}")
