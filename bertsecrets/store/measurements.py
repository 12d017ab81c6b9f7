"""Measurements as folders: JSON for people and other programs, and the samples, from which claims are judged again."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertsecrets.errors import UserError, first_line
from bertsecrets.store.entries import damage, read_json, write_json, write_manifest
from bertsecrets.store.files import MANIFEST, copy_whole, digest, guarded_writes
from bertsecrets.types import Measurement, Provenance, Subject, slug

VALUES, SAMPLES = "measurement.json", "samples.npz"
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, KeyError, TypeError)


class StoredMeasurement(BaseModel):
    """A measurement in a JSON file, as `Measurement.as_json` writes it."""

    model_config = ConfigDict(strict=True, protected_namespaces=())

    measure: str
    model: str
    task: str
    examples: int = Field(ge=0)
    values: dict[str, Any]
    subject: Subject
    settings: dict[str, Any]
    options: dict[str, Any]
    provenance: Provenance


def save(measurement: Measurement, folder: Path) -> dict[str, Any]:
    """Write a measurement into a folder, and return the facts for its manifest.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    with guarded_writes(folder):
        write_json(folder / VALUES, measurement.as_json())
        np.savez_compressed(folder / SAMPLES, **measurement.samples)  # type: ignore[arg-type]
    return {"measure": measurement.measure, "subject": asdict(measurement.subject)}


def load(entry: Path) -> Measurement:
    """Return a stored measurement; its errors about missing values or samples name the folder.

    Raises:
        UserError: the folder holds no measurement, or a damaged one.
    """
    try:
        with np.load(entry / SAMPLES) as samples:
            measurement = measurement_of(read_json(entry / VALUES), dict(samples))
    except DAMAGE as error:
        raise UserError(
            f"{entry} is incomplete or from another version ({first_line(error)}): make it again"
        ) from error
    return replace(measurement, origin=str(entry))


def measurement_of(data: Mapping[str, Any], samples: dict[str, np.ndarray]) -> Measurement:
    """Return the measurement that `Measurement.as_json` wrote; nested lists become arrays again.

    Raises:
        ValueError: the data do not describe a measurement; the message says which field.
    """
    try:
        stored = StoredMeasurement.model_validate_json(json.dumps(data))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    for name, sample in samples.items():
        if sample.dtype.kind not in "biuf":
            raise ValueError(f"sample {name}: holds no numbers")
    return Measurement(
        measure=stored.measure,
        subject=stored.subject,
        examples=stored.examples,
        values={name: _array(value) if isinstance(value, list) else value for name, value in stored.values.items()},
        samples=samples,
        settings=stored.settings,
        options=stored.options,
        provenance=stored.provenance,
    )


def _array(value: list[Any]) -> Any:
    """Return nested lists of numbers as an array, and a list of names unchanged."""
    return value if value and isinstance(value[0], str) else np.array(value, dtype=float)


def keep(measurement: Measurement, folder: Path, checkpoint: Path | None = None) -> Path:
    """Save a measurement in a folder of its own below `folder`, and return that folder; an older one is replaced.

    The folder's name carries a digest of which model and checkpoint were measured, so that namesakes stay apart.

    Args:
        checkpoint: the folder that was measured instead of the subject's own checkpoint.

    Raises:
        UserError: the disk is full, the folder cannot be written, or it holds other files.
    """
    options = ((key, str(value)) for key, value in measurement.options.items())
    marks = (f"{key}-{value if slug(value) == value else digest(value)[:8]}" for key, value in options)
    measured = place_digest(measurement.subject.model, *([] if checkpoint is None else [str(checkpoint)]))
    name = "-".join([measurement.measure, str(measurement.subject), measured, *marks])
    with guarded_writes(folder), tempfile.TemporaryDirectory() as temporary:
        facts = save(measurement, Path(temporary))
        write_manifest(Path(temporary), {"kind": "measurement", "name": name, **facts})
        copy_whole(Path(temporary), folder / name, (VALUES, SAMPLES), (MANIFEST,))
    return folder / name


def place_digest(*places: str) -> str:
    """Return a short digest of models, each a folder, wherever it is named from, or a hub name."""
    return digest([os.path.realpath(place) if os.path.isdir(place) else place for place in places])[:6]


def _load_kept(entry: Path) -> Measurement:
    """Return a measurement that `keep` saved, after comparing it with its manifest.

    Raises:
        UserError: it has no manifest, as those of older versions, or does not match it.
    """
    if not (entry / MANIFEST).exists():
        raise UserError(f"{entry} has no {MANIFEST} to check it by, as earlier versions left it: measure it again")
    problem = damage(entry)
    if problem:
        raise UserError(f"{entry} is incomplete or from another version ({problem}): make it again")
    return load(entry)


@dataclass(frozen=True)
class Shelf:
    """Measurements saved by `measure --save`, which can be judged without the model and the data."""

    kept: tuple[Measurement, ...]

    @classmethod
    def read(cls, folder: Path) -> "Shelf":
        """Return every measurement below a folder; what a killed process left behind, in hidden folders, is none.

        Raises:
            UserError: there are none, one is damaged, or two are of one subject, measure and options.
        """
        places = [path.parent.relative_to(folder) for path in folder.rglob(VALUES)]
        entries = sorted(folder / place for place in places if not any(part[0] == "." for part in place.parts))
        if not entries:
            raise UserError(f"no measurements below {folder}: save some with `bertsecrets measure ... --save DIR`")
        kept: dict[str, Measurement] = {}
        for entry in entries:
            measurement = replace(_load_kept(entry), reused=True)
            what = digest([measurement.measure, asdict(measurement.subject), measurement.options])
            if what in kept:
                raise UserError(
                    f"{kept[what].origin} and {entry} are both {measurement.measure} of {measurement.subject}: "
                    "move one of them to another folder"
                )
            kept[what] = measurement
        return cls(tuple(kept.values()))

    def part(
        self,
        tasks: Collection[str] = (),
        initialisations: Collection[str] | None = None,
        seeds: Collection[int] | None = None,
    ) -> "Shelf":
        """Return the measurements of a part of a grid.

        Args:
            tasks, initialisations, seeds: those of the part; all, where there are none.
        """

        def belongs(subject: Subject) -> bool:
            own = ((subject.task, tasks), (subject.initialisation, initialisations), (subject.seed, seeds))
            return all(not wanted or value in wanted for value, wanted in own)

        return Shelf(tuple(measurement for measurement in self.kept if belongs(measurement.subject)))

    def find(self, measure: str, subject: Subject, options: Mapping[str, Any]) -> Measurement | None:
        """Return the saved measurement, or None."""
        wanted = (measure, subject, dict(options))
        matching = (m for m in self.kept if (m.measure, m.subject, m.options) == wanted)
        return next(matching, None)

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return the saved measurement.

        Raises:
            UserError: it was not saved.
        """
        measurement = self.find(measure, subject, options)
        if measurement is None:
            raise UserError(f"no measurement {measure} of {subject} {options or ''} was saved: measure it with --save")
        return measurement

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return a line that says which measure of which task was not saved; None where one was."""
        kept = any((m.measure, m.subject.task) == (measure, task_name) for m in self.kept)
        return None if kept else f"no measurement {measure} of {task_name} was saved"

    def shape(self, model: str) -> tuple[int, int] | None:
        """Return None: of which shape a model is, its measurements tell."""
        return None

    def weights(self, model: str) -> str | None:
        """Return None: the provenance of each measurement tells its weights."""
        return None

    def seeds(self) -> dict[str, list[int]]:
        """Return the models that were measured, each with its seeds in ascending order."""
        pairs = sorted({(m.subject.model, m.subject.seed) for m in self.kept})
        return {model: [seed for _, seed in of_model] for model, of_model in groupby(pairs, itemgetter(0))}
