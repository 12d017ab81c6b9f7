"""Judging the claims of a command: measuring what they need, adding seeds, collecting the verdicts."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bertsecrets.progress import log

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.judging import JudgedRun, Skipped
    from bertsecrets.session import Session


def judge_cases(
    session: "Session",
    possible: Sequence["Case"],
    prepare: "Callable[[Sequence[Case], Sequence[int]], object]",
    jobs: int = 1,
    asked: Sequence["Case"] = (),
    trained_at_once: int | None = 1,
) -> "JudgedRun":
    """Return the verdicts on cases; seeds are added for open cases if the session says so.

    Cases whose measurements are stored come first. If something has to be measured, each verdict is printed at once.

    Args:
        prepare: makes what cases need on some seeds, so that the session has it.
        jobs: at a time.
        asked: the requested cases, including those that cannot be judged.
        trained_at_once: checkpoints that exist with their weights at a time if not all are kept; None for all.
    """
    from bertsecrets.claims.plan import measure_case
    from bertsecrets.jobs.disk import announce
    from bertsecrets.jobs.estimates import seed_cost
    from bertsecrets.jobs.plan import plan_for
    from bertsecrets.jobs.prepare import stored_first
    from bertsecrets.judging import JudgedRun, SeedBudget, attempt, judge_until_decided
    from bertsecrets.report.terminal import verdict_line

    run, own = JudgedRun(session.model, possible, asked), session.options.checkpoint is not None
    measures = False

    def one(case: "Case", seeds: Sequence[int]) -> "Verdict":
        return session.verdict(case, measure_case(session, case, session.model, seeds))

    def judge(cases: Sequence["Case"], seeds: Sequence[int]) -> "Iterator[Verdict | Skipped]":
        nonlocal measures
        ready, waiting = ([], list(cases)) if own else stored_first(session, cases, seeds)
        measures = measures or bool(waiting)
        yield from (attempt(case, partial(one, case, seeds)) for case in ready)
        if not waiting:
            return
        if not own:
            announce(session, plan_for(session, waiting, session.model, seeds), at_once=trained_at_once)
        prepare(waiting, seeds)
        yield from (attempt(case, partial(one, case, seeds)) for case in waiting)

    budget = SeedBudget(session.budget, seed_cost(session), at_once=jobs)
    run.collect(
        judge_until_decided(possible, judge, session.interims, budget.affords),
        lambda verdict: log.info(verdict_line(verdict)) if measures else None,
    )
    if run.ended is None:
        session.close()
    return run


def add_examples(options: argparse.Namespace, session: "Session", run: "JudgedRun") -> None:
    """Measure what the page's attention viewer shows, if the page is requested and the run has not ended early."""
    if not options.html or not options.examples or run.ended is not None:
        return
    from bertsecrets.report.viewer import Examples, subjects_shown

    try:
        run.examples = Examples(*session.example_maps(subjects_shown(run.verdicts)), options.examples)
    except KeyboardInterrupt as error:  # what is judged is shown and written
        run.ended = error
