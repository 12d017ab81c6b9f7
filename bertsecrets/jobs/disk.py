"""The disk that a run takes, by what is kept of its checkpoints: said and checked before anything is trained."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.claims.schema import Case
from bertsecrets.errors import RunError
from bertsecrets.jobs.estimates import Estimator, State
from bertsecrets.jobs.plan import Job, Step, steps_of
from bertsecrets.models.kept import checkpoints
from bertsecrets.progress import in_bytes
from bertsecrets.session import Session
from bertsecrets.store.keep import KEEPS, Keep

IN_WORDS: dict[Keep, str] = {"full": "all kept", "half": "kept in 16 bits", "none": "dropped once all is measured"}


@dataclass(frozen=True)
class Disk:
    """What a plan's jobs that are left write, in bytes.

    Args:
        trainings: the number of checkpoints.
        full: bytes of one of them; `half` as kept in 16 bits.
        measurements: bytes of all of them.
        at_once: checkpoints that are trained and measured at a time.
        free: bytes of the store's disk.
    """

    trainings: int
    full: int
    half: int
    measurements: int
    at_once: int
    free: int

    def kept(self, keep: Keep) -> int:
        """Return the bytes that are kept in the end."""
        each = {"full": self.full, "half": self.half, "none": 0}[keep]
        return self.trainings * each + self.measurements

    def taken(self, keep: Keep) -> int:
        """Return the most bytes that are taken at a time: a checkpoint is whole until everything of it is measured."""
        whole = self.trainings if keep == "full" else min(self.trainings, self.at_once)
        return self.kept(keep) + (0 if keep == "full" else whole * self.full)

    def in_words(self, keep: Keep) -> str:
        """Return what is said before a run."""
        whole = self.trainings * self.full
        kept = f"; {IN_WORDS[keep]}: {in_bytes(self.kept(keep))}, and {in_bytes(self.taken(keep))} at most meanwhile"
        more = f", their measurements {in_bytes(self.measurements)}" if self.measurements else ""
        return (
            f"{checkpoints(self.trainings)} to train, {in_bytes(whole)}{more}{kept if keep != 'full' else ''}; "
            f"{in_bytes(self.free)} free"
        )

    def problem(self, keep: Keep, store: Path) -> str | None:
        """Return why a run does not fit, and what would; None if it does."""
        if self.taken(keep) <= self.free:
            return None
        less = [one for one in reversed(KEEPS[: KEEPS.index(keep)]) if self.taken(one) <= self.free]
        names = [f"--keep-checkpoints {one} ({in_bytes(self.taken(one))})" for one in less]
        ways = [*(names or ["fewer tasks or claims"]), "another --store"]
        return (
            f"{checkpoints(self.trainings)} would take {in_bytes(self.taken(keep))}, and {in_bytes(self.free)} are free"
            f" in {store}: give {' or '.join(ways)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the same as data."""
        kept = {keep: {"taken_bytes": self.taken(keep), "kept_bytes": self.kept(keep)} for keep in KEEPS}
        return {"checkpoints": self.trainings, "by_keep_checkpoints": kept, "free_bytes": self.free}


def disk(
    session: Session, steps: Sequence[Step], at_once: int | None = 1, states: Mapping[Job, State] | None = None
) -> Disk | None:
    """Return what a plan's jobs that are left write; None where the model's size or the free disk is not known.

    Args:
        at_once: jobs at a time; None if all trainings may come first.
        states: what the store has, where that is known already.
    """
    estimator = Estimator(session)
    states = estimator.states(steps) if states is None else states
    left = [step.job for step in steps if states[step.job] != "stored"]
    trainings = [job for job in left if job.measure is None]
    free = _free(session.store.root)
    if estimator.shape is None or free is None:
        return None
    measurements = sum(estimator.sizes(job)[1] or 0 for job in left if job.measure is not None)
    return Disk(
        trainings=len(trainings),
        full=estimator.shape.weights,
        half=estimator.shape.half,
        measurements=measurements,
        at_once=len(trainings) if at_once is None else at_once,
        free=free,
    )


def announce(
    session: Session,
    cases: Sequence[Case],
    seeds: Sequence[int],
    *,
    at_once: int | None = 1,
    tell: Callable[[str], None],
) -> None:
    """Say how much disk cases take on some seeds, and keep, if anything is trained for them.

    Raises:
        UserError: it is not free.
    """
    announce_steps(session, steps_of(session, cases, session.model, seeds), at_once=at_once, tell=tell)


def announce_steps(
    session: Session, steps: Sequence[Step], *, at_once: int | None = 1, tell: Callable[[str], None]
) -> None:
    """Say how much disk the jobs of a plan take and keep, if they train anything.

    Raises:
        UserError: it is not free.
    """
    needed = disk(session, steps, at_once) if any(step.job.measure is None for step in steps) else None
    if needed is None or not needed.trainings:
        return
    keep = session.options.keep
    problem = needed.problem(keep, session.store.root)
    if problem:
        raise RunError(problem)
    tell(needed.in_words(keep))


def _free(place: Path) -> int | None:
    """Return the bytes that are free where a folder is, or will be; None where it cannot be written."""
    nearest = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
    return shutil.disk_usage(nearest).free if nearest.is_dir() and os.access(nearest, os.W_OK) else None
