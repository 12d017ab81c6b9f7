"""Parallel execution of jobs in processes on this machine."""

import multiprocessing
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType

from bertsecrets.errors import UserError
from bertsecrets.jobs.plan import JobResult, Plan, blocking_error, waits_for
from bertsecrets.jobs.worker import serve
from bertsecrets.options import RunOptions
from bertsecrets.progress import log
from bertsecrets.types import Request

JOB_ATTEMPTS = 2  # attempts to run a job whose worker is killed
CLEANUP_SECONDS = 30.0  # seconds for a worker to clean up after an interruption
SPAWN_CONTEXT = multiprocessing.get_context("spawn")  # forking a process with threads may hang


def run_local(plan: Plan, options: RunOptions, *, jobs: int, folder: str = ".") -> Generator[JobResult]:
    """Run all jobs of a plan in at most `jobs` worker processes, and yield their outcomes.

    Relative paths in the options start at `folder`, which becomes the working directory of the workers.
    If a training job fails, only the measurements of its checkpoint fail. A job whose worker is killed is retried once.
    When the generator is closed or interrupted, the workers clean up and exit.
    """
    pool = _Pool(plan, options, jobs, folder)
    try:
        while len(pool.outcomes) < len(plan):
            for outcome in (*pool.begin(), *pool.wait()):
                pool.outcomes[outcome.request] = outcome
                yield outcome
    finally:
        pool.end()


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
    folder: str
    workers: list[_Worker] = field(default_factory=list)
    outcomes: dict[Request, JobResult] = field(default_factory=dict)
    kills: Counter[Request] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.waiting = list(self.plan)

    def begin(self) -> Iterator[JobResult]:
        """Assign a ready job to every free worker, and yield the outcomes of jobs that can no longer run."""
        for request in list(self.waiting):
            error = blocking_error(request, self.outcomes)
            if error is not None:
                self.waiting.remove(request)
                yield JobResult(request, error=error)
            elif all(other in self.outcomes for other in waits_for(self.plan, request)):
                worker = next((idle for idle in self.workers if idle.request is None), None)
                if worker is None and len(self.workers) < self.jobs:
                    worker = self._start()
                if worker is not None:
                    self.waiting.remove(request)
                    worker.request = request
                    with suppress(OSError):  # the idle worker was killed; `wait` notices
                        worker.connection.send(request)

    def wait(self) -> Iterator[JobResult]:
        """Wait until a job or a worker finishes, and yield the outcomes."""
        busy = [worker for worker in self.workers if worker.request is not None]
        ready = wait([worker.connection for worker in busy]) if busy else []
        for worker in busy:
            if worker.connection in ready and worker.request is not None:
                request, worker.request = worker.request, None
                try:
                    yield worker.connection.recv()
                except (EOFError, OSError):
                    yield from self._lost(worker, request)

    def _lost(self, worker: _Worker, request: Request) -> Iterator[JobResult]:
        """Retry a job whose worker was killed, or yield an error if the job has no attempts left."""
        worker.process.join()
        self.workers.remove(worker)
        worker.connection.close()
        self.kills[request] += 1
        if self.kills[request] < JOB_ATTEMPTS:
            log.info(f"the worker of {request} was killed: retrying")
            self.waiting.insert(0, request)
            return
        code = worker.process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        advice = f"if memory ran out, try --jobs {max(1, self.jobs // 2)} --threads {self.options.threads}"
        yield JobResult(
            request, error=UserError(f"{request}: its worker was killed {JOB_ATTEMPTS} times, {how}: {advice}")
        )

    def _start(self) -> _Worker:
        here, there = SPAWN_CONTEXT.Pipe()
        process = SPAWN_CONTEXT.Process(target=serve, args=(there, self.options), daemon=False)
        with _other_main_module(), chdir(self.folder):  # workers inherit the working directory
            process.start()
        there.close()  # so that the connection closes when the worker exits
        self.workers.append(_Worker(process, here))
        return self.workers[-1]

    def end(self) -> None:
        """Stop all workers; workers that are running a job clean up first."""
        for worker in self.workers:
            worker.connection.close()
            if worker.request is not None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(CLEANUP_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


@contextmanager
def _other_main_module() -> Iterator[None]:
    """Hide the main module inside the block. Otherwise, new processes would import a script and run it again."""
    main_module, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main_module
