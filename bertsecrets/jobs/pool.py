"""The jobs of a plan in several processes of this machine."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from bertsecrets.errors import RunError, UserError
from bertsecrets.jobs.plan import Outcome, Plan, waits_for
from bertsecrets.jobs.worker import serve
from bertsecrets.options import RunOptions
from bertsecrets.types import Request

ATTEMPTS = 2  # at a job whose process is killed
PATIENCE = 30.0  # seconds that a process has to clean up when the run is interrupted
SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang

Tell = Callable[[str], None]


def run_local(
    plan: Plan,
    options: RunOptions,
    *,
    jobs: int,
    tell: Tell = lambda line: None,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> dict[Request, Outcome]:
    """Make all requests of a plan in at most `jobs` worker processes, and return what became of each.

    A failed training fails the measurements of its checkpoint and no others. A job whose worker is killed is retried
    once. If this is interrupted, the workers clean up and end too.

    Args:
        plan: in the order of work, as far as requests need not wait.
        options: of the session in each worker.
        tell: receives a line for each job that has ended.
        ended: receives each outcome.
    """
    pool = _Pool(plan, options, jobs, tell, ended)
    try:
        while len(pool.outcomes) < len(plan):
            pool.begin()
            pool.wait()
    finally:
        pool.end()
    return pool.outcomes


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    request: Request | None = None


@dataclass
class _Pool:
    plan: Plan
    options: RunOptions
    jobs: int
    tell: Tell
    ended: Callable[[Outcome], None]
    workers: list[_Worker] = field(default_factory=list)
    outcomes: dict[Request, Outcome] = field(default_factory=dict)
    kills: Counter[Request] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.waiting = list(self.plan)

    def begin(self) -> None:
        """Give every free worker a job that need not wait; fail those that have become impossible."""
        self._give_up()
        for request in list(self.waiting):
            if any(other not in self.outcomes for other in waits_for(self.plan, request)):
                continue
            worker = next((one for one in self.workers if one.request is None), None)
            if worker is None:
                if len(self.workers) == self.jobs:
                    return
                worker = self._start()
            self.waiting.remove(request)
            worker.request = request
            with suppress(OSError):  # the idle worker was killed, which `wait` will notice
                worker.connection.send(request)

    def _give_up(self) -> None:
        """Fail the measurements of a checkpoint that could not be made, and everything after an error of the run."""
        fatal = next((one.error for one in self.outcomes.values() if isinstance(one.error, RunError)), None)
        for request in list(self.waiting):
            trained = self.outcomes.get(request.training) if request.training is not None else None
            error = fatal or (trained.error if trained is not None else None)
            if error is not None:
                self.waiting.remove(request)
                self.outcomes[request] = Outcome(request, error=error)

    def wait(self) -> None:
        """Wait until a job has ended, or a worker."""
        busy = [worker for worker in self.workers if worker.request is not None]
        ready = wait([worker.connection for worker in busy]) if busy else []
        for worker in busy:
            if worker.connection in ready and worker.request is not None:
                request, worker.request = worker.request, None
                try:
                    self._note(worker.connection.recv())
                except (EOFError, OSError):
                    self._lost(worker, request)

    def _note(self, outcome: Outcome) -> None:
        self.outcomes[outcome.request] = outcome
        self.tell(progress(len(self.outcomes), len(self.plan), outcome))
        self.ended(outcome)

    def _lost(self, worker: _Worker, request: Request) -> None:
        """Retry a job whose worker was killed, unless that was the second time."""
        worker.process.join()
        self.workers.remove(worker)
        worker.connection.close()
        self.kills[request] += 1
        if self.kills[request] < ATTEMPTS:
            self.tell(f"the worker of {request} was killed: retrying")
            self.waiting.insert(0, request)
            return
        code = worker.process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        advice = "if memory ran out, give a lower --jobs"
        error = UserError(f"{request}: its worker was killed {ATTEMPTS} times, {how}: {advice}")
        self._note(Outcome(request, error=error))

    def _start(self) -> _Worker:
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=serve, args=(there, self.options), daemon=False)
        process.start()
        there.close()  # so that its end is seen here
        self.workers.append(_Worker(process, here))
        return self.workers[-1]

    def end(self) -> None:
        """End all workers; those at work clean up first."""
        for worker in self.workers:
            worker.connection.close()
            if worker.request is not None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def progress(done: int, total: int, outcome: Outcome) -> str:
    """Return the line that reports a job that has ended."""
    became = f"failed: {outcome.error}" if outcome.error else f"{outcome.seconds:.0f} s"
    return f"{done} of {total}: {outcome.request}, {became if outcome.made or outcome.error else 'was stored'}"
