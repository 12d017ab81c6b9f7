"""The options, fixtures and hooks of the benchmarks.

A benchmark judges one claim on one task. The fixture `judged` obtains the measurements that the claim needs, from the
store if possible, and judges the claim. Known deviations, listed in `expected/`, are marked as strict xfail at
collection.
"""

import argparse
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest.terminal import TerminalReporter

import bertsecrets.benchmarks.exit_code as exit_code
import bertsecrets.benchmarks.output as output
from bertsecrets.benchmarks.output import state_of
from bertsecrets.benchmarks.pytest_options import PREFIX, RUN_OPTIONS, get_option
from bertsecrets.benchmarks.pytest_options import pytest_addoption as pytest_addoption
from bertsecrets.benchmarks.selection import check_marks, marks, names_claim
from bertsecrets.benchmarks.selection import pytest_collection_modifyitems as pytest_collection_modifyitems
from bertsecrets.benchmarks.selection import pytest_report_collectionfinish as pytest_report_collectionfinish
from bertsecrets.claims.loading import cases
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli import console
from bertsecrets.cli.baseline import read_baseline
from bertsecrets.cli.judge_run import MEASURING_OPTIONS, check_saved, saved_measurements
from bertsecrets.cli.outputs import check_places, refuse
from bertsecrets.errors import UserError, check_extra, one_line
from bertsecrets.formats import FAILURES
from bertsecrets.options import PARSING, RunOptions
from bertsecrets.progress import log, shown_by
from bertsecrets.reading import READ_FILES
from bertsecrets.settings import load_settings
from bertsecrets.store.entries import DamagedEntryWarning
from bertsecrets.store.files import check_writable
from bertsecrets.texts.tasks import register_tasks, task

if TYPE_CHECKING:
    from bertsecrets.judging import JudgedRun

MISSING_INPUT = "missing input"  # reported instead of a verdict


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read options, settings and claims first, so that the run fails early if any is invalid."""
    cleanup = ExitStack()
    cleanup.enter_context(console.warnings_in_one_line())
    cleanup.enter_context(console.bars_on_terminals())
    if threading.current_thread() is threading.main_thread():  # only the main thread may handle signals
        cleanup.enter_context(console.as_interrupt())
    config.add_cleanup(cleanup.close)
    config.addinivalue_line("filterwarnings", "default")  # a warning must not abort an hour of training
    config.addinivalue_line("filterwarnings", f"always::{DamagedEntryWarning.__module__}.DamagedEntryWarning")
    if not config.getoption("benchmark_verbose", False):
        config.option.benchmark_quiet = True  # the verdict table replaces the table of seconds
    READ_FILES.clear()
    config.stash[output.BENCHMARK_STATE] = output.BenchmarkState()
    config.pluginmanager.register(exit_code.ExitCode(config, output.weigh), exit_code.EXIT_CODE_PLUGIN)
    cleanup.enter_context(shown_by(partial(output.uncaptured, config)))
    try:
        with output.start_folder(config):
            _check_options(config)
            collected = cases()
    except UserError as error:
        pytest.exit(str(error), returncode=console.USER_ERROR)
    for name in sorted({mark for case in collected for mark in marks(case)}):
        config.addinivalue_line("markers", f"{name}: benchmarks of the claim, family or task {name}")


def _check_options(config: pytest.Config) -> None:
    state_of(config).options = _options(config)
    load_settings()
    if (folder := get_option(config, "report")) is not None:
        check_extra("report")
        check_writable(folder / "report.html")
    _check_places(config)
    updating = get_option(config, "update_baseline")
    state_of(config).accepted = read_baseline(get_option(config, "baseline"), updating=updating)
    if (pin := get_option(config, "against")) is not None:
        if state_of(config).accepted is not None:
            raise UserError("--baseline has no effect with --against, since no claims are judged: leave it out")
        from bertsecrets.benchmarks.drift import Drift

        config.pluginmanager.register(Drift(pin, state_of(config).options), exit_code.DRIFT_PLUGIN)


def _options(config: pytest.Config) -> RunOptions:
    if not hasattr(config.option, "benchmark_skip"):
        raise UserError("the benchmarks need the plugin pytest-benchmark: leave out -p no:benchmark")
    if config.option.benchmark_skip:
        raise UserError(
            "--benchmark-skip would skip all claims: leave it out (it may be set in addopts or PYTEST_ADDOPTS)"
        )
    if _in_processes(config):
        raise UserError(
            "pytest-xdist cannot be used, because benchmarks share measurements: leave out -n, --dist and --tx, and "
            "set the number of parallel measurements with --jobs N"
        )
    given = {name: get_option(config, name) for name in PARSING}
    folder, checkpoint, name = (get_option(config, option) for option in ("measurements", "checkpoint", "task"))
    if folder is not None and hasattr(config.option, f"{PREFIX}model"):
        given["model"] = config.getoption(f"{PREFIX}model")  # not the environment's: the measurements name theirs
    options = RunOptions.from_namespace(argparse.Namespace(**given, measurements=folder))
    register_tasks(options.tasks)
    if name is not None and checkpoint is None:
        raise UserError("--task has no effect without --checkpoint: to select claims, use -k, for example -k rte")
    if folder is not None:
        from bertsecrets.store.records import SavedFolder

        others = {name: get_option(config, name) for name in (*MEASURING_OPTIONS, "checkpoint")}
        refuse(argparse.Namespace(**others), others, "has no effect with --measurements")
        state_of(config).saved = saved = saved_measurements(SavedFolder.read(folder), options)
        return replace(options, model=saved.model)
    return options.judging(checkpoint, [] if name is None else [task(name).name])


def _check_places(config: pytest.Config) -> None:
    given = {name: get_option(config, name) for name in RUN_OPTIONS}
    written = [config.getoption(name, None) for name in ("benchmark_json", "xmlpath")]
    if (folder := given.pop("report")) is not None:
        written += [folder / "report.html", folder / "verdicts.json"]
    if given["update_baseline"]:
        written.append(given.pop("baseline"))
    check_places([Path(path) for path in written if path], given.values(), state_of(config).options.store_folder)


def _in_processes(config: pytest.Config) -> bool:
    """Return whether pytest-xdist would run the benchmarks in other processes, each with a session of its own."""
    given = [config.getoption(name, None) for name in ("numprocesses", "tx", "looponfail")]
    return any(given) or config.getoption("dist", "no") != "no" or hasattr(config, "workerinput")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the benchmarks for drift or, with `--against`, the benchmarks for claims."""
    other = "test_drift.py" if get_option(config, "against") is None else "test_claims.py"
    return True if (collection_path.parent.name, collection_path.name) == ("benchmarks", other) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `case` with every claim on each of its tasks."""
    if "judged" not in metafunc.fixturenames:
        return
    options, model = state_of(metafunc.config).options, output.judged_model(metafunc.config)
    baseline, scope = state_of(metafunc.config).accepted, options.scope
    params = []
    with output.start_folder(metafunc.config):
        every = cases()
    check_marks(metafunc.config)
    for case in every:
        if options.checkpoint_task not in (None, case.task) or (scope and not case.belongs_to(scope)):
            continue
        claim = case.claim
        spellings = (claim.id,) if claim.on_request else (claim.id, claim.family)
        if not claim.by_default and not any(names_claim(metafunc.config, name) for name in spellings):
            continue
        applied = [getattr(pytest.mark, name) for name in marks(case)]
        covered = baseline is not None and baseline.covers(str(case))
        if options.whole and not covered and (known := case.known_deviation(model)):
            strict = case.observed_deviation(model) and not claim.beyond_k19
            applied.append(output.expected_failure(known, strict=strict))
        params.append(pytest.param(case, id=str(case), marks=applied))
    metafunc.parametrize("case", params)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """End the run before the first benchmark if the model is missing, or if the data of all tasks are missing.

    Nothing is measured earlier, because pytest may still refuse to run, for example after an error in another file.
    """
    selected = [case for item in session.items if (case := output.case_of(item))]
    refused = session.testsfailed and not session.config.option.continue_on_collection_errors
    if not selected or refused or output.only_lists(session.config):
        return
    try:
        with output.start_folder(session.config):
            _open_run(session.config, selected)
        return
    except Exception as error:
        line, code = console.explained(error)
    pytest.exit(one_line(line), returncode=code)


def _open_run(config: pytest.Config, selected: list[Case]) -> None:
    """Open the run, check the requirements of the cases, and run the jobs that precede judging."""
    from bertsecrets.claims.requirements import reads_model, reads_rows
    from bertsecrets.jobs.plan import Plan
    from bertsecrets.jobs.prepare import PlannedRunner, run_jobs
    from bertsecrets.judging import JudgedRun

    if (saved := state_of(config).saved) is not None:
        state_of(config).run = run = JudgedRun(saved, selected)
        check_saved(run, saved.shelf, get_option(config, "measurements"))
        _begin(config, run)
        return
    session = output.session_of(config)
    if any(map(reads_model, selected)):
        session.check_model()
    names = dict.fromkeys(case.task for case in selected if reads_rows(case) or reads_model(case))
    absent = [problem for name in names if (problem := session.resources.rows.missing(name))]
    if absent and len(absent) == len(names):
        raise UserError(absent[0])

    def carry_out(plan: Plan) -> None:
        with output.uncaptured(config):  # workers write to the terminal even while a benchmark runs
            run_jobs(session, plan)

    runner = PlannedRunner(session, nullcontext(carry_out) if session.jobs > 1 else None)
    state_of(config).run = run = JudgedRun(session, selected, runner)
    _begin(config, run)
    run.prepare()


def _begin(config: pytest.Config, run: "JudgedRun") -> None:
    """Check that the run can be compared with the baseline, if there is one, and log what cannot be judged."""
    from bertsecrets.judging import skipped

    if (baseline := state_of(config).accepted) is not None:
        baseline.check_run(run)
    run.baseline = baseline
    for reason, lacking_it in run.skipped().items():
        log.info(skipped(lacking_it, reason))


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line with the model and the options."""
    options = state_of(config).options
    given = {name: value for name in PARSING if (value := getattr(options, name)) not in (None, False)}
    given["model"] = output.judged_model(config)
    shown = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in given.items()}
    return "bertsecrets: " + ", ".join(f"{name} {value}" for name, value in sorted(shown.items()))


@pytest.fixture
def in_start_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Until the test ends, work in the folder in which pytest was started. Other fixtures may have changed it."""
    with output.start_folder(request.config):
        yield


@pytest.fixture
def judged(case: Case, benchmark, request: pytest.FixtureRequest, in_start_folder: None) -> Callable[[], Verdict]:
    """Measure, judge and time a case. Return a function that returns the verdict, skips the test or fails it.

    Exceptions are raised in this fixture, so that pytest reports them as errors and not as failures.
    """
    from bertsecrets.claims.eligibility import Skipped, about_other_architecture

    config, state = request.config, state_of(request.config)
    run = state.run
    all_strict = get_option(config, "strict_verdicts")
    strict = all_strict and (state.session is None or state.session.resources.rows.missing(case.task) is None)
    answer, failing = run.answers[str(case)], state.answered
    request.node.stash[exit_code.ENTERED] = True
    if about_other_architecture(answer):
        failing[str(case)] = False
        return partial(pytest.skip, answer.reason)
    try:
        verdict = answer if isinstance(answer, Skipped) else benchmark.pedantic(partial(run.result, case))
    except (UserError, KeyboardInterrupt) as error:
        exit_code.end_run(config, error)
    if isinstance(verdict, Skipped):
        failing[str(case)] = strict
        request.node.user_properties.extend(
            [(exit_code.OUTCOME_PROPERTY, MISSING_INPUT), ("reason", one_line(verdict.reason))]
        )
        return partial(_undecided, verdict.reason, strict=strict)
    benchmark.extra_info.update(verdict.as_json())
    if verdict.measurements and benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.stats.stats.data[:] = [verdict.data.seconds]  # time of the original measurements, not of reading them
    state.verdicts[str(case)] = verdict
    failing[str(case)] = run.fails(verdict, strict=all_strict) or (strict and verdict.outcome == "inconclusive")
    if verdict.outcome in FAILURES and not failing[str(case)]:
        request.applymarker(_excused(verdict, config))
    request.node.user_properties.extend(output.junit_properties(verdict.data))
    if verdict.outcome is None:
        if not isinstance(verdict.error, UserError):
            raise exit_code.BugError(verdict.reason) from verdict.error
        pytest.fail(verdict.reason, pytrace=False)
    return partial(_checkable, verdict, strict=strict)


def _excused(verdict: Verdict, config: pytest.Config) -> pytest.MarkDecorator:
    """Return the xfail mark for a failing verdict that does not fail the run."""
    run, case = state_of(config).run, verdict.case
    known = case.known_deviation(output.judged_model(config))
    if run.baseline is not None and run.baseline.accepts(verdict.data):
        return pytest.mark.xfail(reason=f"accepted in {get_option(config, 'baseline')}", strict=False)
    if known is not None and verdict.known_deviation:
        return output.expected_failure(known, strict=False)
    return pytest.mark.xfail(reason=f"{case.claim.name} is not a claim of K19", strict=False)


def _checkable(verdict: Verdict, *, strict: bool) -> Verdict:
    from bertsecrets.report.text import describe

    if verdict.outcome == "inconclusive":
        _undecided(f"inconclusive: {verdict.reason}", strict=strict)
    if verdict.outcome == "not applicable":
        pytest.skip(f"not applicable: {verdict.reason}")
    if verdict.outcome == "degenerate":  # even for known deviations: not an AssertionError, so no xfail
        pytest.fail(describe(verdict), pytrace=False)
    return verdict


def _undecided(reason: str, *, strict: bool) -> NoReturn:
    if strict:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Mark the report of a benchmark, and record whether the benchmark crashed, which determines the exit code."""
    report = yield
    if {"judged", "drifted"} & set(getattr(item, "fixturenames", ())):
        error = call.excinfo.value if call.excinfo else None
        ours = exit_code.ENTERED in item.stash and report.when != "teardown"
        crashed = ours and report.failed and isinstance(error, Exception) and not isinstance(error, AssertionError)
        report.user_properties = [
            *item.user_properties,
            (exit_code.KIND_PROPERTY, exit_code.CRASH if crashed else exit_code.BENCHMARK),
        ]
        output.name_skipped(report, item)
        if ours and report.failed and call.excinfo is not None and not crashed:
            output.show_reason(report, call.excinfo, item)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-benchmark's wrapper
def pytest_sessionfinish(session: pytest.Session):
    """Write the report.

    Interrupted benchmarks are left out of `--benchmark-json`, because an entry without a time would make it invalid.
    """
    config, ended_normally = session.config, (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    state, timed = state_of(config), config._benchmarksession  # type: ignore[attr-defined]
    timed.benchmarks[:] = [entry for entry in timed.benchmarks if entry]
    state.incomplete = note = output.incomplete(session)
    failed = output.write_report(session)
    failed = output.write_baseline(session) or failed
    if session.exitstatus in ended_normally and (line := output.not_judged(session)) is not None:
        state.unjudged, failed = line, failed or console.USER_ERROR
    elif note and state.verdicts:
        state.unjudged = f"incomplete: {note}"
        failed = failed or int(get_option(config, "strict_verdicts"))
    if session.exitstatus in ended_normally and state.session is not None:
        state.session.close()
    if not timed.benchmarks:
        timed.json = timed.save = timed.autosave = None
    result = yield
    if failed and session.exitstatus in ended_normally:
        session.exitstatus = failed
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Add the verdicts of the run to `--benchmark-json`, in the format of `report --json`."""
    output_json["bertsecrets"] = output.verdicts_file(config).model_dump(mode="json")


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Print the verdict table, the report's path, and how to resume an interrupted run."""
    if not isinstance(terminalreporter, TerminalReporter):  # but a reporter of another plugin
        terminalreporter = TerminalReporter(config)
    state = state_of(config)
    output.name_in_project(chain.from_iterable(terminalreporter.stats.values()), config)
    if state.verdicts:
        output.print_verdicts(terminalreporter, config)
        output.print_comparisons(terminalreporter, config)
    if state.report_line is not None:
        line, written = state.report_line
        terminalreporter.write_line(line, red=not written)
    if state.unjudged:
        terminalreporter.write_line(state.unjudged, red=True)
    ended = config.pluginmanager.get_plugin(exit_code.EXIT_CODE_PLUGIN)
    if ended is not None and ended.contradicting:
        line = f"pytest reports other results, but the exit code follows the verdicts: {', '.join(ended.contradicting)}"
        terminalreporter.write_line(line, red=True)
    if ended is not None and ended.signalled is not None:
        terminalreporter.write_line(console.interrupted_message(state.options.store_folder))
