"""Measurements stored in folders.

Each folder contains one measurement: its values as JSON, and the samples from which claims are judged.
"""

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
from bertsecrets.store.entries import damage, write_json, write_manifest
from bertsecrets.store.files import MANIFEST, copy_whole, digest, guarded_writes, read_json, visible_files
from bertsecrets.types import Measurement, Provenance, Subject, slug

VALUES_FILE, SAMPLES_FILE = "measurement.json", "samples.npz"
READ_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError),
)


class _MadeBy(BaseModel):
    """The facts about code, libraries and device that reports read."""

    code: str | None = None
    software: dict[str, str] | None = None
    device: str | None = None


class _Training(BaseModel):
    """The facts about a training that reports and checks read."""

    precision: str
    seconds: float = Field(0, ge=0, allow_inf_nan=False)
    steps: int = Field(0, ge=0)


class StoredMeasurement(BaseModel):
    """The JSON form of a measurement (`Measurement.as_json`)."""

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
    """Write a measurement to a folder, and return two facts for the manifest: the measure's name and the subject."""
    with guarded_writes(folder):
        write_json(folder / VALUES_FILE, measurement.as_json())
        np.savez_compressed(folder / SAMPLES_FILE, **measurement.samples)  # type: ignore[arg-type]
    return {"measure": measurement.measure, "subject": asdict(measurement.subject)}


def load(entry: Path) -> Measurement:
    """Load a stored measurement."""
    try:
        with np.load(entry / SAMPLES_FILE) as samples:
            measurement = measurement_of(read_json(entry / VALUES_FILE), dict(samples))
    except READ_ERRORS as error:
        raise UserError(f"{entry} is incomplete or from another version ({first_line(error)}): recreate it") from error
    return replace(measurement, origin=str(entry))


def measurement_of(data: Mapping[str, Any], samples: dict[str, np.ndarray]) -> Measurement:
    """Create a measurement from its JSON form and samples."""
    try:
        stored = StoredMeasurement.model_validate_json(json.dumps(data))
        for made_by in (stored.provenance.made_by, stored.provenance.checkpoint_made_by):
            _MadeBy.model_validate(made_by or {}, strict=True)
        if stored.provenance.training:
            _Training.model_validate(stored.provenance.training, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "measurement"
        raise ValueError(f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
    for name, sample in samples.items():
        if sample.dtype.kind not in "biuf":
            raise ValueError(f"sample {name}: holds no numbers")
    fields = {name: value for name, value in stored if name not in ("model", "task")}  # the subject contains these, too
    values = {name: _array(value) if isinstance(value, list) else value for name, value in stored.values.items()}
    return Measurement(**{**fields, "values": values, "samples": samples})


def _array(value: list[Any]) -> Any:
    """Convert nested lists of numbers to an array, and leave lists of names unchanged."""
    return value if value and isinstance(value[0], str) else np.array(value, dtype=float)


def save_to_folder(measurement: Measurement, folder: Path, checkpoint: Path | None = None) -> Path:
    """Save a measurement in a subfolder of `folder`, replacing an earlier version, and return the subfolder.

    The subfolder's name includes a digest of the model and of the user's checkpoint, if any, so that models of the same
    name do not collide.
    """
    options = ((key, str(value)) for key, value in measurement.options.items())
    marks = (f"{key}-{value if slug(value) == value else digest(value)[:8]}" for key, value in options)
    models = [measurement.subject.model, *([] if checkpoint is None else [str(checkpoint)])]
    measured = digest([os.path.realpath(model) if os.path.isdir(model) else model for model in models])[:6]
    name = "-".join([measurement.measure, str(measurement.subject), measured, *marks])
    with guarded_writes(folder), tempfile.TemporaryDirectory() as temporary:
        facts = save(measurement, Path(temporary))
        write_manifest(Path(temporary), {"kind": "measurement", "name": name, **facts})
        copy_whole(Path(temporary), folder / name, (VALUES_FILE, SAMPLES_FILE), (MANIFEST,))
    return folder / name


@dataclass(frozen=True)
class Shelf:
    """Saved measurements, on which claims can be judged without the model or the data."""

    measurements: tuple[Measurement, ...]

    @classmethod
    def read(cls, folder: Path) -> "Shelf":
        """Read all measurements in a folder and its subfolders. Hidden folders are ignored."""
        entries = sorted(file.parent for file in visible_files(folder, VALUES_FILE))
        if not entries:
            raise UserError(
                f"no measurements were found in {folder} or its subfolders: "
                "save measurements there with `bertsecrets measure ... --save DIR`"
            )
        measurements: dict[str, Measurement] = {}
        for entry in entries:
            if problem := damage(entry):
                raise UserError(f"{entry} is incomplete or from another version ({problem}): recreate it")
            measurement = replace(load(entry), reused=True)
            request = digest([measurement.measure, asdict(measurement.subject), measurement.options])
            if request in measurements:
                raise UserError(
                    f"{measurements[request].origin} and {entry} both contain {measurement.measure} of "
                    f"{measurement.subject}: move one of them to another folder"
                )
            measurements[request] = measurement
        return cls(tuple(measurements.values()))

    def part(
        self, tasks: Collection[str], initialisations: Collection[str] | None, seeds: Collection[int] | None
    ) -> "Shelf":
        """Return the measurements for the given tasks, initialisations and seeds. An empty argument selects all."""

        def selected(subject: Subject) -> bool:
            given = ((subject.task, tasks), (subject.initialisation, initialisations), (subject.seed, seeds))
            return all(not wanted or value in wanted for value, wanted in given)

        return Shelf(tuple(measurement for measurement in self.measurements if selected(measurement.subject)))

    def find(self, measure: str, subject: Subject, options: Mapping[str, Any]) -> Measurement | None:
        """Return the saved measurement with this measure, subject and options, or None if it was not saved."""
        wanted = (measure, subject, dict(options))
        matching = (m for m in self.measurements if (m.measure, m.subject, m.options) == wanted)
        return next(matching, None)

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return the saved measurement with this measure, subject and options."""
        measurement = self.find(measure, subject, options)
        if measurement is None:
            raise UserError(
                f"measure {measure}{f' with {options}' if options else ''} was not saved for {subject}: "
                "save it with `bertsecrets measure ... --save DIR`"
            )
        return measurement

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return a message if a measure was not saved for a task. Otherwise, return None."""
        saved = any((m.measure, m.subject.task) == (measure, task_name) for m in self.measurements)
        return None if saved else f"measure {measure} was not saved for {task_name}"

    def seeds(self) -> dict[str, list[int]]:
        """Return, for each measured model, its seeds in ascending order."""
        pairs = sorted({(m.subject.model, m.subject.seed) for m in self.measurements})
        return {model: [seed for _, seed in group] for model, group in groupby(pairs, itemgetter(0))}
