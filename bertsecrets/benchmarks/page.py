"""The report that `pytest benchmarks --report DIR` writes: the page, and the verdicts as data."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bertsecrets.benchmarks.stash import OPTIONS, SESSION, VERDICTS
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.console import (
    BUG,
    USER_ERROR,
    report_bug,
)
from bertsecrets.errors import UserError, of_the_machine, one_line
from bertsecrets.settings import load_settings

if TYPE_CHECKING:
    from bertsecrets.report.viewer import Examples

REPORTED = pytest.StashKey[str]()  # where the report is, or why there is none
NO_REPORT = "no report"


def write_report(session: pytest.Session) -> int:
    """Write the report page and the verdicts as data where that is asked for; return the exit code of what fails."""
    config = session.config
    folder, verdicts = config.getoption("report_folder"), config.stash[VERDICTS]
    if folder is None or config.option.collectonly:
        return 0
    if not verdicts:
        config.stash[REPORTED] = f"{NO_REPORT}: nothing was judged"
        return 0
    ended_early = session.shouldfail or session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    note = "the run ended early, so that not every claim had its turn" if ended_early else ""
    try:
        elsewhere = SESSION not in config.stash  # by workers of pytest-xdist
        _write(folder, [_whole(one) for one in verdicts] if elsewhere else verdicts, config, note)
    except Exception as error:
        line = str(error) if isinstance(error, UserError) else of_the_machine(error)
        config.stash[REPORTED] = f"{NO_REPORT}: {one_line(line or report_bug(error))}"
        return USER_ERROR if line is not None else BUG
    config.stash[REPORTED] = f"report: {folder.resolve() / 'report.html'}"
    return 0


def _whole(verdict: Verdict) -> Verdict:
    """Return a verdict with the samples that its worker of pytest-xdist has left in the store, which figures need."""
    from bertsecrets.store.measurements import load

    own = verdict.measurements
    whole = [replace(one, samples=load(Path(one.origin)).samples) if one.origin else one for one in own]
    return replace(verdict, measurements=tuple(whole))


def _examples(verdicts: list[Verdict], config: pytest.Config) -> "Examples":
    """Measure what the page's attention viewer shows."""
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
    """Write the report page and the verdicts as data."""
    from bertsecrets.report.html import page
    from bertsecrets.report.json import as_file
    from bertsecrets.report.viewer import Examples
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    settings = load_settings()
    model = config.stash[OPTIONS].judged or settings.model
    command = ["pytest", *map(str, config.invocation_params.args)]
    write_json(folder / "verdicts.json", as_file(verdicts, model, settings, note=note).model_dump(mode="json"))
    examples = Examples() if note else _examples(verdicts, config)
    content = page({model: verdicts}, settings.judge, note=note, command=command, examples=examples)
    write_whole(folder / "report.html", content)
