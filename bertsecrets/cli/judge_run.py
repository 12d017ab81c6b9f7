"""Shared code of `report`, `plan` and `run`: select claims, open a session, judge."""

import argparse
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bertsecrets.errors import MissingError, UserError, one_line
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_run_options
from bertsecrets.progress import counted, log, time_left
from bertsecrets.texts.tasks import ALL_TASKS, task

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bertsecrets.claims.schema import Case
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.judging import JudgedRun, Skipped
    from bertsecrets.report.viewer import Examples
    from bertsecrets.session import Session

SELECTION = (*ROW_OPTIONS, "seeds", "budget", "keep_checkpoints", "frames", "spacy")


def add_selection(parser: argparse.ArgumentParser, names: Collection[str] = SELECTION) -> None:
    """Add the options that select claims, and the options of the run that measures them."""
    parser.add_argument(
        "--task",
        action="append",
        help="judge claims on this task, including those about the bare encoder; repeatable. `all` selects only claims "
        "about the bare encoder and claims across tasks (default: all tasks with data)",
    )
    parser.add_argument(
        "--claim",
        action="append",
        metavar="ID",
        help="judge this claim or family only: D1, D1-random, D1-rte, D1-rte-random or D; repeatable",
    )
    add_run_options(parser, names)


def selected(options: argparse.Namespace) -> tuple[list["Case"], list[str]]:
    """Return the cases selected by `--task` and `--claim`, and the named tasks.

    Raises:
        UserError: If a task or claim is unknown.
    """
    from bertsecrets.claims.schema import select_cases

    tasks = [ALL_TASKS if name == ALL_TASKS else task(name).name for name in options.task or ()]
    chosen = select_cases(options.claim or (), tasks)
    if getattr(options, "checkpoint", None) is not None:  # a checkpoint is judged on its own task
        chosen = [case for case in chosen if case.task in tasks]
    return chosen, tasks


def joined(
    session: "Session", chosen: Sequence["Case"], tasks: Sequence[str], tell: Callable[[str], object] = print
) -> list["Case"]:
    """Return the chosen cases, except those that need new measurements on tasks that the user did not name.

    Args:
        tell: Function that is called with a line about the excluded cases.
    """
    from bertsecrets.jobs.plan import joining, left_out_line

    if not tasks or ALL_TASKS in tasks:
        return list(chosen)
    cases, left_out = joining(session, chosen, tasks)
    if left_out:
        tell(left_out_line(left_out))
    return cases


def open_session(options: RunOptions, chosen: Sequence["Case"], tasks: Sequence[str]) -> tuple["Session", "JudgedRun"]:
    """Return a session, and a run of the chosen cases that can be judged with the model and data.

    Prints a line for cases with other missing inputs.

    Args:
        tasks: Tasks that the user named.

    Raises:
        UserError: If nothing can be judged, or a named task has no data.
    """
    from bertsecrets.claims.requirements import reads_model, reads_rows
    from bertsecrets.judging import JudgedRun, skipped
    from bertsecrets.session import Session

    session = Session(options)
    if not chosen or any(map(reads_model, chosen)):
        session.check_model()
    of_model = [case for case in chosen if session.applies_to(case)]
    if chosen and not of_model:
        raise UserError(
            f"{chosen[0]} applies only to {' and '.join(chosen[0].claim.architectures)}: choose such a model with "
            "--model"
        )
    of_model = joined(session, of_model, tasks)
    problems = {
        name: session.resources.rows.missing(name) for name in {case.task for case in chosen if reads_rows(case)}
    }
    for name in tasks:
        if problem := problems.get(name):
            raise UserError(problem)
    requested = [case for case in of_model if not (reads_rows(case) and problems[case.task])]
    possible, lacking = session.possible(requested)
    for reason, names in lacking.items():
        print(skipped(names, reason))
    if not possible:
        raise UserError(
            f"nothing to judge for {session.model}: no claim matches --task and --claim, "
            "or its data are missing (see bertsecrets doctor)"
        )
    return session, JudgedRun(session.model, possible, requested)


def judge_cases(
    session: "Session",
    run: "JudgedRun",
    runner: "AbstractContextManager[Callable[[Sequence[Case], Sequence[int]], object]] | None",
) -> None:
    """Judge the cases of a run. If the session adds seeds, continue until each case is decided.

    Cases with stored measurements are judged first, slow ones last. If anything is measured, verdicts are printed one
    by one.

    Args:
        runner: Yields a function that makes the measurements for the given cases and seeds. Entered only if some are
            not stored, and before they are announced. None if measurements are made as claims need them.
    """
    from bertsecrets.claims.requirements import is_slow
    from bertsecrets.jobs.plan import is_stored, stored_first
    from bertsecrets.judging import Analyses, SeedBudget, attempt

    trains = session.options.checkpoint is None
    progress: ClaimProgress | None = None
    prepare: Callable[[Sequence[Case], Sequence[int]], object] | None = None

    def verdict(case: "Case", seeds: Sequence[int]) -> "Verdict":
        return session.verdict(case, session.measure_case(case, seeds))

    def results() -> "Iterator[Verdict | Skipped]":
        nonlocal progress, prepare
        for cases, seeds in analyses:
            ready, waiting = stored_first(session, cases, seeds) if trains else ([], list(cases))
            waiting.sort(key=is_slow)
            progress = ClaimProgress(len(cases), stored=True) if waiting else None
            yield from (analyses.add(attempt(case, partial(verdict, case, seeds))) for case in ready)
            if waiting:
                if runner is not None and prepare is None:
                    prepare = running.enter_context(runner)
                announce(session, waiting, seeds)
                if prepare is not None:
                    prepare(waiting, seeds)
                if progress is not None:
                    progress.began = time.monotonic()
                yield from (analyses.add(attempt(case, partial(verdict, case, seeds))) for case in waiting)

    budget = SeedBudget(session.budget, partial(is_stored, session))
    analyses = Analyses(run.cases, session.interims, budget.affords)
    with ExitStack() as running:
        run.collect(results(), lambda result: progress.tell(result) if progress is not None else None)
    if run.ended is None:
        session.close()


def announce(session: "Session", cases: Sequence["Case"], seeds: Sequence[int]) -> None:
    """Log what is about to be measured: claims, jobs, checkpoints to train and their precision, the model's shape.

    Nothing is logged if everything is stored. No weights are read.

    Raises:
        RunError: If the store cannot be written.
    """
    from bertsecrets.claims.requirements import problem_in_advance
    from bertsecrets.jobs.plan import plan_for, remaining
    from bertsecrets.store.files import check_writable

    cases = [case for case in cases if problem_in_advance(session, case, session.model) is None]
    line = f"{counted(len(cases), 'claim')} to judge on {session.model}"
    if (shape := session.shape(session.model)) is not None:
        line += f" ({shape[0]} layers x {shape[1]} heads)"
    if session.options.checkpoint is None:
        left = remaining(session, plan_for(session, cases, session.model, seeds))
        if not left:
            return
        check_writable(session.store.root)
        trainings = sum(job.measure is None for job in left)
        line += f" with {counted(len(seeds), 'seed')}: {counted(len(left), 'job')} to run"
        if trainings:
            precision = session.settings.finetune.precision
            line += f", including {counted(trainings, 'checkpoint')} to train in {precision}"
    log.info(line)


class ClaimProgress:
    """Logs each claim: how many are done, its verdict and, if it was measured, the time left at the rate so far."""

    def __init__(self, total: int, *, stored: bool = False):
        """
        Args:
            stored: Whether to log verdicts whose measurements all came from the store.
        """
        self.total, self.stored, self.done, self.measured = total, stored, 0, 0
        self.began = time.monotonic()

    def tell(self, verdict: "Verdict") -> None:
        """Count a verdict and log it."""
        from bertsecrets.report.terminal import verdict_line

        self.done += 1
        stored = bool(verdict.measurements) and verdict.reused
        if verdict.outcome == "not applicable" or (stored and not self.stored):
            return
        self.measured += not stored
        left = "" if stored else time_left(self.began, self.measured, self.measured + self.total - self.done)
        log.info(f"{self.done} of {self.total} claims: {verdict_line(verdict)}{left}")


def add_examples(options: argparse.Namespace, session: "Session", run: "JudgedRun") -> None:
    """Measure the maps for the page's attention viewer if a page is requested and the run is complete."""
    if not options.html or not options.examples or run.ended is not None:
        return
    try:
        run.examples = find_examples(session, run.verdicts, options.examples)
    except KeyboardInterrupt as error:  # verdicts are still shown and written
        run.ended = error


def find_examples(session: "Session", verdicts: "Sequence[Verdict]", rows: int) -> "Examples":
    """Return the data of the page's attention viewer, with a line for each checkpoint without maps.

    No checkpoints are trained for this.

    Args:
        rows: Number of examples per task.
    """
    from bertsecrets.report.viewer import MEASURE, Examples, subjects_shown
    from bertsecrets.types import Request

    measurements, problems = [], []
    for subject in subjects_shown(verdicts):
        try:
            made = session.measurements.stored(Request(MEASURE, subject)) or session.checkpoints.find(
                subject, verify=False
            )
            if session.options.checkpoint is None and not made:
                raise MissingError("its checkpoint was not kept")
            measurements.append(session.measurement(MEASURE, subject))
        except UserError as error:
            problems.append(f"{subject}: {one_line(error)}")
    return Examples(measurements, problems, rows)
