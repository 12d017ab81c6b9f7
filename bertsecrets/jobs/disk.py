"""Estimate the disk space that a run needs, and refuse a run that does not fit."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import RunError
from bertsecrets.jobs.estimates import JobEstimate
from bertsecrets.progress import in_bytes
from bertsecrets.session import Session
from bertsecrets.types import KEEPS, Keep


@dataclass(frozen=True)
class Disk:
    """The disk space needed by the remaining jobs of a plan, in bytes.

    Args:
        trainings: Number of checkpoints to train.
        checkpoint, measurements: Size of one checkpoint, and of all measurements.
        at_once: Number of checkpoints that exist at the same time if weights are dropped.
        free: Free space on the store's disk.
    """

    trainings: int
    checkpoint: int
    measurements: int
    at_once: int
    free: int

    def at_end(self, keep: Keep) -> int:
        """Return the disk usage at the end of the run."""
        return self.measurements + (0 if keep == "none" else self.trainings * self.checkpoint)

    def peak(self, keep: Keep) -> int:
        """Return the peak disk usage during the run."""
        at_once = min(self.trainings, self.at_once) if keep == "none" else self.trainings
        return self.measurements + self.checkpoint * at_once

    def announcement(self, keep: Keep) -> str:
        """Return the message to show before a run."""
        measurements = f" and {in_bytes(self.measurements)} of measurements" if self.measurements else ""
        peak = f"; at most {in_bytes(self.peak(keep))} at a time" if keep == "none" else ""
        return (
            f"{self._checkpoints} to train, {in_bytes(self.trainings * self.checkpoint)}{measurements}{peak}; "
            f"{in_bytes(self.free)} free"
        )

    def problem(self, keep: Keep, store: Path) -> str | None:
        """Return why a run does not fit on the disk, with advice, or None if it fits."""
        if self.peak(keep) <= self.free:
            return None
        drop = keep != "none" and self.peak("none") <= self.free
        advice = f"--keep-checkpoints none ({in_bytes(self.peak('none'))})" if drop else "fewer tasks or claims"
        return (
            f"{self._checkpoints} would take {in_bytes(self.peak(keep))}, but only {in_bytes(self.free)} is free in "
            f"{store}: use {advice} or another --store"
        )

    @property
    def _checkpoints(self) -> str:
        return f"{self.trainings} checkpoint{'s' if self.trainings != 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON data."""
        by_keep = {keep: {"taken_bytes": self.peak(keep), "kept_bytes": self.at_end(keep)} for keep in KEEPS}
        return {"checkpoints": self.trainings, "by_keep_checkpoints": by_keep, "free_bytes": self.free}


def disk(store: Path, estimates: Sequence[JobEstimate], at_once: int | None = 1) -> Disk | None:
    """Return the disk space needed by the remaining jobs; None if unknown.

    Args:
        at_once: Number of parallel jobs. None if all training jobs may run first.
    """
    store = store.absolute()
    nearest = next(folder for folder in (store, *store.parents) if folder.exists())
    left = [job for job in estimates if job.state != "stored"]
    sizes = [job.disk for job in left if job.disk is not None]
    if len(sizes) < len(left) or not nearest.is_dir() or not os.access(nearest, os.W_OK):
        return None
    trainings = [job.disk or 0 for job in left if job.request.measure is None]
    return Disk(
        trainings=len(trainings),
        checkpoint=max(trainings, default=0),
        measurements=sum(sizes) - sum(trainings),
        at_once=at_once or len(trainings),
        free=shutil.disk_usage(nearest).free,
    )


def announcement(session: Session, estimates: Sequence[JobEstimate], *, at_once: int | None = 1) -> str:
    """Return a line about the disk space and precision of training runs; empty if no job trains.

    Raises:
        RunError: If there is not enough disk space.
    """
    needed = disk(session.store.root, estimates, at_once)
    if needed is None or not needed.trainings:
        return ""
    if (problem := needed.problem(session.options.keep_checkpoints, session.store.root)) is not None:
        raise RunError(problem)
    return f"{needed.announcement(session.options.keep_checkpoints)}; precision {session.settings.finetune.precision}"
