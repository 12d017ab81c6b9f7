"""The command `report`, as in `bertsecrets report --task rte --html report.html`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bertsecrets.cli.judge_run import (
    JUDGING_OPTIONS,
    MEASURING_OPTIONS,
    add_selection,
    check_saved,
    open_run,
    saved_measurements,
    selected,
)
from bertsecrets.cli.outputs import OUTPUT_FILES, add_outputs, check_outputs, conclude, refuse
from bertsecrets.errors import UserError
from bertsecrets.models.families import full_name
from bertsecrets.options import CHECKPOINT_OPTION, PARSING, RunOptions, add_command, path, whole_number
from bertsecrets.progress import counted
from bertsecrets.types import INITIALISATIONS

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.judging import JudgedRun

PROJECT_OPTIONS = ("jobs", "threads", "precision")  # from pyproject.toml; only `run` has options for them


def add_parsers(commands) -> None:
    """Add the command and its options to the command line."""
    parser = add_command(
        commands,
        report,
        "judge claims, print a table of verdicts and, if requested, write an HTML page",
        "--model minilm --task rte --glue ./glue_data --html report.html",
    )
    parser.add_argument(
        "--model",
        dest="models",
        metavar="MODEL",
        action="append",
        help=f"{PARSING['model']['help']}; repeat the option to compare several models on one page",
    )
    parser.add_argument("--checkpoint", **CHECKPOINT_OPTION)
    add_selection(
        parser, [name for name in JUDGING_OPTIONS if name not in ("model", "keep_checkpoints", *PROJECT_OPTIONS)]
    )
    parser.set_defaults(**dict.fromkeys(PROJECT_OPTIONS))
    saved = parser.add_argument_group("saved measurements")
    saved.add_argument(
        "--measurements",
        type=path,
        metavar="DIR",
        help="judge the measurements that `measure`, `report` or `run` saved in DIR with --save; measure nothing",
    )
    only = "with --measurements: use only measurements with this {} and, if --task is given, on this task; repeatable"
    saved.add_argument(
        "--init", action="append", choices=INITIALISATIONS, metavar="NAME", help=only.format("initialisation")
    )
    saved.add_argument("--seed", action="append", type=whole_number, metavar="N", help=only.format("seed"))
    add_outputs(parser)


def report(options: argparse.Namespace) -> int:
    """Judge claims, print the verdicts, write the requested files, and return the exit code."""
    baseline = check_outputs(options)
    named = {full_name(name): name for name in options.models or ()}
    models: list[str | None] = [*named.values()] or [None]
    if len(models) > 1:
        for_one = [*sorted({*OUTPUT_FILES} - {"html"}), "checkpoint", "baseline", "save"]
        refuse(options, for_one, "can be used only with a single --model")
    if options.checkpoint is not None:
        refuse(options, ["save"], "has no effect with --checkpoint")
    # Open all models before measuring anything.
    opened = [_opened(argparse.Namespace(**vars(options), model=model)) for model in models]
    return conclude(options, opened, baseline)


def _opened(options: argparse.Namespace) -> "JudgedRun":
    from bertsecrets.session import Session

    chosen, tasks = selected(options)
    if options.measurements:
        return _saved(options, chosen, tasks)
    refuse(options, ("init", "seed"), "has no effect without --measurements")
    session = Session(RunOptions.from_namespace(options).judging(options.checkpoint, tasks))
    run = open_run(session, chosen, tasks)
    if options.checkpoint is not None and not options.claim:
        _drop_slow_claims(run, session.options)
    return run


def _drop_slow_claims(run: "JudgedRun", options: RunOptions) -> None:
    """If --limit is given without --grid-limit, leave out the slowest claims and print their ids."""
    from bertsecrets.claims.requirements import is_slow

    slow = [case for case in run.possible() if is_slow(case)]
    if not slow or options.limit is None or options.grid_limit is not None:
        return
    ids = ", ".join(dict.fromkeys(case.claim.id for case in slow))
    run.asked = [case for case in run.asked if case not in slow]
    print(
        f"{counted(len(slow), 'claim')} left out to save time ({ids}), because they require disabling or "
        f"pruning many heads and layers: use --grid-limit {options.limit} to include them, or --claim G to judge the "
        "claims of family G"
    )


def _saved(options: argparse.Namespace, chosen: list["Case"], tasks: Sequence[str]) -> "JudgedRun":
    from bertsecrets.claims.loading import cases, select_cases
    from bertsecrets.judging import JudgedRun, skipped
    from bertsecrets.store.records import SavedFolder

    refuse(options, (*MEASURING_OPTIONS, "checkpoint"), "has no effect with --measurements")
    given = RunOptions.from_namespace(options)
    saved = SavedFolder.read(options.measurements)
    if options.init or options.seed:
        saved = replace(saved, shelf=saved.shelf.part(tasks, options.init, options.seed))
        if not saved.shelf.seeds():
            raise UserError(f"{options.measurements} has no measurements with this --task, --init and --seed")
    session = saved_measurements(saved, given)
    if options.seed:
        session = replace(session, wanted_seeds=sorted(options.seed))
    if session.run is not None and not options.claim:
        known = {str(case) for case in cases()}
        chosen = select_cases([name for name in session.run.cases if name in known], tasks)
        if gone := [name for name in session.run.cases if name not in known]:
            number = counted(len(gone), "claim")
            print(f"skipped {number} that the saved run judged but expected/ no longer contains: {', '.join(gone)}")
    run = JudgedRun(session, chosen)
    if session.run is not None and not (options.claim or options.init):
        for reason, names in run.skipped().items():
            print(skipped(names, reason))
    check_saved(run, saved.shelf, options.measurements)
    run.asked = run.possible()
    return run
