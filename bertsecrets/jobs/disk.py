"""The disk that a plan takes: announced, and checked, before anything is trained."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import RunError
from bertsecrets.jobs.estimates import Costs
from bertsecrets.jobs.plan import Plan, State, states
from bertsecrets.progress import in_bytes, log
from bertsecrets.session import Session
from bertsecrets.types import KEEPS, Keep, Request


@dataclass(frozen=True)
class Disk:
    """What the requests of a plan that are left write.

    Args:
        trainings: the number of checkpoints.
        checkpoint, measurements: bytes of one checkpoint, and of all measurements.
        at_once: checkpoints that are trained and measured at a time.
        free: bytes of the store's disk.
    """

    trainings: int
    checkpoint: int
    measurements: int
    at_once: int
    free: int

    def kept(self, keep: Keep) -> int:
        """Return the bytes that are left at the end."""
        return self.measurements + (0 if keep == "none" else self.trainings * self.checkpoint)

    def taken(self, keep: Keep) -> int:
        """Return the most bytes that are taken at a time: weights are kept until everything is measured."""
        return self.measurements + self.checkpoint * min(self.trainings, self.at_once if keep == "none" else 10**9)

    def described(self, keep: Keep) -> str:
        """Return the line that announces a run."""
        more = f" and {in_bytes(self.measurements)} of measurements" if self.measurements else ""
        dropped = f"; at most {in_bytes(self.taken(keep))} at a time" if keep == "none" else ""
        return (
            f"{self.checkpoints} to train, {in_bytes(self.trainings * self.checkpoint)}{more}{dropped}; "
            f"{in_bytes(self.free)} free"
        )

    def problem(self, keep: Keep, store: Path) -> str | None:
        """Return why a run does not fit, and what would; None if it does."""
        if self.taken(keep) <= self.free:
            return None
        drop = keep != "none" and self.taken("none") <= self.free
        advice = f"--keep-checkpoints none ({in_bytes(self.taken('none'))})" if drop else "fewer tasks or claims"
        return (
            f"{self.checkpoints} would take {in_bytes(self.taken(keep))}, and {in_bytes(self.free)} are free in {store}"
            f": give {advice} or another --store"
        )

    @property
    def checkpoints(self) -> str:
        """The number of checkpoints with its noun."""
        return f"{self.trainings} checkpoint{'s' if self.trainings != 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        """Return the same as data."""
        by_keep = {keep: {"taken_bytes": self.taken(keep), "kept_bytes": self.kept(keep)} for keep in KEEPS}
        return {"checkpoints": self.trainings, "by_keep_checkpoints": by_keep, "free_bytes": self.free}


def disk(
    session: Session, planned: Plan, at_once: int | None = 1, known: Mapping[Request, State] | None = None
) -> Disk | None:
    """Return what a plan's requests that are left write; None if the model's size or the free disk is unknown.

    Args:
        at_once: jobs at a time; None if all trainings may come first.
        known: the requests' states, if they are known already.
    """
    costs, free = Costs(session), _free(session.store.root)
    if free is None or costs.model is None:
        return None
    known = known or states(session, planned)
    sizes = {one: costs.disk(one) or 0 for one in planned if known[one] != "stored"}
    trainings = [size for one, size in sizes.items() if one.measure is None]
    measurements = sum(sizes.values()) - sum(trainings)
    return Disk(len(trainings), max(trainings, default=0), measurements, at_once or len(trainings), free)


def announce(session: Session, planned: Plan, *, at_once: int | None = 1) -> None:
    """Say how much disk the requests of a plan take, if they train anything.

    Raises:
        UserError: it is not free.
    """
    needed = disk(session, planned, at_once) if any(one.measure is None for one in planned) else None
    if needed is None or not needed.trainings:
        return
    keep = session.options.keep
    if (problem := needed.problem(keep, session.store.root)) is not None:
        raise RunError(problem)
    log.info(needed.described(keep))


def _free(place: Path) -> int | None:
    """Return the bytes that are free where a folder is, or will be; None if it cannot be written."""
    nearest = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
    return shutil.disk_usage(nearest).free if nearest.is_dir() and os.access(nearest, os.W_OK) else None
