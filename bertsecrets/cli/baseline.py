"""Baselines on the command line: read a baseline file, compare a run with it, and update it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.console import signals_deferred
from bertsecrets.errors import UserError
from bertsecrets.formats import FAILURES
from bertsecrets.options import path
from bertsecrets.progress import counted
from bertsecrets.store.files import check_writable
from bertsecrets.store.locks import held_folder

if TYPE_CHECKING:
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.compare.baseline import Baseline
    from bertsecrets.judging import JudgedRun

BASELINE_OPTIONS: dict[str, dict[str, Any]] = {
    "baseline": {
        "type": path,
        "metavar": "FILE",
        "help": "fail only if a verdict is worse than the accepted verdict in this file",
    },
    "update_baseline": {"action": "store_true", "help": "accept this run's verdicts: write them to --baseline"},
}


def read_baseline(file: Path | None, *, updating: bool) -> "Baseline | None":
    """Return the baseline in a file, or None if the user has not named a file.

    Raises:
        UserError: If the file does not exist, or if an update is requested without naming a file.
    """
    from bertsecrets.compare.baseline import Baseline

    if file is None:
        if updating:
            raise UserError("--update-baseline needs a file: name it with --baseline")
        return None
    if not updating and not file.exists():
        raise UserError(f"no baseline {file}: write it with --update-baseline, or correct the name")
    if updating:
        if file.exists() and not file.is_file():
            raise UserError(f"{file} is not a regular file, so no baseline can be written to it: name another file")
        check_writable(file)
    return Baseline.read(file, updating=updating)


def accepted_cases(run: "JudgedRun") -> set[str]:
    """Return the names of the cases whose failing verdicts are accepted by the run's baseline."""
    if run.baseline is None:
        return set()
    failing = (verdict for verdict in run.verdicts if verdict.outcome in FAILURES)
    return {str(verdict.case) for verdict in failing if run.baseline.accepts(verdict.data)}


def conclude_baseline(
    run: "JudgedRun", verdicts: Sequence["Verdict"], baseline: "Baseline | None", note: str
) -> list[str]:
    """Return lines that compare a run's verdicts with its baseline. Update the baseline if requested.

    `note` says why the run is incomplete, if it is. An incomplete run does not update the baseline.
    """
    if baseline is None:
        return []
    from bertsecrets.compare.baseline import Baseline
    from bertsecrets.report.findings import change_findings
    from bertsecrets.report.json import as_file
    from bertsecrets.settings import load_settings
    from bertsecrets.store.entries import write_json

    lines = [*baseline.lines(verdicts)]
    if not baseline.updating:
        return lines
    if note:
        return [*lines, f"{baseline.path} is not updated: {note}"]
    run_file = as_file(verdicts, run.model, load_settings(), note=note, commits=run.session.commits)
    with signals_deferred(), held_folder(Path(os.path.realpath(baseline.path)).parent):
        current = Baseline.read(baseline.path, updating=True)  # others may have changed it during the run
        changes = current.updated(run_file)
        write_json(baseline.path, changes.after.model_dump(mode="json"))
    changed = [] if current.accepted is None else [change_findings(changes).text()]
    if degenerate := sum(verdict.verdict == "degenerate" for verdict in changes.after.verdicts):
        changed += [
            f"accepted as degenerate: {counted(degenerate, 'claim')}, which later runs can fail only with an error"
        ]
    return [*lines, *changed, f"baseline: {baseline.path.resolve()}"]
