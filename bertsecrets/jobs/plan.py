"""Jobs: the checkpoints to train and the measurements to make that some claims need, each once, in order."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bertsecrets.claims import plan
from bertsecrets.claims.schema import Case
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.measures.registry import get_measure
from bertsecrets.session import Session
from bertsecrets.texts.tasks import ALL_TASKS
from bertsecrets.types import Measurement, Subject


@dataclass(frozen=True)
class Job:
    """A checkpoint to train or, with `measure`, a measurement to make."""

    subject: Subject
    measure: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, measure: str, subject: Subject, options: Mapping[str, Any]) -> "Job":
        """Return the job that makes a measurement: the same one for requests that have the same result."""
        own = get_measure(measure)
        given = own.check_options(dict(options)).given()
        if not own.on_task:
            subject = Subject(subject.model, ALL_TASKS, "untrained", 1)
        return cls(subject, measure, tuple(sorted(given.items())))

    @property
    def training(self) -> "Job | None":
        """The job that makes the checkpoint which this one measures; None where there is none."""
        if self.measure is None or not get_measure(self.measure).on_task:
            return None
        return Job(self.subject)

    @property
    def on_checkpoint(self) -> bool:
        """Whether it makes or measures a checkpoint."""
        return self.measure is None or self.training is not None

    def __str__(self) -> str:
        subject = self.subject
        if self.measure is None:
            what = "make" if subject.initialisation == "untrained" else "train"
        else:
            what = " ".join([f"measure {self.measure}", *(f"{name}={value}" for name, value in self.options)])
        if self.measure is not None and not get_measure(self.measure).on_task:
            return what
        return f"{what} {subject.task} {subject.initialisation} seed {subject.seed}"


@dataclass(frozen=True)
class Step:
    """A job in a plan.

    `needs` is the training that must have succeeded before; `after` is a measurement that is made before and brings
    this one along, where it can.
    """

    job: Job
    needs: Job | None = None
    after: Job | None = None

    @property
    def waits_for(self) -> tuple[Job, ...]:
        """The jobs that must have ended before this one begins."""
        return tuple(job for job in (self.needs, self.after) if job is not None)


def steps_of(bench: plan.Bench, cases: Iterable[Case], model: str, seeds: Sequence[int]) -> list[Step]:
    """Return the jobs that cases need, each once: all trainings first, and each measurement after what it waits for.

    Raises:
        MissingError: data or tools are missing for a measurement that cannot be left out.
    """
    needed = [Job.of(one.measure, subject, one.options) for _, one, subject in plan.needed(bench, cases, model, seeds)]
    measuring = list(dict.fromkeys(needed))
    training = dict.fromkeys(job.training for job in measuring if job.training is not None)
    steps = [Step(job) for job in training]
    for _, of_subject in itertools.groupby(sorted(measuring, key=_subject_key), _subject_key):
        jobs = sorted(of_subject, key=lambda job: (-_brought(job), str(job)))
        for place, job in enumerate(jobs):
            leader = next((other for other in jobs[:place] if _brings(other, job)), None)
            steps.append(Step(job, job.training, leader))
    return steps


def _subject_key(job: Job) -> tuple[str, str, int]:
    return job.subject.task, job.subject.initialisation, job.subject.seed


def _brought(job: Job) -> int:
    """Return how many other measures a measurement's pass feeds."""
    return len(get_measure(job.measure or "").companions) if not job.options else 0


def _brings(leader: Job, job: Job) -> bool:
    return not leader.options and not job.options and job.measure in get_measure(leader.measure or "").companions


# ---------------------------------------------------------------------- doing them


@dataclass(frozen=True)
class Outcome:
    """What became of a job: whether it was made now, the error if it failed, the seconds that it took."""

    job: Job
    made: bool = False
    error: Exception | None = None
    seconds: float = 0.0


def perform(session: Session, job: Job) -> bool:
    """Do a job through the session's store, and return whether it had to be made.

    Raises:
        UserError: something that is needed is missing, or cannot be made.
    """
    if job.measure is not None:
        return not session.measurement(job.measure, job.subject, **dict(job.options)).reused
    stored = session.stored_checkpoint(job.subject)
    if stored is not None and session.can_measure(stored):
        return False
    session.checkpoint(job.subject)
    return True


@dataclass
class Prepared:
    """A source of measurements whose jobs have been done: what failed there fails here at once, for the same reason."""

    session: Session
    outcomes: Mapping[Job, Outcome] = field(default_factory=dict)

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return a subject's measurement from the store; `reused` if it was there before the jobs were done.

        Raises:
            Exception: that of the job that failed.
        """
        job = Job.of(measure, subject, options)
        for one in (job.training, job):
            outcome = self.outcomes.get(one) if one is not None else None
            if outcome is not None and outcome.error is not None:
                if not isinstance(outcome.error, NotApplicableError):
                    self.session.still_needed(subject)
                raise outcome.error
        measurement = self.session.measurement(measure, subject, **options)
        made = job in self.outcomes and self.outcomes[job].made
        return replace(measurement, reused=False) if made else measurement

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return why a measure cannot be run on a task; None if it can."""
        return self.session.missing(measure, task_name)

    def shape(self, model: str) -> tuple[int, int] | None:
        """Return the numbers of a model's layers and of the heads in each; None where only measuring tells."""
        return self.session.shape(model)


@dataclass(frozen=True)
class WithAllData:
    """A source of measurements for plans: data that are not here may be on the machine that does the jobs."""

    session: Session

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Plans make nothing.

        Raises:
            UserError: always.
        """
        raise UserError(f"a plan makes no measurement {measure} of {subject}")

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return what a measure needs besides data and lacks; None if nothing."""
        resources = self.session.resources
        return next(filter(None, (need.missing(resources) for need in get_measure(measure).needs)), None)

    def shape(self, model: str) -> tuple[int, int] | None:
        """Return the numbers of a model's layers and of the heads in each; None where only measuring tells."""
        return self.session.shape(model)


def by_subject(steps: Iterable[Step]) -> list[Step]:
    """Return the same steps, but all of one subject together, so that its weights need not be kept for long."""
    grouped: dict[Subject, list[Step]] = {}
    for step in steps:
        grouped.setdefault(step.job.subject, []).append(step)
    return list(itertools.chain.from_iterable(grouped.values()))


class LettingGo:
    """What lets go of a subject's weights as soon as all its jobs of a plan have succeeded, as the session says."""

    def __init__(self, session: Session, steps: Iterable[Step]):
        self.session = session
        self.left = Counter(step.job.subject for step in steps)

    def ended(self, outcome: Outcome) -> None:
        """Note what became of a job."""
        subject = outcome.job.subject
        if outcome.error is None or isinstance(outcome.error, NotApplicableError):
            self.left[subject] -= 1
            if self.left[subject] == 0 and outcome.job.on_checkpoint:
                self.session.let_go([subject])


def chains(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the measurements of a plan in groups that one process makes best, because the first brings the others."""
    followers: dict[Job, list[Step]] = {}
    for step in steps:
        if step.job.measure is not None:
            followers.setdefault(step.after or step.job, []).append(step)
    yield from followers.values()
