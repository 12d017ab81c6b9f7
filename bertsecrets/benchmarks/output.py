"""The output of a benchmark run: the verdict table, JUnit XML properties, and the report."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

import bertsecrets.benchmarks.exit_code as exit_code
from bertsecrets.benchmarks.pytest_options import get_option
from bertsecrets.claims.band import format_number
from bertsecrets.claims.schema import Case, Known
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.baseline import accepted_cases, conclude_baseline
from bertsecrets.cli.console import USER_ERROR, encodable, explained, signals_deferred
from bertsecrets.cli.outputs import more_seeds_line
from bertsecrets.errors import UserError, one_line
from bertsecrets.formats import ERROR, FAILURES, Ends, VerdictData, VerdictsFile
from bertsecrets.options import RunOptions, variable
from bertsecrets.progress import counted
from bertsecrets.settings import load_settings

if TYPE_CHECKING:
    from bertsecrets.compare.baseline import Baseline
    from bertsecrets.saved import SavedMeasurements
    from bertsecrets.session import Session


@dataclass
class BenchmarkState:
    """The state of a benchmark run, which pytest's config holds."""

    options: RunOptions = field(default_factory=RunOptions)
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by case; the last execution of a benchmark counts
    answered: dict[str, bool] = field(default_factory=dict)  # whether each case that ended in this process fails
    saved: "SavedMeasurements | None" = None  # with --measurements
    session: "Session | None" = None
    run: Any = None  # the `JudgedRun`, once it is open
    accepted: "Baseline | None" = None
    incomplete: str = ""  # why selected claims have no verdict
    unjudged: str = ""  # why verdicts of some benchmarks are missing
    baseline_lines: Sequence[str] = ()  # what has changed in the baseline, or why it is not updated
    report_line: tuple[str, bool] | None = None  # the report's path or why there is none; whether it was written


BENCHMARK_STATE = pytest.StashKey[BenchmarkState]()


def state_of(config: pytest.Config) -> BenchmarkState:
    """Return the state of the run."""
    return config.stash[BENCHMARK_STATE]


def case_of(item: pytest.Item) -> Case | None:
    """Return the case of a benchmark, or None for other tests."""
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    return case if isinstance(case, Case) else None


def judged_model(config: pytest.Config) -> str:
    """Return the model or checkpoint that is judged."""
    return state_of(config).options.judged or load_settings().model


def session_of(config: pytest.Config) -> "Session":
    """Return the session of the run, opening it on the first call."""
    state = state_of(config)
    if state.session is None:
        from bertsecrets.session import Session  # takes seconds to import

        state.session = Session(state.options)
    return state.session


def expected_failure(known: Known, *, strict: bool) -> pytest.MarkDecorator:
    """Return the xfail mark for a known or expected deviation."""
    word = "expected" if known.status == "expected" else "known"
    return pytest.mark.xfail(raises=AssertionError, reason=f"{word} to deviate: {known.evidence}", strict=strict)


def start_folder(config: pytest.Config) -> AbstractContextManager[None]:
    """Return a context in which relative paths mean what they meant when pytest was started."""
    return chdir(config.invocation_params.dir)


@contextmanager
def uncaptured(config: pytest.Config) -> Iterator[None]:
    """Until the block ends, disable pytest's output capture; start on a new line of the terminal."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    with nullcontext() if capture is None else capture.global_and_fixture_disabled():
        for name in ("ensure_newline", "flush"):  # which the reporter of another plugin may lack
            getattr(terminal, name, int)()
        yield


def project_file(nodeid: str) -> str:
    """Return the path of a benchmark in the project, independent of the install location.

    >>> project_file("../lib/python3.11/site-packages/bertsecrets/benchmarks/test_claims.py::test_claim[C1-rte]")
    'benchmarks/test_claims.py'
    """
    return f"benchmarks/{Path(nodeid.partition('::')[0]).name}"


def shown_id(nodeid: str, config: pytest.Config) -> str:
    """Return a benchmark's id as pytest's summary shows it, with its path in the project."""
    path = config.invocation_params.dir / project_file(nodeid)
    return f"{os.path.relpath(path, config.rootpath)}::{nodeid.partition('::')[2]}"


def name_skipped(report: pytest.TestReport, item: pytest.Item) -> None:
    """Report a skipped benchmark at the test's location, not the plugin's, and put the claim before the reason."""
    if report.skipped and isinstance(report.longrepr, tuple):
        _, line, _ = item.location
        reason = report.longrepr[2].removeprefix("Skipped: ")
        claim = item.callspec.id  # type: ignore[attr-defined]
        report.longrepr = (project_file(item.nodeid), (line or 0) + 1, f"{claim}: {reason}")


def show_reason(report: pytest.TestReport, raised: pytest.ExceptionInfo[BaseException], item: pytest.Item) -> None:
    """Show a failed benchmark's message without a traceback, and its reason in pytest's summary line."""
    verdict = state_of(item.config).verdicts.get(str(case_of(item)))
    shown: Any = raised.getrepr(style="value")
    if shown.reprcrash is not None:
        shown.reprcrash.message = f"{verdict.status}: {verdict.reason}" if verdict else str(raised.value)
    report.longrepr = shown


def name_in_project(reports: Iterable[object], config: pytest.Config) -> None:
    """Change the reports so that pytest's summary shows each benchmark's path in the project."""
    for report in reports:
        if isinstance(report, pytest.TestReport) and exit_code.KIND_PROPERTY in dict(report.user_properties):
            report.nodeid = shown_id(report.nodeid, config)  # pytest shows it relative to the working directory


def junit_properties(verdict: VerdictData) -> list[tuple[str, object]]:
    """Return a verdict's properties for JUnit XML."""
    facts = {
        exit_code.OUTCOME_PROPERTY: verdict.verdict or ERROR,
        "observed": verdict.observed,
        "interval": _ends(verdict.interval),
        "band": _ends(verdict.band),
        "unit": verdict.unit,
        "published": verdict.published,
        "model": " ".join(verdict.models),
        "seeds": " ".join(map(str, verdict.seeds)),
        "deviation": verdict.deviation,
        "known_deviation": "yes" if verdict.known_deviation else None,
        "reason": verdict.reason,
    }
    return [(name, fact) for name, fact in facts.items() if fact not in (None, "")]


def _ends(ends: Ends | None) -> str | None:
    """Return the ends of an interval as `low high`, with -inf or inf for open ends."""
    return f"{-inf if ends[0] is None else ends[0]} {inf if ends[1] is None else ends[1]}" if ends else None


def print_verdicts(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the verdict table and its summary."""
    from bertsecrets.report.terminal import MIN_WIDTH, Screen, run_text
    from bertsecrets.report.text import annotations

    verdicts = [*state_of(config).verdicts.values()]
    terminalreporter.section("verdicts")
    width = terminalreporter._tw.fullwidth if terminalreporter.isatty else MIN_WIDTH
    screen = Screen(max(MIN_WIDTH, width), terminalreporter.hasmarkup)
    confidence = load_settings().judge.confidence
    text = run_text(verdicts, screen, confidence, verbose=config.get_verbosity() > 0)
    for line in text.splitlines():  # pytest escapes an entire text if a part cannot be encoded
        terminalreporter.write_line(encodable(line, terminalreporter._tw._file))
    errors = [str(verdict.case) for verdict in verdicts if verdict.outcome is None]
    unmeasured = f"{len(errors)} of {len(verdicts)} claims could not be measured: {', '.join(errors)}" if errors else ""
    fails = state_of(config).run.fails
    lines = [_open_claims(config), *annotations(filter(fails, verdicts)), *state_of(config).baseline_lines]
    for line in filter(None, [unmeasured, *lines]):
        terminalreporter.write_line(encodable(line, terminalreporter._tw._file))


def _open_claims(config: pytest.Config) -> str:
    """Return a line with the command that adds seeds for undecided claims; empty if no claim lacks seeds."""
    from bertsecrets.jobs.scripts import RUN_ONLY_OPTIONS, words_of

    state = state_of(config)
    if state.options.checkpoint is not None:
        return ""
    saved = get_option(config, "measurements") is not None
    command = [] if saved else ["bertsecrets", "run", *words_of(state.options, RUN_ONLY_OPTIONS)]
    whole = ["pytest", *map(str, config.invocation_params.args)]
    return more_seeds_line(state.run, [*state.verdicts.values()], command, whole)


def print_comparisons(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the verdicts of this run next to those of the runs that `--benchmark-compare` selects, if any."""
    from bertsecrets.report.tables import table

    verdicts = [verdict.data for verdict in state_of(config).verdicts.values()]
    runs = config._benchmarksession.compared_mapping or {}  # type: ignore[attr-defined]
    for path, benchmarks in runs.items():
        earlier = {verdict.id: verdict for verdict in filter(None, map(_saved_verdict, benchmarks.values()))}
        rows = [_compared(earlier[now.id], now) for now in verdicts if now.id in earlier]
        terminalreporter.section(f"compared with {Path(path).name}")
        header = ("claim", "observed before", "now", "verdict before", "now", "seconds before", "now")
        terminalreporter.write_line(table(header, rows) if rows else "no claim in common")
    if config.getoption("benchmark_compare") and not runs:
        terminalreporter.write_line("no saved benchmarks to compare with: save some with --benchmark-autosave")


def _saved_verdict(entry: Any) -> VerdictData | None:
    """Return the verdict in a saved benchmark, or None if another test or another version saved it."""
    try:
        return VerdictData.model_validate(entry["extra_info"])
    except (ValidationError, LookupError, TypeError):
        return None


def _compared(was: VerdictData, now: VerdictData) -> list[str]:
    """Return a row that compares a verdict with an earlier one: id, observed values, outcomes and seconds."""
    from bertsecrets.report.text import outcome_words

    observed = ("-" if value is None else format_number(value) for value in (was.observed, now.observed))
    before = ": ".join(filter(None, (was.verdict or ERROR, was.brief)))
    return [now.id, *observed, before, outcome_words(now), f"{was.seconds:g}", f"{now.seconds:g}"]


def verdicts_file(config: pytest.Config) -> VerdictsFile:
    """Return the verdicts of the run in the format of `report --json`."""
    from bertsecrets.report.json import as_file

    state, model = state_of(config), judged_model(config)
    commits = state.run.session.commits if state.run is not None else ()
    return as_file([*state.verdicts.values()], model, load_settings(), note=state.incomplete, commits=commits)


def weigh(session: pytest.Session, failed: Mapping[str, set[str]]) -> tuple[bool, list[str]]:
    """Return whether the benchmarks fail the run, and the cases whose test did not end as their verdict requires.

    Args:
        failed: The phases in which each test failed, by its id.
    """
    config = session.config
    answered, verdicts = state_of(config).answered, state_of(config).verdicts
    names = {item.nodeid: str(case) for item in session.items if (case := case_of(item))}
    fails = {name for name, fails_run in answered.items() if fails_run}
    accepted = {name for name, verdict in verdicts.items() if verdict.outcome in FAILURES} - fails
    excused = {node for node, phases in failed.items() if phases <= {"call"} and names.get(node) in accepted}
    reported = {names.get(node) for node in failed}
    contradicting = [name for name in answered if name in (fails - reported) | (accepted & reported)]
    drift: Any = config.pluginmanager.get_plugin(exit_code.DRIFT_PLUGIN)
    drifted = drift is not None and drift.comparison is not None and drift.comparison.drifted
    return bool(fails) or drifted or session.testsfailed > len(excused), contradicting


def only_lists(config: pytest.Config) -> bool:
    """Return whether pytest was asked to list tests or fixtures, and so runs no test."""
    names = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test")
    return any(config.getoption(name, False) for name in names)


def incomplete(session: pytest.Session) -> str:
    """Return why selected claims have no answer; empty if all have one."""
    config = session.config
    answered, reported = state_of(config).answered, config.pluginmanager.get_plugin(exit_code.EXIT_CODE_PLUGIN).kinds  # type: ignore[union-attr]
    selected = {item.nodeid: str(case) for item in session.items if (case := case_of(item))}
    missing = {node: case for node, case in selected.items() if case not in answered}
    normal = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if only_lists(config) or not missing:
        return ""
    if not normal or missing.keys() - reported.keys():
        return f"{len(state_of(config).verdicts)} of {len(selected)} claims were judged before the run ended"
    return f"{len(missing)} of {len(selected)} claims were skipped or failed before they were judged"


def not_judged(session: pytest.Session) -> str | None:
    """Return why nothing was judged although the run ended normally, or None if claims were judged.

    A run must not pass because another plugin has skipped its benchmarks, or has executed them in another process.
    """
    config = session.config
    if only_lists(config) or session.shouldfail or session.shouldstop:
        return None
    drift: Any = config.pluginmanager.get_plugin(exit_code.DRIFT_PLUGIN)
    if drift is not None and session.items and drift.comparison is None:
        return "nothing was compared: all benchmarks were skipped by another plugin or mark"
    selected = {item.nodeid: str(case) for item in session.items if (case := case_of(item))}
    ended: Any = config.pluginmanager.get_plugin(exit_code.EXIT_CODE_PLUGIN)
    elsewhere = [
        case
        for node, case in selected.items()
        if case not in state_of(config).answered
        and ended.kinds.get(node, set()) - {exit_code.BENCHMARK, exit_code.CRASH}
    ]
    if elsewhere:
        names = f"{counted(len(elsewhere), 'claim')} ({elsewhere[0]})"
        return f"{names} judged in another process: disable the plugin that starts other processes"
    if not selected or state_of(config).verdicts:
        return None
    return f"no claim was judged: {state_of(config).incomplete or 'see why the benchmarks were skipped'}"


def write_baseline(session: pytest.Session) -> int:
    """Write the baseline if it is to be updated, and return the exit code."""
    state = state_of(session.config)
    if state.run is None or not state.verdicts:
        return 0
    try:
        verdicts = [*state.verdicts.values()]
        state.baseline_lines = conclude_baseline(state.run, verdicts, state.accepted, state.incomplete)
    except UserError as error:
        state.baseline_lines = [f"no baseline: {one_line(error)}"]
        return USER_ERROR
    return 0


def write_report(session: pytest.Session) -> int:
    """Write the page and the verdicts to the folder of `--report`, if given, and return the exit code."""
    config, state = session.config, state_of(session.config)
    folder = get_option(config, "report")
    if folder is None or only_lists(config):
        return 0
    if not state.verdicts:
        state.report_line = "no report: nothing was judged", False
        return 0
    try:
        _write(folder, state, config)
    except Exception as error:
        line, code = explained(error)
        state.report_line = f"no report: {one_line(line)}", False
        return code
    state.report_line = f"report: {folder.resolve() / 'report.html'}", True
    return 0


def _write(folder: Path, state: BenchmarkState, config: pytest.Config) -> None:
    from bertsecrets.jobs.scripts import words_of
    from bertsecrets.report.html import page
    from bertsecrets.report.viewer import Examples, find_examples
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    verdicts, options = [*state.verdicts.values()], state.options
    if options.checkpoint is None:
        rerun = ["bertsecrets", "run", *words_of(options, ["keep_checkpoints"])]
    else:
        numbers = {"OMP_NUM_THREADS": options.threads, variable("jobs"): options.jobs}
        given = [f"{name}={number}" for name, number in numbers.items() if number is not None]
        rerun = [*given, "bertsecrets", "report", *words_of(options, ["threads", "jobs", "keep_checkpoints"])]
        rerun += ["--checkpoint", str(options.checkpoint), "--task", str(options.checkpoint_task)]
    rows = 0 if state.incomplete else get_option(config, "examples")
    try:
        examples = find_examples(state.run.session.example_maps, verdicts if rows else [], rows)
    except KeyboardInterrupt:  # the rest of the report is still written
        examples = Examples(problems=["any checkpoint: interrupted"])
    with signals_deferred():
        write_json(folder / "verdicts.json", verdicts_file(config).model_dump(mode="json"))
        content = page(
            {judged_model(config): verdicts},
            load_settings().judge,
            note=state.incomplete,
            advice=[_open_claims(config)],
            command=["pytest", *map(str, config.invocation_params.args)],
            rerun=rerun,
            examples=examples,
            checkpoint=options.checkpoint is not None,
            accepted=accepted_cases(state.run),
        )
        write_whole(folder / "report.html", content)
