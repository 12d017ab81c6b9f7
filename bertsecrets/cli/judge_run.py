"""Code shared by `report`, `plan` and `run`: it selects claims and opens a run of the claims that can be judged."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.errors import UserError
from bertsecrets.options import EXPECTED_OPTION, LIMIT_OPTIONS, ROW_OPTIONS, RunOptions, add_run_options, configured
from bertsecrets.store.files import check_writable
from bertsecrets.texts.tasks import ALL_TASKS, own_task_names, task
from bertsecrets.types import AUTO

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.jobs.prepare import Work
    from bertsecrets.judging import JudgedRun
    from bertsecrets.saved import SavedMeasurements
    from bertsecrets.session import Session
    from bertsecrets.store.measurements import Shelf
    from bertsecrets.store.records import SavedFolder

# Options that have no effect on saved measurements.
MEASURING_OPTIONS = ("glue", "store", "jobs", "device", *LIMIT_OPTIONS, "frames", "spacy", "budget")
JUDGING_OPTIONS = (*ROW_OPTIONS, "jobs", "seeds", "budget", "keep_checkpoints", "frames", "spacy")


def add_selection(parser: argparse.ArgumentParser, names: Collection[str] = JUDGING_OPTIONS) -> None:
    """Add the options that select claims, and the run options in `names`."""
    parser.add_argument(
        "--task",
        action="append",
        help="judge claims that involve this task or the bare encoder; repeatable. `all` stands for claims about the "
        "bare encoder and claims about several tasks together (default: the tasks in --task-file; without --task-file, "
        "all tasks with data)",
    )
    parser.add_argument(
        "--claim",
        action="append",
        metavar="ID",
        help="judge only this claim or family, such as D1, D1-random, D1-rte, D1-rte-random or D; repeatable",
    )
    parser.add_argument("--expected", **EXPECTED_OPTION)
    parser.set_defaults(checkpoint=None, measurements=None)  # options of `report`
    add_run_options(parser, names)


def selected(options: argparse.Namespace) -> tuple[list["Case"], list[str]]:
    """Return the cases that `--task` and `--claim` select, and the selected tasks.

    By default, the user's own tasks are selected.
    """
    from bertsecrets.claims.loading import select_cases

    tasks = [ALL_TASKS if name == ALL_TASKS else task(name).name for name in options.task or own_task_names()]
    chosen = select_cases(options.claim or (), tasks)
    if options.checkpoint is not None:  # a checkpoint is judged on its own task
        chosen = [case for case in chosen if case.task in tasks]
    return chosen, tasks


def saved_measurements(saved: "SavedFolder", options: RunOptions) -> "SavedMeasurements":
    """Return the saved measurements of the options' model and seeds, so that they can be judged like new ones.

    By default, the model and the seeds are those of the recorded run or, if no run is recorded, those in the settings.
    """
    from bertsecrets.saved import SavedMeasurements
    from bertsecrets.settings import load_settings

    settings, run = load_settings(), saved.run_of(options.model, options.seeds)
    model = options.model or (run.model if run else configured().get("model", settings.model))
    seeds = options.seeds or (run.seeds if run else AUTO if settings.seeds == AUTO else None)
    return SavedMeasurements(saved.shelf, model, settings.judge, seeds, run)


def check_saved(run: "JudgedRun", shelf: "Shelf", folder: Path) -> None:
    """Check that saved measurements suffice for at least one claim, or that none of the claims apply to the model."""
    if run.idle or not run.possible():
        saved = ", ".join(f"{name} (seeds {' '.join(map(str, own))})" for name, own in shelf.seeds().items())
        raise UserError(
            f"nothing to judge for {run.model} in {folder}, which has {saved or 'no measurements'}: "
            "choose one of these models and some of its seeds with --model and --seeds, or choose other claims"
        )


def open_run(
    session: "Session", chosen: Sequence["Case"], tasks: Sequence[str], work: "Work | None" = None
) -> "JudgedRun":
    """Return a run of the chosen cases whose tasks have data. If other inputs are missing, print a line about each.

    Args:
        tasks: Names of the tasks that the user selected or, by default, of the user's own tasks.
        work: Context that carries out the jobs (`jobs.prepare.PlannedRunner`). By default, jobs run on this machine.
    """
    from bertsecrets.claims.requirements import reads_model, reads_rows
    from bertsecrets.jobs.plan import split_by_stored_tasks
    from bertsecrets.jobs.prepare import PlannedRunner
    from bertsecrets.judging import JudgedRun, skipped

    if not session.store.root.exists():
        check_writable(session.store.root)
    if not chosen or any(map(reads_model, chosen)):
        session.check_model()
    rows = session.resources.rows
    no_rows = {name: rows.missing(name) for name in {case.task for case in chosen if reads_rows(case)}}
    known, left_out = split_by_stored_tasks(session, chosen, tasks)
    if left_out:
        print(left_out)
    requested = [case for case in known if not (reads_rows(case) and no_rows[case.task])]
    run = JudgedRun(session, requested, PlannedRunner(session, work))
    if requested and not run.asked:
        about = " and ".join(requested[0].claim.architectures)
        raise UserError(f"{requested[0]} applies only to {about} models: choose such a model with --model")
    if problem := next(filter(None, map(no_rows.get, tasks)), None):
        raise UserError(problem)
    for reason, names in run.skipped().items():
        print(skipped(names, reason))
    if not run.possible():
        raise UserError(
            f"nothing to judge for {session.model}: no claim matches --task and --claim, "
            "or the data of these claims are missing (see bertsecrets doctor)"
        )
    return run
