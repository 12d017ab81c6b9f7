"""Run the jobs that cases need, in parallel or sequentially, so that the cases can be judged from the store."""

import os
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace

import torch

from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.jobs.estimates import Costs
from bertsecrets.jobs.plan import JobResult, Plan, blocking_error, by_subject, carry_out, plan_for, remaining, states
from bertsecrets.jobs.pool import run_local
from bertsecrets.jobs.worker import JobRunner
from bertsecrets.models.memory import available_bytes
from bertsecrets.options import RunOptions
from bertsecrets.progress import log
from bertsecrets.session import Session
from bertsecrets.texts.tasks import task
from bertsecrets.types import Request

MOST_JOBS = 4096
GPU_PROCESS = 3 * 10**9  # bytes of main memory per GPU process, mostly libraries


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

    If weights are dropped, each subject is measured right after its training.
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
    costs, jobs = Costs(session), min(jobs, len(left))
    at_once = fitting(session.resources.device, {job: costs.memory(job) for job in left}, jobs)
    if at_once < jobs:
        log.info(f"not enough memory for {jobs} parallel jobs, running {at_once}")
    log.info(f"{len(left)} jobs to do, {at_once} at a time, each with --threads {session.options.threads}")
    carry_out(session, left, run_local(left, session.options, jobs=at_once))


def fitting(device: torch.device, memory: Mapping[Request, int | None], jobs: int) -> int:
    """Return how many of the largest jobs fit in free memory at the same time, from 1 to `jobs`.

    Args:
        memory: Bytes per job, in GPU memory if the device is a GPU. None if unknown.
    """
    if device.type == "cuda":
        jobs = max(1, min(jobs, available_bytes() // GPU_PROCESS))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    largest = sorted(filter(None, memory.values()), reverse=True)
    return max((count for count in range(1, jobs + 1) if sum(largest[:count]) <= free), default=1)


def _run_here(plan: Plan, runner: JobRunner) -> Generator[JobResult]:
    outcomes: dict[Request, JobResult] = {}
    for job in plan:
        error = blocking_error(job, outcomes)
        outcomes[job] = runner.run(job) if error is None else JobResult(job, error=error)
        yield outcomes[job]


def prepare_in_turn(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> None:
    """If weights are dropped, run the jobs that cases need subject by subject in this process.

    If weights are kept, jobs run on demand during judging.
    """
    if session.options.keep_checkpoints != "full":
        left = remaining(session, planned(session, cases, seeds))
        carry_out(session, left, _run_here(left, JobRunner(session.options, session)), quiet=True)


def stored_first(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> tuple[list[Case], list[Case]]:
    """Split cases into those whose measurements are all stored for these seeds, and the others."""
    plans = {str(case): plan_for(session, [case], session.model, seeds) for case in cases}
    known = states(session, {job: leader for plan in plans.values() for job, leader in plan.items()})
    ready = {name for name, plan in plans.items() if all(known[job] == "stored" for job in plan)}
    return [case for case in cases if str(case) in ready], [case for case in cases if str(case) not in ready]


def joining(session: Session, cases: Sequence[Case], tasks: Collection[str]) -> tuple[list[Case], list[Case]]:
    """Split cases into those that need new measurements only on the given tasks, and the others.

    A case over several tasks is included in a run on some of them if its measurements on the others are stored.
    """
    joined: list[Case] = []
    left_out: list[Case] = []
    for case in cases:
        others = set(case.on_tasks) - set(tasks)
        (left_out if others and not _stored_on(session, case, others) else joined).append(case)
    return joined, left_out


def _stored_on(session: Session, case: Case, tasks: Collection[str]) -> bool:
    """Return whether all measurements of a case on some tasks are stored."""
    try:
        plan = plan_for(session, [case], session.model, session.interims[0])
        known = states(session, plan)
    except UserError:
        return False
    return all(known[job] == "stored" for job in plan if job.measure is not None and job.subject.task in tasks)


def left_out_line(cases: Sequence[Case]) -> str:
    """Return a line about the cases over several tasks that are excluded from a run on some of them."""
    names = ", ".join(map(str, cases))
    subject = "1 claim over several tasks is" if len(cases) == 1 else f"{len(cases)} claims over several tasks are"
    return f"{subject} left out ({names}): they need new measurements on other tasks; select those tasks as well"
