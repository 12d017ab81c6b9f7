"""The options, fixtures and verdict table of the benchmarks.

A benchmark is a claim on a task. The fixture `judged` gets the measurements that the claim needs (from the store, or
made now) and judges it. A claim known to deviate is a strict xfail, marked at collection from `expected/`.
"""

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from bertsecrets.benchmarks.exit_code import CRASHED, KIND, OURS, OUTCOME, BugError, ExitCode
from bertsecrets.benchmarks.page import NO_REPORT, REPORTED, write_report
from bertsecrets.benchmarks.stash import BUDGET, ENDED, OPTIONS, SESSION, VERDICTS
from bertsecrets.benchmarks.summary import junit_properties, print_verdicts
from bertsecrets.benchmarks.workers import packed_results, unpacked, worker
from bertsecrets.claims.schema import Case, cases
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.console import (
    BUG,
    USER_ERROR,
    as_interrupt,
    bars_on_terminals,
    report_bug,
    warnings_in_one_line,
    what_is_kept,
)
from bertsecrets.errors import MissingError, RunError, UserError, check_extra, of_the_machine, one_line
from bertsecrets.measures.registry import get_measure
from bertsecrets.options import CHECKPOINT, EXAMPLES, PARSING, RunOptions, add_options, path
from bertsecrets.settings import load_settings
from bertsecrets.store.entries import DamagedEntryWarning
from bertsecrets.store.files import check_writable
from bertsecrets.texts.tasks import task

if TYPE_CHECKING:
    from bertsecrets.session import Session

LACKING = "missing input"  # instead of a verdict
EXIT_CODE = "bertsecrets.exit-code"
RESULTS = "bertsecrets"  # key of the results that a worker of pytest-xdist sends to its controller


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    add = parser.getgroup("bertsecrets").addoption
    add_options(add)
    add("--jobs", type=int, metavar="N", help="measure what the selected claims need in N processes before judging")
    add("--checkpoint", **CHECKPOINT)
    add("--task", metavar="NAME", help="the task that --checkpoint was fine-tuned on")
    add("--strict-verdicts", action="store_true", help="fail undecided claims instead of skipping them")
    add(
        "--report",
        dest="report_folder",
        type=path,
        metavar="DIR",
        help="write the report (report.html) and the verdicts (verdicts.json) to this folder",
    )
    add("--examples", **EXAMPLES)
    add("--against", type=path, metavar="PIN", help="test for drift from this pin instead of judging claims")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read options, settings and claims first, so that a mistake in them ends the run before anything starts."""
    clearing = ExitStack()
    clearing.enter_context(warnings_in_one_line())
    clearing.enter_context(bars_on_terminals())
    if threading.current_thread() is threading.main_thread():  # no other thread may handle signals
        clearing.enter_context(as_interrupt())
    config.add_cleanup(clearing.close)
    config.addinivalue_line("filterwarnings", "default")  # a warning must not cost an hour of training
    config.addinivalue_line("filterwarnings", f"always::{DamagedEntryWarning.__module__}.DamagedEntryWarning")
    if not config.getoption("benchmark_verbose", False):
        config.option.benchmark_quiet = True  # the verdict table stands in for the table of seconds
    config.stash[VERDICTS] = []
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist leaves the exit code to its controller
        config.pluginmanager.register(ExitCode(), EXIT_CODE)
    given = argparse.Namespace(**{name: config.getoption(name) for name in PARSING})
    try:
        config.stash[OPTIONS] = _with_share(_judging(RunOptions.of(given), config), config)
        load_settings()
        if (folder := config.getoption("report_folder")) is not None:
            check_extra("report")
            check_writable(folder / "report.html")
        implemented = cases()
        if (pin := config.getoption("against")) is not None:
            from bertsecrets.benchmarks.drift import judge_against

            judge_against(config, pin, config.stash[OPTIONS], end_run)
    except UserError as error:
        pytest.exit(str(error), returncode=USER_ERROR)
    for name in sorted({mark for case in implemented for mark in marks(case)}):
        config.addinivalue_line("markers", f"{name}: benchmarks of the claim, family or task {name}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect either the claims or, against a pin, drift from it."""
    other = "test_drift.py" if config.getoption("against") is None else "test_claims.py"
    return True if (collection_path.parent.name, collection_path.name) == ("benchmarks", other) else None


def _judging(options: RunOptions, config: pytest.Config) -> RunOptions:
    """Return the options with the checkpoint to judge, if one is given.

    Raises:
        UserError: it lacks its task, or an option has no effect on it, or without it.
    """
    checkpoint, name = config.getoption("checkpoint"), config.getoption("task")
    if name is not None and checkpoint is None:
        raise UserError(
            "--task says what a --checkpoint was fine-tuned on: choose among claims with -k, such as -k rte"
        )
    if checkpoint is not None and config.getoption("jobs") is not None:
        raise UserError("--jobs has no effect on --checkpoint, which is trained already: leave it out")
    return options.judging(checkpoint, [] if name is None else [task(name).name])


def _with_share(options: RunOptions, config: pytest.Config) -> RunOptions:
    """Return the options with each process's share of threads, where several processes measure."""
    jobs = config.getoption("jobs")
    at_once = jobs if jobs is not None else worker(config)[1]
    if at_once == 1:
        return options
    from bertsecrets.jobs.prepare import with_share

    return with_share(options, at_once)


def marks(case: Case) -> list[str]:
    """Return the marks by which `-m` selects a case exactly: family, claim and task.

    `-k` searches marks too, so measures are not marked: `-k "sst2 and D"` must not match the letter d in their names.
    """
    return [case.claim.family, case.claim.id, case.task]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `case` with every implemented claim on each of its tasks."""
    if "case" not in metafunc.fixturenames:
        return
    options = metafunc.config.stash[OPTIONS]
    model = options.judged or load_settings().model
    params = []
    for case in cases():
        if options.checkpoint_task not in (None, case.task):
            continue
        if case.claim.on_request and not _names(metafunc.config, case.claim.id):
            continue
        applied = [getattr(pytest.mark, name) for name in marks(case)]
        known = case.known_deviation(model)
        if known:
            reason = f"known to deviate: {known.evidence}"
            applied.append(pytest.mark.xfail(raises=AssertionError, reason=reason, strict=options.whole))
        params.append(pytest.param(case, id=str(case), marks=applied))
    metafunc.parametrize("case", params)


def _names(config: pytest.Config, claim: str) -> bool:
    """Return whether `-k` (in capitals or not, as pytest reads it), `-m` or an argument names a claim."""
    return claim.lower() in config.option.keyword.lower() or any(
        claim in word for word in (config.option.markexpr, *config.args)
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run before any benchmark starts if the model, or all data, are not available."""
    items = (item for item in session.items if "case" in getattr(item, "fixturenames", ()))
    selected = [case for item in items if isinstance(case := item.callspec.params["case"], Case)]  # type: ignore[attr-defined]
    if not selected or session.config.option.collectonly:
        return
    from bertsecrets.claims.plan import missing as missing_for
    from bertsecrets.claims.plan import reads_model, reads_rows
    from bertsecrets.jobs.disk import announce
    from bertsecrets.jobs.estimates import seed_cost
    from bertsecrets.jobs.plan import plan_for
    from bertsecrets.judging import SeedBudget
    from bertsecrets.session import Session

    try:
        run = Session(session.config.stash[OPTIONS])
        if any(reads_model(case) for case in selected):
            run.check_model()
        names = dict.fromkeys(case.task for case in selected if reads_rows(case) or reads_model(case))
        missing = [problem for name in names if (problem := run.resources.rows.missing(name))]
        if missing and len(missing) == len(names):
            raise UserError(missing[0])
        possible = [case for case in selected if run.speaks_of(case) and missing_for(run, case) is None]
        session.config.stash[BUDGET] = SeedBudget(run.budget, seed_cost(run, possible))
        judges_one = run.options.checkpoint is not None
        if not judges_one and not hasattr(
            session.config, "workerinput"
        ):  # pytest-xdist shows nothing that its workers write
            plan = plan_for(run, possible, run.model, run.interims[0])
            announce(run, plan, at_once=session.config.getoption("jobs") or 1)
        session.config.stash[SESSION] = _prepared(session.config, run, possible)
    except UserError as error:
        end = (one_line(error), USER_ERROR)
    except Exception as error:
        line = of_the_machine(error)
        end = (line, USER_ERROR) if line is not None else (report_bug(error), BUG)
    else:
        return
    if not hasattr(session.config, "workerinput"):
        pytest.exit(end[0], returncode=end[1])
    session.config.stash[ENDED] = end


def end_run(session: pytest.Session, reason: str, code: int) -> NoReturn:
    """End the run with an exit code; what is judged so far is shown and written.

    A worker of pytest-xdist must not exit, or the controller would start another in its place, endlessly: it fails its
    benchmark, and asks for the end.

    Raises:
        BugError: in a worker, if the code is that of a bug.
    """
    if not hasattr(session.config, "workerinput"):
        pytest.exit(reason, returncode=code)
    session.shouldstop = reason
    if code == BUG:
        raise BugError(reason)
    pytest.fail(reason, pytrace=False)


def _prepared(config: pytest.Config, run: "Session", possible: list[Case]) -> "Session":
    """Make what cases need, on the first seed where those are added, and return the session."""
    from bertsecrets.jobs.prepare import prepare, prepare_share

    jobs, (place, workers) = config.getoption("jobs"), worker(config)
    if run.options.checkpoint is not None or (jobs is None and workers == 1 and run.options.keep == "full"):
        return run
    if jobs is None:
        return prepare_share(run, possible, run.interims[0], place, workers)
    return prepare(run, possible, run.interims[0], jobs=jobs)


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line with the given options and the model."""
    options = config.stash[OPTIONS]
    given = {name: value for name in PARSING if (value := getattr(options, name)) not in (None, False)}
    given["model"] = options.judged or load_settings().model
    shown = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in given.items()}
    return "bertsecrets: " + ", ".join(f"{name} {value}" for name, value in sorted(shown.items()))


@pytest.fixture(scope="session")
def run_session(request: pytest.FixtureRequest):
    """Return the session in which all benchmarks measure."""
    if ended := request.config.stash.get(ENDED, None):
        end_run(request.session, *ended)
    return request.config.stash[SESSION]


@pytest.fixture
def judged(case: Case, run_session, benchmark, request: pytest.FixtureRequest) -> Callable[[], Verdict]:
    """Measure and judge a case, timed, and add it to the table.

    Errors are raised here, in a fixture, so that they are errors of the test and no failures. The function that is
    returned gives the verdict; it skips or fails the test if there is none to check.
    """
    from bertsecrets.claims.plan import measure_case, missing
    from bertsecrets.judging import Skipped, attempt, judge_until_decided

    config = request.config
    if worker(config)[1] > 1:
        benchmark.disabled = False  # as pytest-benchmark is under pytest-xdist, and then writes no JSON
    strict = config.getoption("strict_verdicts") and run_session.resources.rows.missing(case.task) is None

    def one(seeds: Sequence[int]) -> Verdict:
        return run_session.verdict(case, measure_case(run_session, case, run_session.model, seeds))

    def judge(cases: Sequence[Case], seeds: Sequence[int]) -> Iterator[Verdict | Skipped]:
        yield attempt(case, partial(one, seeds))

    def last() -> Verdict:
        *_, result = judge_until_decided([case], judge, run_session.interims, config.stash[BUDGET].affords)
        if isinstance(result, Skipped):
            raise MissingError(result.reason)
        return result

    if not run_session.speaks_of(case):
        return partial(pytest.skip, f"about {' and '.join(case.claim.architectures)} alone")
    try:
        if (reason := missing(run_session, case)) is not None:
            raise MissingError(reason)
        verdict = benchmark.pedantic(last)
    except MissingError as error:
        request.node.user_properties.extend([(OUTCOME, LACKING), ("reason", one_line(error))])
        return partial(_undecided, str(error), strict=strict)
    except RunError as error:
        end_run(request.session, f"{case}: {one_line(error)}", USER_ERROR)
    benchmark.extra_info.update(verdict.as_json())
    config.stash[VERDICTS].append(verdict)
    request.node.user_properties.extend(junit_properties(verdict.data))
    if verdict.outcome is None:
        if not isinstance(verdict.error, UserError):
            raise BugError(verdict.reason) from verdict.error
        pytest.fail(verdict.reason, pytrace=False)
    return partial(_checkable, verdict, strict=strict)


def _checkable(verdict: Verdict, *, strict: bool) -> Verdict:
    """Return a verdict that holds or deviates; another one skips or fails the test."""
    from bertsecrets.report.text import describe

    if verdict.outcome == "inconclusive":
        _undecided(f"inconclusive: {verdict.reason}", strict=strict)
    if verdict.outcome == "not applicable":
        pytest.skip(f"not applicable: {verdict.reason}")
    if verdict.outcome == "degenerate":  # even if the claim is known to deviate: no AssertionError, so no xfail
        pytest.fail(describe(verdict), pytrace=False)
    return verdict


def _undecided(reason: str, *, strict: bool) -> NoReturn:
    if strict:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Mark the reports of our benchmarks, and among them those of crashes, for the exit code."""
    report = yield
    if {"judged", "drifted"} & set(getattr(item, "fixturenames", ())):
        error = call.excinfo.value if call.excinfo else None
        crashed = report.failed and isinstance(error, Exception) and not isinstance(error, AssertionError)
        report.user_properties = [*item.user_properties, (KIND, CRASHED if crashed else OURS)]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-benchmark's, which is a wrapper too
def pytest_sessionfinish(session: pytest.Session):
    """Leave interrupted benchmarks out of `--benchmark-json`: one entry without a time would spoil the whole file."""
    timed = session.config._benchmarksession  # type: ignore[attr-defined]
    timed.benchmarks[:] = [entry for entry in timed.benchmarks if entry]
    output = getattr(session.config, "workeroutput", None)
    failed = 0 if output is not None else write_report(session)
    if output is None and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        _drop_weights(session.config)
    if output is not None:
        output[RESULTS] = packed_results(session.config.stash[VERDICTS], timed.benchmarks)
    if not timed.benchmarks or output is not None:
        timed.json = timed.save = timed.autosave = None
    result = yield
    if failed and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = failed
    return result


def _drop_weights(config: pytest.Config) -> None:
    """Drop the weights of measured checkpoints if the options say so; those of workers once all have ended."""
    options, verdicts = config.stash[OPTIONS], config.stash[VERDICTS]
    if options.keep == "full":
        return
    from bertsecrets.models.retention import drop_weights

    if SESSION in config.stash:
        config.stash[SESSION].close()
    elif not any(verdict.outcome is None for verdict in verdicts):
        measured = [one for verdict in verdicts for one in verdict.measurements if get_measure(one.measure).on_task]
        names = dict.fromkeys(one.provenance.checkpoint for one in measured if one.provenance.checkpoint)
        drop_weights(options.store_folder / "checkpoints" / name for name in names)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the verdicts of the run to `--benchmark-json`, as `report --json` writes them."""
    from bertsecrets.report.json import as_file

    verdicts, settings = config.stash[VERDICTS], load_settings()
    model = config.stash[OPTIONS].judged or settings.model
    output_json["bertsecrets"] = as_file(verdicts, model, settings).model_dump(mode="json")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the verdicts and times of a worker of pytest-xdist that has ended."""
    if (packed := getattr(node, "workeroutput", {}).get(RESULTS)) is None:
        return
    verdicts, benchmarks = unpacked(packed)
    config = node.config
    order = [str(case) for case in cases()]
    config.stash[VERDICTS] = sorted([*config.stash[VERDICTS], *verdicts], key=lambda one: order.index(str(one.case)))
    config._benchmarksession.benchmarks += benchmarks


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Print the verdict table, what the verdicts say together, where the report is, and what an interruption leaves."""
    if config.stash[VERDICTS]:
        print_verdicts(terminalreporter, config)
    if (line := config.stash.get(REPORTED, None)) is not None:
        terminalreporter.write_line(line, red=line.startswith(NO_REPORT))
    ended = config.pluginmanager.get_plugin(EXIT_CODE)
    if ended is not None and ended.signalled is not None:
        terminalreporter.write_line(what_is_kept(config.stash[OPTIONS].store_folder))
