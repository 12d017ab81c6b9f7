"""The jobs of a plan in several processes of this machine."""

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from bertsecrets.errors import RunError, UserError
from bertsecrets.jobs.plan import Job, Outcome, Step
from bertsecrets.jobs.worker import serve
from bertsecrets.options import RunOptions

ATTEMPTS = 2  # at a job whose process is killed
PATIENCE = 30.0  # seconds that a process has to clean up when the run is interrupted
SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang

Tell = Callable[[str], None]


def fitting(steps: Sequence[Step], memory: Mapping[Job, int | None], free: int, jobs: int) -> int:
    """Return how many of a plan's largest jobs fit into memory at once: at least 1, at most `jobs`.

    Args:
        memory: of each job, in bytes; None where it is not known.
        free: bytes.
    """
    sizes = sorted((size for step in steps if (size := memory.get(step.job))), reverse=True)[:jobs]
    fits, taken = 0, 0
    for size in sizes:
        taken += size
        if taken > free:
            break
        fits += 1
    return max(1, fits) if len(sizes) > fits else jobs


def run_local(
    steps: Sequence[Step],
    options: RunOptions,
    *,
    jobs: int,
    tell: Tell = lambda line: None,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> dict[Job, Outcome]:
    """Do all jobs of a plan, at most `jobs` at a time, each in a process of its own, and return what became of each.

    One that fails takes none with it but those that need its checkpoint. One whose process is killed is done once more.
    When this is interrupted, the processes clean up and end too.

    Args:
        steps: in the order in which they are begun, as far as they need not wait.
        options: of the session in each process.
        tell: is given a line for each job that has ended.
        ended: is given each outcome.
    """
    pool = _Pool(list(steps), options, jobs, tell, ended)
    try:
        while pool.unfinished:
            pool.begin()
            pool.wait()
    finally:
        pool.end()
    return pool.outcomes


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    step: Step | None = None


@dataclass
class _Pool:
    waiting: list[Step]
    options: RunOptions
    jobs: int
    tell: Tell
    ended: Callable[[Outcome], None]
    workers: list[_Worker] = field(default_factory=list)
    outcomes: dict[Job, Outcome] = field(default_factory=dict)
    attempts: dict[Job, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = len(self.waiting)
        self.planned = {step.job for step in self.waiting}

    @property
    def unfinished(self) -> bool:
        """Whether there are jobs left."""
        return len(self.outcomes) < self.total

    def begin(self) -> None:
        """Give every free process a job that need not wait; end those jobs that have become impossible."""
        self._give_up()
        for step in list(self.waiting):
            if any(job in self.planned and job not in self.outcomes for job in step.waits_for):
                continue
            worker = next((one for one in self.workers if one.step is None), None)
            if worker is None:
                if len(self.workers) == self.jobs:
                    return
                worker = self._start()
            self.waiting.remove(step)
            worker.step = step
            with suppress(OSError):  # it was killed while it had nothing to do, which `wait` will notice
                worker.connection.send(step.job)

    def _give_up(self) -> None:
        """End the jobs that need a checkpoint that could not be made, and all after an error that concerns all."""
        fatal = next((one.error for one in self.outcomes.values() if isinstance(one.error, RunError)), None)
        for step in list(self.waiting):
            needed = self.outcomes.get(step.needs) if step.needs is not None else None
            error = fatal or (needed.error if needed is not None else None)
            if error is not None:
                self.waiting.remove(step)
                self.outcomes[step.job] = Outcome(step.job, error=error)

    def wait(self) -> None:
        """Wait until a job has ended or a process has."""
        busy = [worker for worker in self.workers if worker.step is not None]
        if not busy:
            return
        ready = wait([worker.connection for worker in busy])
        for worker in busy:
            if worker.connection in ready and worker.step is not None:
                step, worker.step = worker.step, None
                try:
                    self._note(worker.connection.recv())
                except (EOFError, OSError):
                    self._lost(worker, step)

    def _note(self, outcome: Outcome) -> None:
        self.outcomes[outcome.job] = outcome
        self.tell(progress(len(self.outcomes), self.total, outcome))
        self.ended(outcome)

    def _lost(self, worker: _Worker, step: Step) -> None:
        """Have a job done again whose process was killed, unless that was the second time."""
        worker.process.join()
        self._drop(worker)
        done = self.attempts[step.job] = self.attempts.get(step.job, 0) + 1
        if done < ATTEMPTS:
            self.tell(f"the process of {step.job} was killed: it is started again")
            self.waiting.insert(0, step)
            return
        self._note(Outcome(step.job, error=UserError(killed(step.job, worker.process.exitcode))))

    def _start(self) -> _Worker:
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=serve, args=(there, self.options), daemon=False)
        process.start()
        there.close()  # so that its end is seen here
        self.workers.append(_Worker(process, here))
        return self.workers[-1]

    def _drop(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.connection.close()

    def end(self) -> None:
        """End all processes; those that are at work clean up first."""
        for worker in self.workers:
            worker.connection.close()
            if worker.step is not None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def progress(done: int, total: int, outcome: Outcome) -> str:
    """Return the line that says that a job has ended."""
    became = f"failed: {outcome.error}" if outcome.error else f"{outcome.seconds:.0f} s"
    return f"{done} of {total}: {outcome.job}, {became if outcome.made or outcome.error else 'was stored'}"


def killed(job: Job, code: int | None) -> str:
    """Return what is said of a job whose process was killed over and over."""
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return f"{job}: its process was ended {ATTEMPTS} times, {how}: if memory ran out, give a lower --jobs"
