"""Run the jobs that cases need, in parallel or sequentially, so that the cases can be judged from the store."""

import os
from collections.abc import Generator, Sequence
from dataclasses import replace

import torch

from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import JobResult, Plan, blocking_error, by_subject, carry_out, plan_for, remaining
from bertsecrets.jobs.pool import run_local
from bertsecrets.jobs.worker import JobRunner
from bertsecrets.options import RunOptions
from bertsecrets.progress import log
from bertsecrets.session import Session
from bertsecrets.texts.tasks import task
from bertsecrets.types import Request

MOST_JOBS = 4096


def with_share(options: RunOptions, jobs: int) -> RunOptions:
    """Return the options of a run with the number of threads per job.

    The number comes from `--threads` or OMP_NUM_THREADS. Otherwise this machine's threads are divided equally. It is
    part of the cache keys, so judging must use the same number.

    Raises:
        UserError: If the number of jobs is out of range.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise UserError(f"--jobs {jobs} is out of range: give 1 to {MOST_JOBS}")
    if options.threads is not None:
        return options
    given = bool(os.environ.get("OMP_NUM_THREADS"))
    return replace(options, threads=torch.get_num_threads() if given else max(1, torch.get_num_threads() // jobs))


def planned(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> Plan:
    """Plan the jobs for some cases and seeds, training on the largest tasks first.

    If checkpoints are deleted, each subject is measured right after its training.
    """
    plan = plan_for(session, cases, session.model, seeds)
    rows = {job: task(job.subject.task).train_rows if job.measure is None else 0 for job in plan}
    ordered = dict(sorted(plan.items(), key=lambda item: -rows[item[0]]))
    return ordered if session.options.keep_checkpoints == "full" else by_subject(ordered)


def prepare(session: Session, cases: Sequence[Case], seeds: Sequence[int], *, jobs: int) -> None:
    """Run the jobs that cases need for some seeds in parallel processes.

    Args:
        session: Session with the number of threads per job (see `with_share`).
    """
    run_in_parallel(session, planned(session, cases, seeds), jobs=jobs)


def run_in_parallel(session: Session, plan: Plan, *, jobs: int) -> None:
    """Run the remaining jobs of a plan in at most `jobs` processes."""
    left = remaining(session, plan)
    if not left:
        return
    jobs = min(jobs, len(left))
    log.info(f"{len(left)} jobs to do, {jobs} at a time, each with --threads {session.options.threads}")
    carry_out(session, left, run_local(left, session.options, jobs=jobs))


def _run_here(plan: Plan, runner: JobRunner) -> Generator[JobResult]:
    outcomes: dict[Request, JobResult] = {}
    for job in plan:
        error = blocking_error(job, outcomes)
        outcomes[job] = runner.run(job) if error is None else JobResult(job, error=error)
        yield outcomes[job]


def prepare_in_turn(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> None:
    """Run the jobs that cases need one after another in this process."""
    left = remaining(session, planned(session, cases, seeds))
    carry_out(session, left, _run_here(left, JobRunner(session.options, session)))
