"""Plans: lists of the checkpoints to train and the measurements to make, in order and without duplicates."""

import itertools
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from bertsecrets.caches import CheckpointCache, MeasurementCache
from bertsecrets.claims import requirements
from bertsecrets.claims.eligibility import NotApplicable
from bertsecrets.claims.schema import Case
from bertsecrets.errors import NotApplicableError, RunError, UserError
from bertsecrets.measures.registry import get_measure, request
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.options import RunOptions
from bertsecrets.progress import counted, log, time_left
from bertsecrets.session import Session
from bertsecrets.texts.tasks import task
from bertsecrets.types import ALL_TASKS, Request, Subject

# The jobs in the order in which they run. Each job is mapped to its leader or to None. The leader of a measurement is a
# planned measurement that runs earlier and whose forward pass yields both measurements.
Plan = dict[Request, Request | None]


class PlanningSession(Session):
    """A session that plans jobs for other machines. It downloads nothing: those machines must already have the data."""

    def __init__(self, options: RunOptions | None = None, **given: Any):
        super().__init__(options, **given)
        self.measurements = without_network(self)
        self.checkpoints = self.measurements.checkpoints

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return what a measure lacks, or None if nothing is missing. Missing task data are ignored."""
        return super().missing(measure, ALL_TASKS)


def plan_for(bench: requirements.Bench, cases: Iterable[Case], model: str, seeds: Sequence[int]) -> Plan:
    """Return the jobs that cases need: first all training jobs, then the measurements, grouped by subject."""
    needed = requirements.needed(bench, cases, model, seeds)
    return plan_of(request(wanted.measure, subject, wanted.options) for _, wanted, subject in needed)


def plan_of(requests: Iterable[Request]) -> Plan:
    """Return the jobs for the requested measurements, in the order of `plan_for`. Duplicate requests are ignored."""
    measuring = list(dict.fromkeys(requests))
    planned: Plan = dict.fromkeys(training for job in measuring if (training := job.training) is not None)
    for _, group in itertools.groupby(sorted(measuring, key=_subject_key), _subject_key):
        ordered = sorted(group, key=lambda job: (-len(_companions(job)), str(job)))
        for place, job in enumerate(ordered):
            leaders = (leader for leader in ordered[:place] if not job.options and job.measure in _companions(leader))
            planned[job] = next(leaders, None)
    return planned


def _subject_key(job: Request) -> tuple[str, str, int]:
    return job.subject.task, job.subject.initialisation, job.subject.seed


def _companions(job: Request) -> tuple[str, ...]:
    return () if job.options else get_measure(job.measure or "").companions


def waits_for(planned: Plan, job: Request) -> list[Request]:
    """Return the planned jobs that must precede a job: the training of its checkpoint, and its leader (see `Plan`)."""
    return [other for other in (job.training, planned[job]) if other is not None and other in planned]


def trainings(planned: Iterable[Request]) -> int:
    """Return the number of jobs that train a model. Making an untrained checkpoint is also a job, but no training."""
    return sum(job.measure is None and get_initialisation(job.subject.initialisation).trains for job in planned)


def by_subject(planned: Plan) -> Plan:
    """Reorder a plan by subject, so that each subject's checkpoint can be deleted early."""
    first: dict[Subject, int] = {}
    for job in planned:
        first.setdefault(job.subject, len(first))
    return dict(sorted(planned.items(), key=lambda item: first[item[0].subject]))


# ---------------------------------------------------------------------- what is stored


def without_network(session: Session) -> MeasurementCache:
    """Return a measurement cache that looks up a session's stored measurements without downloading data."""
    rows = session.resources.rows
    local = replace(session.resources, rows=replace(rows, source=replace(rows.source, offline=True)))
    return MeasurementCache(CheckpointCache(session.store, local, session.ref))


def remaining(session: Session, planned: Plan) -> Plan:
    """Return the jobs of a plan whose results are not stored. A training job is kept only if a measurement needs it.

    If the model or data of a job is not available, its result counts as not stored.
    """
    left = {job: leader for job, leader in planned.items() if not _is_stored(session.measurements, job)}
    needed = {job.training for job in left}
    return {job: leader for job, leader in left.items() if job.measure is not None or job in needed}


def _is_stored(cache: MeasurementCache, job: Request) -> bool:
    try:
        if job.measure is None:
            return cache.checkpoints.find(job.subject, verify=False) is not None
        return cache.stored(job) is not None
    except UserError:
        return False


def split_by_stored_tasks(session: Session, cases: Sequence[Case], tasks: Collection[str]) -> tuple[list[Case], str]:
    """Return the cases that need new measurements only on the given tasks, and a line about the cases left out.

    A case is kept if all measurements that it needs on other tasks are already stored. If all cases are kept, as when
    no tasks are given or `all` is among them, the line is empty.
    """
    if not tasks or ALL_TASKS in tasks:
        return list(cases), ""
    cache = without_network(session)
    others = {str(case): set(case.on_tasks) - set(tasks) for case in cases}
    kept = [c for c in cases if not others[str(c)] or _stored_on(session, cache, c, others[str(c)])]
    return kept, left_out_line([case for case in cases if case not in kept])


def _stored_on(session: Session, cache: MeasurementCache, case: Case, tasks: Collection[str]) -> bool:
    try:
        if isinstance(session.eligibility(case), NotApplicable):
            return True
        planned = plan_for(session, [case], session.model, session.interims[0])
    except UserError:
        return False
    wanted = [job for job in planned if job.measure is not None and job.subject.task in tasks]
    # Small tasks come first, because computing a cache key reads all rows of the task.
    wanted.sort(key=lambda job: task(job.subject.task).train_rows)
    return all(_is_stored(cache, job) for job in wanted)


def left_out_line(cases: Sequence[Case]) -> str:
    """Return a line that says which cases are left out and why. If no cases are left out, the line is empty."""
    if not cases:
        return ""
    names = ", ".join(map(str, cases))
    return (
        f"{counted(len(cases), 'claim')} left out ({names}), because they need measurements on tasks that are not "
        "selected: to judge these claims, select all of their tasks"
    )


# ---------------------------------------------------------------------- execution


@dataclass(frozen=True)
class JobResult:
    """The outcome of a job: whether it made anything new, its error if it failed, and how many seconds it took."""

    request: Request
    made: bool = False
    error: Exception | None = None
    seconds: float = 0.0


def perform(session: Session, job: Request) -> bool:
    """Run a job unless its result is stored, and return whether it ran."""
    if job.measure is not None:
        return not session.measurement(job.measure, job.subject, **dict(job.options)).reused
    if _is_stored(session.measurements, job):
        return False
    session.checkpoint(job.subject)
    return True


def carry_out(session: Session, planned: Plan, outcomes: Generator[JobResult]) -> None:
    """Record the outcomes of a plan in a session.

    An interruption closes the generator `outcomes`, which stops all workers. If the session keeps no checkpoints, a
    subject's checkpoint is deleted once all of its jobs have succeeded.
    """
    jobs_left, began = Counter(job.subject for job in planned), time.monotonic()
    with closing(outcomes):
        for number, outcome in enumerate(outcomes, start=1):
            subject = outcome.request.subject
            result = f"failed: {outcome.error}" if outcome.error else f"{outcome.seconds:.0f} s"
            result = result if outcome.error or outcome.made else "already stored"
            log.info(f"{number} of {len(planned)}: {outcome.request}, {result}{time_left(began, number, len(planned))}")
            session.measurements.note(outcome.request, outcome.error, made=outcome.made)
            if outcome.error is None or isinstance(outcome.error, NotApplicableError):
                jobs_left[subject] -= 1
                if jobs_left[subject] == 0 and outcome.request.on_task:
                    session.delete_checkpoints([subject])


def blocking_error(job: Request, outcomes: Mapping[Request, JobResult]) -> Exception | None:
    """Return the error that blocks a job, if any: an error that ends the run, or one in the training that it needs."""
    fatal = (outcome.error for outcome in outcomes.values() if isinstance(outcome.error, RunError))
    trained = outcomes.get(job.training) if job.training is not None else None
    return next(fatal, None) or (trained.error if trained is not None else None)
