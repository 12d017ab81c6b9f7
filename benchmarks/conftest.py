"""Options, fixtures and the verdict table of the benchmarks: `pytest benchmarks -k rte`.

A benchmark is a claim on a task. `judged` gets what the claim needs (from the store, or made now) and judges it. One
that is known to deviate is a strict xfail, set at collection from `expected/`.
"""

import argparse
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from bertsecrets.claims.schema import Case, cases
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli import commands
from bertsecrets.cli.signals import as_interrupt
from bertsecrets.errors import UserError
from bertsecrets.settings import params
from bertsecrets.store.entries import DamagedEntryWarning

USER_ERROR = 2
VERDICTS = pytest.StashKey[list[Verdict]]()
OPTION_NAMES = (
    *("model", "glue", "seeds", "limit", "train_limit", "grid_limit"),
    *("device", "store", "frames", "spacy", "offline", "allow_unofficial_data"),
)
OPTIONS = pytest.StashKey[argparse.Namespace]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bertsecrets")
    group.addoption("--model", help="hub name, folder, or minilm; NAME@REVISION pins a commit")
    group.addoption(
        "--glue",
        type=Path,
        action="append",
        help="local GLUE folder (default: BERTSECRETS_GLUE, else the hub); given again, for what the first lacks",
    )
    group.addoption("--seeds", type=int, help="judge on seeds 1 to N")
    group.addoption("--limit", type=int, help="only the first N validation rows")
    group.addoption("--train-limit", type=int, help="only the first N training rows")
    group.addoption("--grid-limit", type=int, help="of these, only the first N in ablation grids")
    group.addoption("--device", help="cpu, cuda, cuda:1 (default: the GPU where there is one)")
    group.addoption("--store", type=Path, help="where checkpoints and measurements are kept (default: runs)")
    group.addoption("--frames", type=Path, help="frame sentences: JSONL, or FrameNet's folder (BERTSECRETS_FRAMES)")
    group.addoption("--spacy", metavar="NAME", help="pipeline that tags and parses (default: en_core_web_sm)")
    group.addoption("--offline", action="store_true", help="never touch the network")
    group.addoption("--allow-unofficial-data", action="store_true", help="go on where row or class counts differ")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Speed is no claim: its benchmarks run only when their folder is named."""
    named = any("speed" in str(argument) for argument in config.args)
    return True if collection_path.name == "speed" and not named else None


def chosen_options(config: pytest.Config) -> argparse.Namespace:
    return argparse.Namespace(**{name: config.getoption(name) for name in OPTION_NAMES})


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if threading.current_thread() is threading.main_thread():  # no other may catch signals
        clearing = ExitStack()
        clearing.enter_context(as_interrupt())
        config.add_cleanup(clearing.close)
    config.addinivalue_line("filterwarnings", "default")  # a warning must not cost an hour of training
    config.addinivalue_line("filterwarnings", f"always::{DamagedEntryWarning.__module__}.DamagedEntryWarning")
    if not config.getoption("benchmark_verbose", False):
        config.option.benchmark_quiet = True  # the verdict table stands in for the table of seconds
    config.stash[VERDICTS] = []
    config.stash[OPTIONS] = chosen_options(config)
    try:
        params()
        found = cases()
    except UserError as error:
        pytest.exit(str(error), returncode=USER_ERROR)
    for name in sorted({mark for case in found for mark in marks(case)}):
        config.addinivalue_line("markers", f"{name}: benchmarks of claim, family or task {name}")


def marks(case: Case) -> list[str]:
    """The marks by which `-m` selects a case exactly: family, claim, task.

    Marks count as names for `-k` too, so there are none for measures: `-k "sst2 and D"` must not find another word's d.
    """
    return [case.claim.id[0], case.claim.id, case.task]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `case` with the claims of the module's `MEASURE`."""
    if "case" not in metafunc.fixturenames:
        return
    options = metafunc.config.stash[OPTIONS]
    whole = not (options.limit or options.train_limit or options.grid_limit) and not options.allow_unofficial_data
    params = []
    for case in cases(metafunc.module.MEASURE):
        applied = [getattr(pytest.mark, name) for name in marks(case)]
        known = case.known_deviation(commands.model_name(options))
        if known:
            reason = f"known to deviate: {known.evidence}"
            applied.append(pytest.mark.xfail(raises=AssertionError, reason=reason, strict=whole))
        params.append(pytest.param(case, id=str(case), marks=applied))
    metafunc.parametrize("case", params)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Say once, before anything runs, that the model or all data cannot be had."""
    wanted = [item.callspec.params["case"] for item in session.items if "case" in getattr(item, "fixturenames", ())]
    wanted = [case for case in wanted if isinstance(case, Case)]  # not the stand-in of a measure without cases
    if not wanted or session.config.option.collectonly:
        return
    options = session.config.stash[OPTIONS]
    try:
        bench = commands.workbench(options)
        commands.seed_list(options.seeds)
        commands.check_model(commands.model_name(options), options.offline)
        names = dict.fromkeys(case.task for case in wanted)
        missing = [problem for name in names if (problem := bench.texts.missing_rows(name))]
        if len(missing) == len(names):
            raise UserError(missing[0])
    except UserError as error:
        pytest.exit(str(error), returncode=USER_ERROR)


def pytest_report_header(config: pytest.Config) -> str:
    options = config.stash[OPTIONS]
    given = {name: value for name, value in vars(options).items() if value not in (None, False)}
    given["model"] = commands.model_name(options)
    shown = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in given.items()}
    return "bertsecrets: " + ", ".join(f"{name} {value}" for name, value in sorted(shown.items()))


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest):
    return commands.workbench(request.config.stash[OPTIONS])


@pytest.fixture
def judged(bench, benchmark, request: pytest.FixtureRequest):
    """A function that runs a case once, timed, and hands back its verdict; the table at the end has it too."""
    from bertsecrets.claims.judge import all_of, judge
    from bertsecrets.claims.plan import measure_case, missing
    from bertsecrets.store.verdicts import keep_verdict

    options = request.config.stash[OPTIONS]
    model = commands.model_name(options)

    def run(case: Case) -> Verdict:
        reason = missing(bench, case)
        if reason:
            pytest.skip(reason)
        try:
            found = benchmark.pedantic(measure_case, args=(bench, case, model, commands.seed_list(options.seeds)))
        except UserError as error:
            pytest.exit(f"{case}: {error}", returncode=USER_ERROR)
        verdict = judge(case, found, params().judge)
        benchmark.extra_info.update(verdict.as_json())
        benchmark.extra_info["reused"] = all(m.reused for row in found for m in all_of(row))
        request.config.stash[VERDICTS].append(verdict)
        try:
            keep_verdict(bench.store.root, verdict.as_json(), model)
        except UserError as error:
            pytest.exit(f"{case}: {error}", returncode=USER_ERROR)
        if verdict.outcome in ("inconclusive", "not applicable"):
            pytest.skip(f"{verdict.outcome}: {verdict.reason}")
        return verdict

    return run


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-benchmark's, which is a wrapper too
def pytest_sessionfinish(session: pytest.Session):
    """Keep what was cut short out of `--benchmark-json`: an entry without a time would lose the file for all."""
    timed = session.config._benchmarksession  # type: ignore[attr-defined]
    timed.benchmarks[:] = [each for each in timed.benchmarks if each]
    if not timed.benchmarks:
        timed.json = timed.save = timed.autosave = None
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    verdicts = config.stash[VERDICTS]
    if not verdicts:
        return
    from bertsecrets.report.text import verdict_table

    terminalreporter.section("verdicts")
    terminalreporter.write_line(verdict_table(verdicts))
    known = [v for v in verdicts if v.outcome == "deviates" and v.case.known_deviation(v.measurements[0].subject.model)]
    if known:
        terminalreporter.write_line(f"known to deviate: {', '.join(str(v.case) for v in known)}")
