"""The output of a run of benchmarks: the verdict table, the properties in JUnit's XML, and the report."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bertsecrets.benchmarks.exit_code import OUTCOME
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.console import BUG, USER_ERROR, report_bug
from bertsecrets.errors import UserError, of_the_machine, one_line
from bertsecrets.formats import ERROR, Ends, VerdictData
from bertsecrets.options import RunOptions
from bertsecrets.settings import load_settings

if TYPE_CHECKING:
    from bertsecrets.report.viewer import Examples
    from bertsecrets.session import Session

# Kept in pytest's configuration.
VERDICTS = pytest.StashKey[list[Verdict]]()
OPTIONS = pytest.StashKey[RunOptions]()
SESSION: pytest.StashKey["Session"] = pytest.StashKey()
REPORTED = pytest.StashKey[str]()  # the line about the report: where it is, or why there is none
NO_REPORT = "no report"


def judged_model(config: pytest.Config) -> str:
    """Return the model or checkpoint that is judged."""
    return config.stash[OPTIONS].judged or load_settings().model


def junit_properties(verdict: VerdictData) -> list[tuple[str, object]]:
    """Return a verdict's properties in JUnit's XML."""
    facts = {
        OUTCOME: verdict.verdict or ERROR,
        "observed": verdict.observed,
        "interval": _ends(verdict.interval),
        "band": _ends(verdict.band),
        "unit": verdict.unit,
        "published": verdict.published,
        "model": " ".join(verdict.models),
        "seeds": " ".join(map(str, verdict.seeds)),
        "known_deviation": "yes" if verdict.known_deviation else None,
        "reason": verdict.reason,
    }
    return [(name, fact) for name, fact in facts.items() if fact not in (None, "")]


def _ends(ends: Ends | None) -> str | None:
    """Return the ends of an interval as `low high`; an open end as -inf or inf."""
    return f"{-inf if ends[0] is None else ends[0]} {inf if ends[1] is None else ends[1]}" if ends else None


def print_verdicts(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the verdict table and its summary."""
    from bertsecrets.report.tables import fold
    from bertsecrets.report.terminal import NARROWEST, Screen, verdict_table
    from bertsecrets.report.text import run_lines

    verdicts = config.stash[VERDICTS]
    terminalreporter.section("verdicts")
    width = config.get_terminal_writer().fullwidth if terminalreporter.isatty else NARROWEST
    screen = Screen(max(NARROWEST, width), terminalreporter.hasmarkup)
    terminalreporter.write_line(verdict_table(verdicts, screen, verbose=config.get_verbosity() > 0))
    for line in run_lines(verdicts, load_settings().judge.confidence):
        terminalreporter.write_line(fold(line, screen.width))
    known = [str(verdict.case) for verdict in verdicts if verdict.known_deviation]
    if known:
        terminalreporter.write_line(f"known to deviate: {', '.join(known)}")
    errors = [str(verdict.case) for verdict in verdicts if verdict.outcome is None]
    if errors:
        line = f"{len(errors)} of {len(verdicts)} claims could not be measured: {', '.join(errors)}"
        terminalreporter.write_line(line)


def write_report(session: pytest.Session) -> int:
    """Write the page and the verdicts of `--report`, if given; return the exit code of an error."""
    config = session.config
    folder, verdicts = config.getoption("report_folder"), config.stash[VERDICTS]
    if folder is None or config.option.collectonly:
        return 0
    if not verdicts:
        config.stash[REPORTED] = f"{NO_REPORT}: nothing was judged"
        return 0
    ended_early = session.shouldfail or session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    note = "the run ended early, before every claim was judged" if ended_early else ""
    try:
        _write(folder, verdicts if SESSION in config.stash else list(map(_with_samples, verdicts)), config, note)
    except Exception as error:
        line = str(error) if isinstance(error, UserError) else of_the_machine(error)
        config.stash[REPORTED] = f"{NO_REPORT}: {one_line(line or report_bug(error))}"
        return USER_ERROR if line is not None else BUG
    config.stash[REPORTED] = f"report: {folder.resolve() / 'report.html'}"
    return 0


def _with_samples(verdict: Verdict) -> Verdict:
    """Return the verdict of a pytest-xdist worker with its samples, which figures need, from the store."""
    from bertsecrets.store.measurements import load

    measurements = [
        replace(measurement, samples=load(Path(measurement.origin)).samples) if measurement.origin else measurement
        for measurement in verdict.measurements
    ]
    return replace(verdict, measurements=tuple(measurements))


def _examples(verdicts: list[Verdict], config: pytest.Config) -> "Examples":
    """Measure the maps of the page's attention viewer."""
    from bertsecrets.report.viewer import Examples, subjects_shown
    from bertsecrets.session import Session

    rows = config.getoption("examples")
    if not rows:
        return Examples()
    try:
        session = config.stash[SESSION] if SESSION in config.stash else Session(config.stash[OPTIONS])
        return Examples(*session.example_maps(subjects_shown(verdicts)), rows)
    except KeyboardInterrupt:  # the rest of the report is written
        return Examples(problems=["any checkpoint: interrupted"])


def _write(folder: Path, verdicts: list[Verdict], config: pytest.Config, note: str) -> None:
    from bertsecrets.report.html import page
    from bertsecrets.report.json import as_file
    from bertsecrets.report.viewer import Examples
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    settings, model = load_settings(), judged_model(config)
    command = ["pytest", *map(str, config.invocation_params.args)]
    write_json(folder / "verdicts.json", as_file(verdicts, model, settings, note=note).model_dump(mode="json"))
    examples = Examples() if note else _examples(verdicts, config)
    content = page({model: verdicts}, settings.judge, note=note, command=command, examples=examples)
    write_whole(folder / "report.html", content)
