"""Carrying out a plan, several jobs at a time or in turn, so that cases can be judged from the store afterwards."""

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

import torch

from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.jobs.estimates import Costs
from bertsecrets.jobs.plan import Outcome, Plan, by_subject, carry_out, failed_before, left_of, plan_for, states
from bertsecrets.jobs.pool import run_local
from bertsecrets.jobs.worker import Doing
from bertsecrets.models.memory import available_bytes
from bertsecrets.options import RunOptions
from bertsecrets.progress import log
from bertsecrets.session import Session
from bertsecrets.texts.tasks import task
from bertsecrets.types import Request

MOST_JOBS = 4096
BESIDE_GPU = 3 * 10**9  # bytes of main memory of a process that computes on a GPU, most of them the GPU's libraries


def with_share(options: RunOptions, jobs: int) -> RunOptions:
    """Return the options of a run with the number of threads of each job.

    The number of threads is part of the cache keys, so whoever judges must compute with the same one. It is what
    `--threads` or OMP_NUM_THREADS says; otherwise each job gets an equal share of this machine's.

    Raises:
        UserError: the number of jobs is out of range.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise UserError(f"--jobs {jobs} is out of range: give 1 to {MOST_JOBS}")
    if options.threads is not None:
        return options
    given = os.environ.get("OMP_NUM_THREADS", "").isdigit()
    return replace(options, threads=torch.get_num_threads() if given else max(1, torch.get_num_threads() // jobs))


def planned(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> Plan:
    """Return the plan for some cases and seeds in the order of work: the largest tasks are trained first.

    If weights are not kept, each subject is measured right after its training.
    """
    plan = plan_for(session, cases, session.model, seeds)
    rows = {one: task(one.subject.task).train_rows if one.measure is None else 0 for one in plan}
    ordered = dict(sorted(plan.items(), key=lambda item: -rows[item[0]]))
    return ordered if session.options.keep == "full" else by_subject(ordered)


def prepare(session: Session, cases: Sequence[Case], seeds: Sequence[int], *, jobs: int) -> Session:
    """Make all that cases need on some seeds in several processes, and return the session.

    Args:
        session: with the number of threads of each job (`with_share`).
    """
    left = left_of(session, planned(session, cases, seeds))
    if not left:
        return session
    costs, jobs = Costs(session), min(jobs, len(left))
    at_once = fitting(session.resources.device, {one: costs.memory(one) for one in left}, jobs)
    if at_once < jobs:
        log.info(f"not enough memory for {jobs} parallel jobs, running {at_once}")
    log.info(f"{len(left)} jobs to do, {at_once} at a time, each with --threads {session.options.threads}")
    return carry_out(session, left, run_local(left, session.options, jobs=at_once))


def fitting(device: torch.device, memory: Mapping[Request, int | None], jobs: int) -> int:
    """Return how many of the largest jobs fit into free memory at once, at least 1 and at most `jobs`.

    Args:
        memory: of each job, in bytes; None if unknown. On a GPU it is the GPU's, and each job takes main memory too.
    """
    if device.type == "cuda":
        jobs = max(1, min(jobs, available_bytes() // BESIDE_GPU))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    largest = sorted(filter(None, memory.values()), reverse=True)
    return max((count for count in range(1, jobs + 1) if sum(largest[:count]) <= free), default=1)


def prepare_share(session: Session, cases: Sequence[Case], seeds: Sequence[int], place: int, of: int) -> Session:
    """Make one of `of` shares of what cases need in this process, and return the session.

    Each of several processes that judge parts of the same cases makes its share first; the store keeps them from making
    anything twice. A share holds whole subjects.

    Args:
        place: which share, from 0.
    """
    plan = planned(session, cases, seeds)
    subjects = list(dict.fromkeys(one.subject for one in plan))[place::of]
    left = {one: leader for one, leader in left_of(session, plan).items() if one.subject in subjects}
    return carry_out(session, left, _run_here(left, Doing(session.options, session, bars=of == 1)), quiet=True)


def _run_here(plan: Plan, doing: Doing) -> Generator[Outcome]:
    outcomes: dict[Request, Outcome] = {}
    for one in plan:
        error = failed_before(one, outcomes)
        outcomes[one] = doing.of(one) if error is None else Outcome(one, error=error)
        yield outcomes[one]


def prepare_in_turn(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> Session:
    """Make what cases need subject by subject in this process if weights are dropped in between; return the session.

    If weights are kept, everything is made when it is judged.
    """
    return session if session.options.keep == "full" else prepare_share(session, cases, seeds, 0, 1)


def stored_first(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> tuple[list[Case], list[Case]]:
    """Return the cases for which everything is stored on some seeds, and the others."""
    plans = {str(case): plan_for(session, [case], session.model, seeds) for case in cases}
    known = states(session, {one: leader for plan in plans.values() for one, leader in plan.items()})
    ready = {name for name, plan in plans.items() if all(known[one] == "stored" for one in plan)}
    return [case for case in cases if str(case) in ready], [case for case in cases if str(case) not in ready]
