"""The plan of a run: the checkpoints to train and the measurements to make for some claims, each once, in order."""

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertsecrets.claims import plan
from bertsecrets.claims.schema import Case
from bertsecrets.errors import NotApplicableError, RunError, UserError
from bertsecrets.measures.registry import get_measure, request
from bertsecrets.progress import log
from bertsecrets.session import Session
from bertsecrets.store.entries import entries, has_weights, read_manifest
from bertsecrets.types import Request, Subject

# Requests in the order in which they are made. The value of a measurement is another one whose forward pass yields it
# too, and which is therefore made first; otherwise None.
Plan = dict[Request, Request | None]
State = Literal["stored", "to do", "not yet"]


class PlanningSession(Session):
    """A session that plans for other machines: data that are missing here may be present there."""

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return what a measure needs besides data and lacks; None if nothing."""
        return self._missing(measure)

    @functools.cache  # noqa: B019  # lives as long as the command
    def _missing(self, measure: str) -> str | None:
        return next(filter(None, (need.missing(self.resources) for need in get_measure(measure).needs)), None)


def plan_for(bench: plan.Bench, cases: Iterable[Case], model: str, seeds: Sequence[int]) -> Plan:
    """Return the requests that cases need: all trainings first, then the measurements by subject.

    Raises:
        MissingError: data or tools are missing for a measurement that cannot be left out.
    """
    needed = plan.needed(bench, cases, model, seeds)
    measuring = list(dict.fromkeys(request(one.measure, subject, one.options) for _, one, subject in needed))
    planned: Plan = dict.fromkeys(training for one in measuring if (training := one.training) is not None)
    for _, of_subject in itertools.groupby(sorted(measuring, key=_subject_key), _subject_key):
        ordered = sorted(of_subject, key=lambda one: (-len(_companions(one)), str(one)))
        for place, one in enumerate(ordered):
            planned[one] = next((leader for leader in ordered[:place] if _yields(leader, one)), None)
    return planned


def _subject_key(one: Request) -> tuple[str, str, int]:
    return one.subject.task, one.subject.initialisation, one.subject.seed


def _companions(one: Request) -> tuple[str, ...]:
    return () if one.options else get_measure(one.measure or "").companions


def _yields(leader: Request, one: Request) -> bool:
    return not one.options and one.measure in _companions(leader)


def waits_for(planned: Plan, one: Request) -> list[Request]:
    """Return the requests of a plan that must be done before this one: its training, and the pass that yields it."""
    return [other for other in (one.training, planned[one]) if other is not None and other in planned]


def by_subject(planned: Plan) -> Plan:
    """Return the same plan with the requests of each subject together, so that its weights can be dropped early."""
    first: dict[Subject, int] = {}
    for one in planned:
        first.setdefault(one.subject, len(first))
    return dict(sorted(planned.items(), key=lambda item: first[item[0].subject]))


# ---------------------------------------------------------------------- what the store has


def states(session: Session, planned: Plan) -> dict[Request, State]:
    """Return whether the store has the result of each request.

    It is "not yet" known for a measurement whose checkpoint is still to be trained. A checkpoint without weights is to
    be trained again if a measurement of the plan needs them. Without the model or the data, results count as missing.
    """
    held = _held(session.store.root)
    known: dict[Request, State] = {}
    for one in sorted(planned, key=lambda one: one.measure is not None):
        known[one] = "to do"
        if one.training is not None and known[one.training] != "stored":
            known[one] = "not yet"
        elif (one.measure, *_subject_key(one)) in held and _stored(session, one) is not None:
            known[one] = "stored"
    needed = dict.fromkeys(one.training for one in planned if one.training is not None and known[one] != "stored")
    known |= {one: "to do" for one in needed if known[one] == "stored" and not _has_weights(session, one.subject)}
    return known


def left_of(session: Session, planned: Plan) -> Plan:
    """Return the part of a plan that the store lacks."""
    known = states(session, planned)
    return {one: leader for one, leader in planned.items() if known[one] != "stored"}


def _held(root: Path) -> set[tuple[str | None, str, str, int]]:
    """Return what the store's entries are about. Keys of anything else are not computed, since that may fetch data."""
    held = set()
    for entry in entries(root):
        with suppress(UserError, KeyError, TypeError):  # damaged, or of an earlier version
            manifest = read_manifest(entry)
            subject = manifest["subject"]
            held.add((manifest.get("measure"), subject["task"], subject["initialisation"], subject["seed"]))
    return held


def _stored(session: Session, one: Request) -> Path | None:
    try:
        if one.measure is None:
            return session.checkpoints.stored(one.subject)
        return session.measurements.stored(one)
    except UserError:
        return None


def _has_weights(session: Session, subject: Subject) -> bool:
    folder = _stored(session, Request(None, subject))
    return folder is not None and has_weights(folder)


# ---------------------------------------------------------------------- doing it


@dataclass(frozen=True)
class Outcome:
    """What became of a request: whether it was made now, the error if it failed, the seconds that it took."""

    request: Request
    made: bool = False
    error: Exception | None = None
    seconds: float = 0.0


def perform(session: Session, one: Request) -> bool:
    """Make what is requested unless the session's store has it; return whether it was made.

    Raises:
        UserError: something that is needed is missing, or cannot be made.
    """
    if one.measure is not None:
        return not session.measurement(one.measure, one.subject, **dict(one.options)).reused
    if _has_weights(session, one.subject):
        return False
    session.checkpoint(one.subject)
    return True


def carry_out(session: Session, planned: Plan, outcomes: Generator[Outcome], *, quiet: bool = False) -> Session:
    """Note in a session what becomes of the requests of a plan, and return it.

    A subject's weights are dropped, if the session does not keep them, as soon as all its requests are settled.

    Args:
        outcomes: yields one for each request; closed at the end, so that an interruption ends all workers.
        quiet: without a message for each.
    """
    left = Counter(one.subject for one in planned)
    with closing(outcomes):
        for number, outcome in enumerate(outcomes, start=1):
            became = f"failed: {outcome.error}" if outcome.error else f"{outcome.seconds:.0f} s"
            became = became if outcome.error or outcome.made else "was stored"
            level = logging.DEBUG if quiet else logging.INFO
            log.log(level, f"{number} of {len(planned)}: {outcome.request}, {became}")
            session.measurements.note(outcome.request, outcome.error, made=outcome.made)
            if outcome.error is None or isinstance(outcome.error, NotApplicableError):
                left[outcome.request.subject] -= 1
                if left[outcome.request.subject] == 0 and outcome.request.on_task:
                    session.drop_weights([outcome.request.subject])
    return session


def failed_before(request: Request, outcomes: Mapping[Request, Outcome]) -> Exception | None:
    """Return the error of the training that a request needs, or an error that concerns all requests."""
    fatal = (outcome.error for outcome in outcomes.values() if isinstance(outcome.error, RunError))
    trained = outcomes.get(request.training) if request.training is not None else None
    return next(fatal, None) or (trained.error if trained is not None else None)
