"""The command that judges: `bertsecrets report --task rte --html report.html`."""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bertsecrets.cli.judged import add_examples, judge_cases
from bertsecrets.cli.outputs import FILES, add_outputs, check_outputs, conclude
from bertsecrets.cli.parsing import add_command, refuse
from bertsecrets.errors import UserError
from bertsecrets.options import CHECKPOINT, PARSING, ROW_OPTIONS, RunOptions, add_options, path, seed_range
from bertsecrets.texts.tasks import ALL_TASKS, task
from bertsecrets.types import AUTO, INITIALISATIONS

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.judging import JudgedRun
    from bertsecrets.session import Session

SELECTION = (*ROW_OPTIONS, "seeds", "budget", "keep_checkpoints", "frames", "spacy")  # options of a run that judges


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = add_command(
        commands,
        "report",
        "judge claims, print a table of verdicts, write a page",
        "report --model minilm --task rte --glue ./glue_data --html report.html",
        report,
    )
    parser.add_argument(
        "--model",
        dest="models",
        action="append",
        help=f"{PARSING['model']['help']}; repeatable: the page then shows models side by side",
    )
    add_selection(parser, [name for name in SELECTION if name != "model"])
    parser.add_argument(
        "--measurements",
        type=path,
        metavar="DIR",
        help="judge only what `measure --save` saved in this folder; measure nothing",
    )
    parser.add_argument(
        "--init",
        action="append",
        choices=INITIALISATIONS,
        help="with --measurements: read only those of this initialisation, and of the given --task; repeatable",
    )
    parser.add_argument(
        "--seed",
        action="append",
        type=int,
        help="with --measurements: read only those of this seed, and of the given --task; repeatable",
    )
    parser.add_argument("--checkpoint", **CHECKPOINT)
    add_outputs(parser)
    parser.add_argument("--schema", action="store_true", help="only print the JSON Schema of what --json writes")


def add_selection(parser: argparse.ArgumentParser, names: Sequence[str] = SELECTION) -> None:
    """Add the options that choose claims, and those of the run that measures what they need."""
    parser.add_argument(
        "--task",
        action="append",
        help="repeatable; `all` for claims without a task or across tasks (default: every task with data)",
    )
    parser.add_argument(
        "--claim",
        action="append",
        help="judge only this claim, named as tables do: D1, D1-random, D1-rte or D1-rte-random; or a family such as "
        "D; repeatable",
    )
    add_options(parser.add_argument, names)


def report(options: argparse.Namespace) -> int:
    """Judge claims, print the verdicts, write the requested files, and return the exit code."""
    if options.schema:
        from bertsecrets.formats import json_schema

        print(json.dumps(json_schema(), indent=1, ensure_ascii=False))
        return 0
    check_outputs(options)
    models: list[str | None] = [*dict.fromkeys(options.models)] if options.models else [None]
    if len(models) > 1:
        refuse(options, [*sorted({*FILES} - {"html"}), "eval_results", "checkpoint"], "is for a single --model")
    judging = [_judging(argparse.Namespace(**vars(options), model=model)) for model in models]
    runs: list[JudgedRun] = []
    for judge in judging:  # all can be judged, as far as is known before anything is measured
        runs.append(judge())
        if runs[-1].ended is not None:
            break
    return conclude(options, *runs)


def _judging(options: argparse.Namespace) -> Callable[[], "JudgedRun"]:
    """Return what judges the chosen claims of one model, after checks of what it needs.

    Raises:
        UserError: the model, its data or an option is not as it should be.
    """
    chosen, names = selected(options)
    checkpoint = options.checkpoint
    if options.measurements:
        if checkpoint is not None:
            raise UserError("--measurements are of checkpoints that are named in them: leave out --checkpoint")
        return partial(_of_measurements, options, chosen, names)
    refuse(options, ("init", "seed"), "has no effect without --measurements")
    from bertsecrets.jobs.prepare import prepare_in_turn

    session, requested, possible = open_session(RunOptions.of(options).judging(checkpoint, names), chosen, names)

    def judge() -> "JudgedRun":
        run = judge_cases(session, possible, partial(prepare_in_turn, session), asked=requested)
        add_examples(options, session, run)
        return run

    return judge


def selected(options: argparse.Namespace) -> tuple[list["Case"], list[str]]:
    """Return the cases that `--task` and `--claim` choose, and the tasks that were named.

    Raises:
        UserError: an unknown task or claim.
    """
    from bertsecrets.claims.schema import cases, find_cases

    wanted = {str(case) for name in options.claim or () for case in find_cases(name)}
    names = [ALL_TASKS if name == ALL_TASKS else task(name).name for name in options.task or ()]
    of_tasks = [case for case in cases() if not names or case.task in names]
    usual = [case for case in of_tasks if not case.claim.on_request]
    return [case for case in of_tasks if str(case) in wanted] if wanted else usual, names


def open_session(
    options: RunOptions, chosen: Sequence["Case"], names: Sequence[str]
) -> tuple["Session", list["Case"], list["Case"]]:
    """Return a session, the requested cases (about such models, with data of their task), and those it can measure.

    Prints a line for the requested cases that lack something else.

    Raises:
        UserError: nothing can be judged, or a task that the user named has no data.
    """
    from bertsecrets.claims.plan import missing, reads_model, reads_rows
    from bertsecrets.session import Session

    session = Session(options)
    if not chosen or any(reads_model(case) for case in chosen):
        session.check_model()
    if chosen and not any(map(session.speaks_of, chosen)):
        raise UserError(f"{chosen[0]} is about {' and '.join(chosen[0].claim.architectures)}: name one with --model")
    missing_rows = session.resources.rows.missing
    tasks_read = {case.task for case in chosen if reads_rows(case)}
    without_data = {name: problem for name in tasks_read if (problem := missing_rows(name)) is not None}
    for name in names:
        if name in without_data:
            raise UserError(without_data[name])
    requested = [
        case for case in chosen if session.speaks_of(case) and not (reads_rows(case) and case.task in without_data)
    ]
    problems = {str(case): missing(session, case) for case in requested}
    for reason in dict.fromkeys(filter(None, problems.values())):
        skipped = [name for name, problem in problems.items() if problem == reason]
        claims = "1 claim" if len(skipped) == 1 else f"{len(skipped)} claims"
        print(f"{claims} skipped ({', '.join(skipped)}): {reason}")
    possible = [case for case in requested if problems[str(case)] is None]
    if not possible:
        raise UserError(
            f"nothing to judge for {session.model}: no implemented claim matches --task and --claim, "
            "or its data are missing (see bertsecrets doctor)"
        )
    return session, requested, possible


def _of_measurements(options: argparse.Namespace, chosen: list["Case"], tasks: Sequence[str]) -> "JudgedRun":
    """Return the verdicts on measurements saved in a folder.

    Raises:
        UserError: an option that has no effect on saved measurements, or nothing to judge.
    """
    from bertsecrets.claims.judge import judge
    from bertsecrets.claims.plan import measure_case, plan_kept
    from bertsecrets.claims.sequential import judge_in_sequence
    from bertsecrets.judging import JudgedRun, attempt
    from bertsecrets.settings import load_settings
    from bertsecrets.store.measurements import Shelf

    made = ("glue", "store", "device", "threads", "limit", "train_limit", "grid_limit", "frames", "spacy", "budget")
    refuse(options, (*made, "keep_checkpoints"), "has no effect on --measurements, which are already made")
    given, settings = RunOptions.of(options), load_settings()
    model = given.model or settings.model
    shelf = Shelf.read(options.measurements)
    if options.init or options.seed:
        shelf = shelf.part(tasks, options.init, options.seed)
    seeds = seed_range(given.seeds) if isinstance(given.seeds, int) else None
    adds = (given.seeds or settings.seeds) == AUTO
    planned = plan_kept(shelf, chosen, model, seeds)
    if not planned:
        kept = ", ".join(f"{name} (seeds {' '.join(map(str, own))})" for name, own in shelf.seeds().items())
        raise UserError(
            f"nothing to judge for {model}: {options.measurements} has {kept}: "
            "choose among these with --model and --seeds, or choose other claims"
        )
    seeds_of = {str(case): own for case, own in planned}
    of_seeds = judge_in_sequence if adds else judge

    def one(case: "Case") -> "Verdict":
        return of_seeds(case, measure_case(shelf, case, model, seeds_of[str(case)]), settings.judge)

    run = JudgedRun(model, [case for case, _ in planned])
    run.collect(attempt(case, partial(one, case)) for case in run.cases)
    if options.html and options.examples:
        from bertsecrets.report.viewer import MEASURE, Examples, subjects_shown

        maps = [shelf.find(MEASURE, subject, {}) for subject in subjects_shown(run.verdicts)]
        run.examples = Examples([one for one in maps if one is not None], rows=options.examples)
    return run
