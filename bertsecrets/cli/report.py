"""The command that judges: `bertsecrets report --task rte --html report.html`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertsecrets.cli.fetch import ROW_OPTIONS
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_options, path
from bertsecrets.texts.tasks import ALL_TASKS, task

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.session import Session


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser("report", help="judge claims, print a table of verdicts, write an HTML page")
    parser.add_argument(
        "--task",
        action="append",
        help="repeatable; `all` for claims without a task or across tasks (default: every task with data)",
    )
    parser.add_argument("--claim", action="append", help="judge only the claim with this id; repeatable")
    parser.add_argument(
        "--measurements",
        type=path,
        metavar="DIR",
        help="judge only what `measure --save` saved in this folder; measure nothing",
    )
    parser.add_argument("--metrics", type=path, help="write outcomes and observed values to this JSON file")
    parser.add_argument("--plots", type=path, help="write the curves over layers to this JSON file")
    parser.add_argument("--html", type=path, help="write the report to this HTML file")
    parser.add_argument("--json", type=path, help="write the verdicts to this JSON file")
    add_options(parser.add_argument, (*ROW_OPTIONS, "seeds", "frames", "spacy"))
    parser.set_defaults(run=report)


def report(options: argparse.Namespace) -> None:
    """Judge claims, print the verdicts, and write the files asked for."""
    from bertsecrets.claims.schema import cases, find_claims
    from bertsecrets.report.text import verdict_table
    from bertsecrets.store.entries import write_json

    ids = {claim.id for wanted in options.claim or () for claim in find_claims(wanted)}
    names = [ALL_TASKS if name == ALL_TASKS else task(name).name for name in options.task or ()]
    chosen = [case for case in cases() if (not names or case.task in names) and (not ids or case.claim.id in ids)]
    if options.measurements:
        model, verdicts = _of_measurements(options, chosen)
    else:
        model, verdicts = _of_session(RunOptions.of(options), chosen, names)
    print(verdict_table(verdicts))
    if options.json:
        write_json(options.json, [verdict.as_json() for verdict in verdicts])
        print(f"verdicts: {options.json.resolve()}")
    if options.metrics:
        from bertsecrets.report.json import metrics

        write_json(options.metrics, metrics(verdicts))
    if options.plots:
        from bertsecrets.report.json import layer_rows

        write_json(options.plots, layer_rows(verdicts))
    if options.html:
        from bertsecrets.report.html import page
        from bertsecrets.settings import load_settings
        from bertsecrets.store.files import write_whole

        write_whole(options.html, page(verdicts, model, load_settings().judge))
        print(f"report: {options.html.resolve()}")


def _of_session(options: RunOptions, chosen: list["Case"], names: Sequence[str]) -> tuple[str, list["Verdict"]]:
    """Return the model's name and the verdicts on what a session measures.

    Raises:
        UserError: nothing can be judged, or a task named by the user has no data.
    """
    from bertsecrets.session import Session

    session = Session(options)
    session.check_model()
    possible = _possible(session, chosen, names)
    if not possible:
        raise UserError(
            f"nothing to judge for {session.model}: no implemented claim matches --task and --claim, "
            "or its data are missing (see bertsecrets doctor)"
        )
    return session.model, [session.verdict(case, session.measure_case(case)) for case in possible]


def _possible(session: "Session", chosen: Sequence["Case"], names: Sequence[str]) -> list["Case"]:
    """Return the cases whose data and tools are available; prints a line for those that lack something else.

    Cases whose own task has no data are left out silently.

    Raises:
        UserError: a task was named by the user and its data are missing.
    """
    from bertsecrets.claims.plan import missing

    rows = session.resources.rows
    for name in names:
        problem = rows.missing(name)
        if problem:
            raise UserError(problem)
    available = {name for name in {case.task for case in chosen} if rows.missing(name) is None}
    problems = [(case, missing(session, case)) for case in chosen if case.task in available]
    for reason in dict.fromkeys(problem for _, problem in problems if problem):
        skipped = [str(case) for case, problem in problems if problem == reason]
        claims = "1 claim" if len(skipped) == 1 else f"{len(skipped)} claims"
        print(f"{claims} skipped ({', '.join(skipped)}): {reason}")
    return [case for case, problem in problems if problem is None]


def _of_measurements(options: argparse.Namespace, chosen: list["Case"]) -> tuple[str, list["Verdict"]]:
    """Return the model's name and the verdicts on measurements saved in a folder.

    Raises:
        UserError: an option that has no effect on saved measurements, or nothing to judge.
    """
    from bertsecrets.claims.plan import plan_kept, verdict
    from bertsecrets.settings import load_settings
    from bertsecrets.store.measurements import Shelf

    for name in ("glue", "store", "device", "limit", "train_limit", "grid_limit", "frames", "spacy"):
        if getattr(options, name) is not None:
            raise UserError(
                f"--{name.replace('_', '-')} has no effect on --measurements, which are already made: leave it out"
            )
    given, settings = RunOptions.of(options), load_settings()
    model = given.model or settings.model
    shelf = Shelf.read(options.measurements)
    seeds = None if given.seeds is None else range(1, given.seeds + 1)
    planned = plan_kept(shelf, chosen, model, seeds)
    if not planned:
        kept = ", ".join(f"{name} (seeds {' '.join(map(str, own))})" for name, own in shelf.seeds().items())
        raise UserError(
            f"nothing to judge for {model}: {options.measurements} has {kept}: "
            "choose among these with --model and --seeds, or choose other claims"
        )
    return model, [verdict(shelf, case, model, own, settings=settings.judge) for case, own in planned]
