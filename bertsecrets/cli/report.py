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
    parser = commands.add_parser("report", help="judge claims, print the table, write a page")
    parser.add_argument(
        "--task",
        action="append",
        help="may be given several times; `all` for claims on no task or several (default: everything that has data)",
    )
    parser.add_argument("--claim", action="append", help="only these ids")
    parser.add_argument("--measurements", type=path, metavar="DIR", help="judge what `measure --save` kept, alone")
    parser.add_argument("--metrics", type=path, help="write outcomes and observed values here, as flat JSON")
    parser.add_argument("--plots", type=path, help="write the curves by layer here, as JSON rows")
    parser.add_argument("--html", type=path, help="write the page here")
    parser.add_argument("--json", type=path, help="write the verdicts here")
    add_options(parser.add_argument, (*ROW_OPTIONS, "seeds", "frames", "spacy"))
    parser.set_defaults(run=report)


def report(options: argparse.Namespace) -> None:
    """Judge claims and show the verdicts."""
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
    """The verdicts on what a session measures."""
    from bertsecrets.session import Session

    session = Session(options)
    session.check_model()
    possible = _possible(session, chosen, names)
    if not possible:
        raise UserError(
            f"nothing to judge of {session.model}: no implemented claim fits --task and --claim, "
            "or its data are not there"
        )
    return session.model, [session.verdict(case, session.measure_case(case)) for case in possible]


def _possible(session: "Session", chosen: Sequence["Case"], names: Sequence[str]) -> list["Case"]:
    """The cases whose data and tools are here; says in a line what else than a task's own data others lack.

    Raises:
        UserError: a task was asked for by name and its data are missing.
    """
    from bertsecrets.claims.plan import missing

    rows = session.resources.rows
    for name in names:
        problem = rows.missing(name)
        if problem:
            raise UserError(problem)
    here = {name for name in {case.task for case in chosen} if rows.missing(name) is None}
    problems = [(case, missing(session, case)) for case in chosen if case.task in here]
    for reason in dict.fromkeys(problem for _, problem in problems if problem):
        left_out = ", ".join(str(case) for case, problem in problems if problem == reason)
        print(f"not judged: {left_out}: {reason}")
    return [case for case, problem in problems if problem is None]


def _of_measurements(options: argparse.Namespace, chosen: list["Case"]) -> tuple[str, list["Verdict"]]:
    """The verdicts on measurements that were kept in a folder, whoever made them.

    Raises:
        UserError: an option that they cannot heed, or nothing that could be judged.
    """
    from bertsecrets.claims.plan import plan_kept, verdict
    from bertsecrets.settings import load_settings
    from bertsecrets.store.measurements import Shelf

    for name in ("glue", "store", "device", "limit", "train_limit", "grid_limit", "frames", "spacy"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} has no effect on --measurements, made before: leave it out")
    given, settings = RunOptions.of(options), load_settings()
    model = given.model or settings.model
    shelf = Shelf.read(options.measurements)
    seeds = None if given.seeds is None else range(1, given.seeds + 1)
    planned = plan_kept(shelf, chosen, model, seeds)
    if not planned:
        kept = ", ".join(f"{name} (seeds {' '.join(map(str, own))})" for name, own in shelf.seeds().items())
        raise UserError(
            f"nothing to judge of {model}: {options.measurements} has {kept}: "
            "choose among them by --model and --seeds, or other claims"
        )
    return model, [verdict(shelf, case, model, own, settings=settings.judge) for case, own in planned]
