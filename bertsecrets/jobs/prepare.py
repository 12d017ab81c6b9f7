"""Planning and execution of a run's jobs, in parallel or one after another, with a log of the progress."""

import itertools
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial

from bertsecrets.claims.requirements import is_slow, takes_many_passes
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import (
    JobResult,
    Plan,
    blocking_error,
    by_subject,
    carry_out,
    plan_for,
    remaining,
    trainings,
    waits_for,
)
from bertsecrets.jobs.pool import run_local
from bertsecrets.jobs.worker import JobRunner
from bertsecrets.judging import Runner
from bertsecrets.models.configuration import open_config
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.memory import available_bytes
from bertsecrets.progress import counted, log, time_left
from bertsecrets.report.terminal import verdict_line
from bertsecrets.session import Session
from bertsecrets.store.files import check_writable
from bertsecrets.texts.tasks import task
from bertsecrets.types import Request

WORKER_BYTES = 600 * 2**20  # libraries and data of a worker
Work = AbstractContextManager[Callable[[Plan], None]]  # yields a function that carries out a plan


def run_jobs(session: Session, plan: Plan) -> None:
    """Run the jobs of a plan in worker processes, or in this process if only one can run at a time."""
    check_writable(session.store.root)
    jobs = _concurrent_jobs(session, plan)
    if jobs == 1:
        return carry_out(session, plan, _run_here(plan, JobRunner(session.options, session)))
    log.info(f"{counted(len(plan), 'job')} to do, {jobs} at a time, each with --threads {session.options.threads}")
    carry_out(session, plan, run_local(plan, session.options, jobs=jobs, folder=session.folder))


def _concurrent_jobs(session: Session, plan: Plan) -> int:
    """Return how many jobs run at once: as many as the user said or, otherwise, as fit in memory."""
    if all(before in waits_for(plan, job) for before, job in itertools.pairwise(plan)):
        return 1
    jobs, config = min(session.jobs, len(plan)), None
    with suppress(UserError):  # not all jobs need the model
        config = open_config(session.ref(session.model))
    if jobs == 1 or session.options.wanted_jobs is not None or config is None:
        return jobs
    names = ("hidden_size", "num_hidden_layers", "vocab_size")
    width, layers, words = (getattr(config, name, None) or 0 for name in names)
    tokens = session.settings.finetune.batch_size * session.settings.finetune.max_length
    # For the weights, their gradients and AdamW's two moments, and for the activations of all layers.
    values = 4 * width * (words + 12 * layers * width) + 23 * layers * tokens * width
    return max(1, min(jobs, available_bytes() // (WORKER_BYTES + 4 * values)))


def _run_here(plan: Plan, runner: JobRunner) -> Generator[JobResult]:
    outcomes: dict[Request, JobResult] = {}
    for job in plan:
        error = blocking_error(job, outcomes)
        outcomes[job] = runner.run(job) if error is None else JobResult(job, error=error)
        yield outcomes[job]


def _rank(job: Request) -> tuple[int, int, bool]:
    """Return a sort key. Long jobs, and jobs that others wait for, come first, so that no core is idle at the end."""
    initialisation = get_initialisation(job.subject.initialisation)
    rows = task(job.subject.task).train_rows if job.on_task else 0
    if job.measure is None:
        return (0 if initialisation.trains and initialisation.trains_encoder else 2), -rows, not initialisation.loads
    return (1, -rows, False) if takes_many_passes(job.measure) else (3, 0, False)


class PlannedRunner(Runner):
    """A runner that looks up stored results, announces and runs the remaining jobs, and logs each verdict.

    At the end of a complete run, checkpoints are deleted if the session does not keep them.
    """

    def __init__(self, session: Session, work: Work | None = None):
        """
        Args:
            work: Context manager that yields a function to carry out a plan. It is entered before the first jobs are
                announced. By default, jobs run on this machine. If only one job may run at a time and the session keeps
                checkpoints, no job runs in advance: each measurement is made when a claim needs it.
        """
        self.session, self.running = session, ExitStack()
        self.carry_out: Callable[[Plan], None] | None = None
        planned = session.jobs > 1 or session.options.keep_checkpoints != "full"
        self.work = work or (nullcontext(partial(run_jobs, session)) if planned else None)
        self.trains = session.options.checkpoint is None
        self.plans: dict[str, Plan] = {}  # jobs of each case
        self.left: set[Request] = set()  # jobs that have not run yet

    def split(self, cases: Sequence[Case], seeds: Sequence[int]) -> tuple[list[Case], list[Case]]:
        """Return the cases whose measurements are all stored, and the other cases, in which slow cases come last."""
        plans = {str(case): self._plan([case], seeds) for case in cases}
        left = remaining(self.session, {job: leader for plan in plans.values() for job, leader in plan.items()})
        stored = {name for name, plan in plans.items() if not left.keys() & plan.keys()}
        waiting = [case for case in cases if str(case) not in stored]
        if waiting:
            check_writable(self.session.store.root)
        self.total, self.done, self.tells = len(cases), 0, bool(waiting)
        self.began, self.plans, self.left, self.jobs = time.monotonic(), plans, {*left}, len(left)
        return [case for case in cases if str(case) in stored], sorted(waiting, key=is_slow)

    def _plan(self, cases: Sequence[Case], seeds: Sequence[int]) -> Plan:
        """Plan the jobs, with long jobs first. If checkpoints are not kept, the jobs of each subject stay together."""
        plan = plan_for(self.session, cases, self.session.model, seeds)
        if not self.trains:
            return {job: leader for job, leader in plan.items() if self._is_about_checkpoint(job)}
        ordered = dict(sorted(plan.items(), key=lambda item: _rank(item[0])))
        return ordered if self.session.options.keep_checkpoints == "full" else by_subject(ordered)

    def _is_about_checkpoint(self, job: Request) -> bool:
        """Return whether a job measures the judged checkpoint. Errors in other jobs are raised during judging."""
        try:
            return job.measure is not None and bool(self.session.measurements.key(job))
        except UserError:
            return False

    def is_stored(self, cases: Sequence[Case], seed: int) -> bool:
        return not remaining(self.session, self._plan(cases, [seed]))

    def prepare(self, cases: Sequence[Case], seeds: Sequence[int]) -> None:
        """Log what is about to be measured, and run the jobs."""
        self.began = time.monotonic()
        left = remaining(self.session, self._plan(cases, seeds))
        if not left:
            return
        if self.work is not None and self.carry_out is None:
            self.carry_out = self.running.enter_context(self.work)
        log.info(self._announcement(cases, seeds, left))
        if self.carry_out is not None:
            self.carry_out(left)
            self.left.clear()

    def _announcement(self, cases: Sequence[Case], seeds: Sequence[int], left: Plan) -> str:
        """Return a line with the numbers of claims, jobs and trainings, the precision, and the shape of the model."""
        session = self.session
        line = f"{counted(len(cases), 'claim')} to judge on {session.model}"
        if session.shape is not None:
            line += f" ({session.shape[0]} layers x {session.shape[1]} heads)"
        if self.trains:
            line += f" with {counted(len(seeds), 'seed')}: {counted(len(left), 'job')} to run"
        if number := trainings(left):
            precision = session.settings.finetune.precision
            line += f", including {counted(number, 'training')} in {precision}"
        return line

    def tell(self, verdict: Verdict) -> None:
        """Log a verdict, the number of claims done and, after new measurements, the time left for the other jobs."""
        self.done += 1
        self.left -= self.plans[str(verdict.case)].keys()
        if verdict.outcome == "not applicable" or not self.tells:
            return
        stored = bool(verdict.measurements) and verdict.reused
        ended = self.jobs - len(self.left)
        left = time_left(self.began, ended, self.jobs) if ended and not stored else ""
        log.info(f"{self.done} of {self.total} claims: {verdict_line(verdict)}{left}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Release the workers and, if the run is complete, delete checkpoints that are not kept."""
        self.running.close()
        if kind is None:
            self.session.close()
