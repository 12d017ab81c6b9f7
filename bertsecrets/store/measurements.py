"""A measurement as a folder: its JSON for people and other programs, its samples beside it for judging again."""

import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError, first_line
from bertsecrets.store.entries import read_json, write_json
from bertsecrets.store.files import copy_whole, digest, guarded_writes
from bertsecrets.types import Measurement, Subject, slug

VALUES, SAMPLES = "measurement.json", "samples.npz"
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, KeyError, TypeError)


def save(measurement: Measurement, folder: Path) -> dict[str, Any]:
    """Write a measurement into a folder and return what its manifest should say of it."""
    with guarded_writes(folder):
        write_json(folder / VALUES, measurement.as_json())
        np.savez_compressed(folder / SAMPLES, **measurement.samples)  # type: ignore[arg-type]
    return {"measure": measurement.measure, "subject": asdict(measurement.subject)}


def load(entry: Path) -> Measurement:
    """Return a stored measurement; one that is asked for a value or sample that it lacks names its folder.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    try:
        with np.load(entry / SAMPLES) as samples:
            measurement = Measurement.from_json(read_json(entry / VALUES), dict(samples))
    except DAMAGE as error:
        raise UserError(
            f"{entry} is incomplete or from another version ({first_line(error)}): make it again"
        ) from error
    return replace(measurement, origin=str(entry))


def keep(measurement: Measurement, folder: Path) -> Path:
    """Keep a measurement in a folder of its own below `folder`, whole or not at all; an older one is replaced."""
    options = ((key, str(value)) for key, value in measurement.options.items())
    marks = (f"{key}-{value if slug(value) == value else digest(value)[:8]}" for key, value in options)
    name = "-".join([measurement.measure, str(measurement.subject), *marks])
    with guarded_writes(folder), tempfile.TemporaryDirectory() as room:
        save(measurement, Path(room))
        copy_whole(Path(room), folder / name, (VALUES, SAMPLES))
    return folder / name


@dataclass(frozen=True)
class Shelf:
    """Measurements that were kept in folders (`measure --save`), to be judged where neither model nor data are."""

    kept: tuple[Measurement, ...]

    @classmethod
    def read(cls, folder: Path) -> "Shelf":
        """Return every measurement below a folder.

        Raises:
            UserError: there is none, or one is damaged.
        """
        entries = sorted(path.parent for path in folder.rglob(VALUES))
        if not entries:
            raise UserError(f"no measurements below {folder}: `bertsecrets measure ... --save DIR` keeps them")
        return cls(tuple(replace(load(entry), reused=True) for entry in entries))

    def find(self, measure: str, subject: Subject, options: Mapping[str, Any]) -> Measurement | None:
        """Return the kept measurement; None where there is none."""
        wanted = (measure, subject, dict(options))
        kept = (one for one in self.kept if (one.measure, one.subject, one.options) == wanted)
        return next(kept, None)

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return the kept measurement.

        Raises:
            UserError: it was not kept.
        """
        measurement = self.find(measure, subject, options)
        if measurement is None:
            raise UserError(f"no measurement {measure} of {subject} {options or ''} was kept")
        return measurement

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return which measure of which task was not kept; None where one was."""
        kept = any((one.measure, one.subject.task) == (measure, task_name) for one in self.kept)
        return None if kept else f"no measurement {measure} of {task_name} was kept"

    def seeds(self) -> dict[str, list[int]]:
        """Return the models that were measured, each with its seeds."""
        pairs = sorted({(one.subject.model, one.subject.seed) for one in self.kept})
        return {model: [seed for _, seed in of_model] for model, of_model in groupby(pairs, itemgetter(0))}
