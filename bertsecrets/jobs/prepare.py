"""Everything that some cases need, made by several jobs at a time; then they are judged from the store."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from bertsecrets.claims.schema import Case
from bertsecrets.errors import RunError, UserError
from bertsecrets.jobs.estimates import Estimator
from bertsecrets.jobs.plan import Job, LettingGo, Outcome, Prepared, Step, by_subject, steps_of
from bertsecrets.jobs.pool import Tell, fitting, run_local
from bertsecrets.jobs.worker import Doing
from bertsecrets.models.memory import available_bytes
from bertsecrets.options import RunOptions
from bertsecrets.session import Session

MOST_JOBS = 4096
BESIDE_GPU = 3 * 10**9  # bytes of main memory of a process that computes on a GPU, most of them the GPU's libraries


def check_jobs(jobs: int) -> None:
    """Make sure that a number of jobs at a time makes sense.

    Raises:
        UserError: it does not.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise UserError(f"--jobs {jobs} is out of range: give 1 to {MOST_JOBS}")


def with_share(options: RunOptions, jobs: int) -> RunOptions:
    """Return the options of a run with the number of threads of each job.

    Results' keys hold the number of threads, so whoever judges must compute with the same one. It is what `--threads`
    or OMP_NUM_THREADS says; otherwise each job gets an equal share of this machine's.

    Raises:
        UserError: the number of jobs is out of range.
    """
    check_jobs(jobs)
    if options.threads is not None:
        return options
    given = os.environ.get("OMP_NUM_THREADS", "").isdigit()
    return replace(options, threads=torch.get_num_threads() if given else max(1, torch.get_num_threads() // jobs))


def planned(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> tuple[list[Step], Estimator]:
    """Return what cases need on some seeds, the longest trainings first, and what is known of its costs.

    Where weights are not all kept, each subject is measured right after its training.
    """
    steps = steps_of(session, cases, session.model, seeds)
    estimator = Estimator(session)
    size = {step.job: estimator.steps(step.job) if step.job.measure is None else 0 for step in steps}
    ordered = sorted(steps, key=lambda step: -size[step.job])
    return ordered if session.options.keep == "full" else by_subject(ordered), estimator


def prepare(session: Session, cases: Sequence[Case], seeds: Sequence[int], *, jobs: int, tell: Tell) -> Prepared:
    """Make all that cases need on some seeds in several processes, and return the source of measurements to judge from.

    Args:
        session: with the number of threads of each job (`with_share`).
        tell: is given lines on what happens.
    """
    steps, estimator = planned(session, cases, seeds)
    states = estimator.states(steps)
    left = [step for step in steps if states[step.job] != "stored"]
    if not left:
        return Prepared(session)
    letting_go = LettingGo(session, left)
    memory = {step.job: estimator.sizes(step.job)[0] for step in left}
    at_once = fitting_on(session.resources.device, left, memory, min(jobs, len(left)))
    if at_once < min(jobs, len(left)):
        tell(f"memory is free for {at_once} of the largest jobs at a time, not for {jobs}")
    tell(f"{len(left)} jobs to do, {at_once} at a time, each with --threads {session.options.threads}")
    return Prepared(session, run_local(left, session.options, jobs=at_once, tell=tell, ended=letting_go.ended))


def fitting_on(device: torch.device, left: Sequence[Step], memory: Mapping[Job, int | None], jobs: int) -> int:
    """Return how many of the largest jobs fit at once into a device's free memory and, on a GPU, beside it."""
    if device.type != "cuda":
        return fitting(left, memory, available_bytes(), jobs)
    on_device = fitting(left, memory, torch.cuda.mem_get_info(device)[0], jobs)
    return fitting(left, dict.fromkeys(memory, BESIDE_GPU), available_bytes(), on_device)


def prepare_share(session: Session, cases: Sequence[Case], seeds: Sequence[int], place: int, of: int) -> Prepared:
    """Make one of `of` shares of what cases need, in this process, and return the source of measurements to judge from.

    Each of several processes that judge parts of the same cases makes its share first; the store keeps them from making
    anything twice. A share holds whole subjects.

    Args:
        place: which share, from 0.
    """
    steps, estimator = planned(session, cases, seeds)
    states = estimator.states(steps)
    shares = list(dict.fromkeys(step.job.subject for step in steps))[place::of]
    own = [step for step in steps if step.job.subject in shares]
    return Prepared(session, _in_turn(session, [one for one in own if states[one.job] != "stored"], bars=of == 1))


def stored_first(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> tuple[list[Case], list[Case]]:
    """Return the cases for which nothing has to be made on some seeds, and the others."""
    needs = {str(case): steps_of(session, [case], session.model, seeds) for case in cases}
    states = Estimator(session).states(list(dict.fromkeys(step for steps in needs.values() for step in steps)))
    ready = {name for name, steps in needs.items() if all(states[step.job] == "stored" for step in steps)}
    return [case for case in cases if str(case) in ready], [case for case in cases if str(case) not in ready]


def prepare_in_turn(session: Session, cases: Sequence[Case], seeds: Sequence[int]) -> Prepared | Session:
    """Make what cases need subject by subject in this process, where weights are let go of in between.

    Where they are kept, the session makes everything when it is judged.
    """
    return session if session.options.keep == "full" else prepare_share(session, cases, seeds, 0, 1)


def _in_turn(session: Session, steps: Sequence[Step], *, bars: bool) -> dict[Job, Outcome]:
    """Do jobs one after another in this process; an error that concerns all ends them."""
    doing, letting_go = Doing(session.options, session, bars=bars), LettingGo(session, steps)
    outcomes: dict[Job, Outcome] = {}
    fatal: Exception | None = None
    for step in steps:
        failed = fatal or (outcomes[step.needs].error if step.needs in outcomes else None)
        outcome = outcomes[step.job] = Outcome(step.job, error=failed) if failed else doing.of(step.job)
        fatal = outcome.error if isinstance(outcome.error, RunError) else fatal
        letting_go.ended(outcome)
    return outcomes
