"""Records: the measurements of a judged run in one small file, from which the run can be judged again.

A record is a ZIP file. Its member `record.json` describes the run and its measurements, and every distinct sample is a
separate member. Samples are encoded without loss. If a sample has few distinct values, a short code is stored for each
value. Otherwise, the first bytes of all values are stored, then all second bytes, and so on, because this compresses
better. Before a record is written, its content is read back to verify that no bit differs.
"""

import hashlib
import json
import lzma
import math
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from bertsecrets.errors import UserError, first_line
from bertsecrets.store.entries import finite
from bertsecrets.store.files import digest, visible_files, write_whole
from bertsecrets.store.measurements import READ_ERRORS, VALUES_FILE, Shelf, measurement_of
from bertsecrets.types import Measurement

RECORD_FILE, RECORD_JSON = "record.zip", "record.json"
CODES = 256  # distinct values that one byte can encode
DECODED_BYTES = 2**31  # maximum size of a member
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the same for all, so that equal measurements make equal files
NARROWER = {"f8": ("f4",), "i8": ("i1", "i2", "i4"), "i4": ("i1", "i2")}  # types that may hold the same values


class RecordedCause(BaseModel):
    """The reason why a case does not apply to a model.

    `grounds` is the name of the reason in `claims.reasons.Grounds`. `facts` are inserted into the text of the reason.
    """

    grounds: str
    facts: dict[str, int | float | str]


class RecordedRun(BaseModel):
    """The facts about a run, apart from its measurements, that are needed to judge the run again.

    Attributes:
        model: The judged model, as the user named it.
        seeds: The judged seeds, given as `auto`, as a number of seeds, or as a list of seeds. None if all saved seeds
            were judged.
        cases: The names of the judged cases, such as `C1-rte`.
        not_applicable: For each case that does not apply to the model, the reason why.
        commits: Git commits of the code that saved the measurements.
    """

    model_config = ConfigDict(strict=True)

    format: Literal["bertsecrets-record-1"] = "bertsecrets-record-1"
    model: str
    seeds: Literal["auto"] | int | list[int] | None
    cases: list[str]
    not_applicable: dict[str, RecordedCause] = {}
    commits: list[str] = []


class Layout(BaseModel):
    """The encoding of a sample: its dtype and shape, the dtype of the stored values, and the number of codes.

    If `codes` is 0, the values themselves are stored. Otherwise, the distinct values are stored, followed by a code for
    each value of the sample. A code takes one bit if there are at most two distinct values, otherwise one byte.
    """

    dtype: str = Field(pattern=r"^[biuf][1248]$")
    shape: list[NonNegativeInt]
    stored: str = Field(pattern=r"^[biuf][1248]$")
    codes: int = Field(ge=0, le=CODES)


@dataclass(frozen=True)
class SavedFolder:
    """The measurements in a folder, saved one by one or in records, and the runs that the records describe."""

    shelf: Shelf
    runs: tuple[RecordedRun, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> "SavedFolder":
        """Read all measurements in a folder and its subfolders. Hidden files and folders are ignored.

        Raises:
            UserError: `folder` is a file, no measurement was found, a measurement is damaged, or measurements of the
                same subject differ.
        """
        check_not_file(folder)
        records = [read_record(path) for path in visible_files(folder, RECORD_FILE)]
        single = Shelf.read(folder).measurements if visible_files(folder, VALUES_FILE) or not records else ()
        recorded = [measurement for _, measurements in records for measurement in measurements]
        return cls(Shelf(tuple(distinct([*single, *recorded]))), tuple(run for run, _ in records))

    def run_of(self, model: str | None, seeds: object = None) -> RecordedRun | None:
        """Return a single run that merges all recorded runs of a model, or None if the model has no recorded runs.

        Args:
            model: Name of the model. It can be None if all recorded runs used the same model.
            seeds: The seeds to judge, if the user specified them. If not, all runs must have the same seeds.

        Raises:
            UserError: The runs used several models and `model` is None, or their seeds differ and `seeds` is not given.
        """
        runs = [run for run in self.runs if model in (None, run.model)]
        if not runs:
            return None
        models, recorded = sorted({run.model for run in runs}), sorted({json.dumps(run.seeds) for run in runs})
        if len(models) > 1:
            raise UserError(f"the recorded runs used several models ({', '.join(models)}): specify the model to judge")
        if len(recorded) > 1 and not seeds:
            raise UserError(
                f"the recorded runs have different seeds ({', '.join(recorded)}): specify the seeds to judge"
            )
        return RecordedRun(
            model=models[0],
            seeds=runs[0].seeds,
            cases=list(dict.fromkeys(case for run in runs for case in run.cases)),
            not_applicable={case: cause for run in runs for case, cause in run.not_applicable.items()},
            commits=sorted({commit for run in runs for commit in run.commits}),
        )


def distinct(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements without duplicates. There are duplicates if the records of two runs share measurements.

    Raises:
        UserError: Two measurements of the same subject differ.
    """
    by_request: dict[str, Measurement] = {}
    for measurement in measurements:
        subject = measurement.as_json()["subject"]
        first = by_request.setdefault(digest([measurement.measure, subject, measurement.options]), measurement)
        if first is not measurement and not _same_numbers(first, measurement):
            raise UserError(
                f"{first.origin or 'a measurement'} and {measurement.origin or 'another'} contain different "
                f"results for {measurement.measure} of {measurement.subject}: judge them in separate runs"
            )
    return list(by_request.values())


def _same_numbers(first: Measurement, second: Measurement) -> bool:
    values = [json.dumps(finite(each.as_json()["values"]), sort_keys=True) for each in (first, second)]
    return values[0] == values[1] and _bits(first) == _bits(second)


def _bits(measurement: Measurement) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in measurement.samples.items()}


# ---------------------------------------------------------------------- files


def write_record(folder: Path, run: RecordedRun, measurements: Sequence[Measurement]) -> Path:
    """Write the measurements of a run to `record.zip` in a folder, replacing an earlier record, and return its path."""
    path, layouts, members = folder / RECORD_FILE, {}, {}
    described = []
    for measurement in distinct(measurements):
        names = {}
        for name, array in measurement.samples.items():
            layout, data = encode(array)
            member = _member(layout, data)
            names[name], layouts[member], members[member] = member, layout.model_dump(), data
        described.append({**finite(measurement.as_json()), "samples": names})
    content = {"run": run.model_dump(), "layouts": layouts, "measurements": described}
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        for member, data in {RECORD_JSON: json.dumps(content, ensure_ascii=False).encode(), **members}.items():
            archive.writestr(zipfile.ZipInfo(member, ZIP_DATE), data, zipfile.ZIP_LZMA)
    _, stored = _read(buffer, str(path))
    sides = (distinct(measurements), stored)
    written, read = ([(finite(each.as_json()), _bits(each)) for each in side] for side in sides)
    if written != read:
        raise RuntimeError(f"{path} was not written, because its numbers would differ from the measured numbers")
    write_whole(path, buffer.getvalue())
    return path


def read_record(path: Path) -> tuple[RecordedRun, list[Measurement]]:
    """Return the run that a record describes, and the run's measurements.

    Raises:
        UserError: The record cannot be read or is damaged.
    """
    try:
        return _read(path, str(path))
    except (*READ_ERRORS, lzma.LZMAError, NotImplementedError) as error:
        raise UserError(f"{path} is damaged or from another version ({first_line(error)}): save it again") from error


def check_not_file(place: Path) -> None:
    """Check that a place of saved measurements is not a file, such as a record."""
    if place.is_file():
        raise UserError(f"{place} is a file: give the folder that contains it, {place.parent}")


def _member(layout: Layout, data: bytes) -> str:
    """Return the name of a sample's member: a digest of its layout and its bytes."""
    return hashlib.sha256(f"{layout.model_dump_json()}\n".encode() + data).hexdigest()[:16]


def _read(source: Path | BytesIO, origin: str) -> tuple[RecordedRun, list[Measurement]]:
    with zipfile.ZipFile(source) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if too_large := next((name for name, size in sizes.items() if size > DECODED_BYTES), None):
            raise ValueError(f"{too_large} is too large")
        content = json.loads(archive.read(RECORD_JSON))
        layouts = {name: Layout.model_validate(layout) for name, layout in content["layouts"].items()}
        data = {name: archive.read(name) for name in layouts}
    if changed := next((name for name, layout in layouts.items() if name != _member(layout, data[name])), None):
        raise ValueError(f"{changed} has been changed")
    samples = {name: decode(layout, data[name]) for name, layout in layouts.items()}
    run = RecordedRun.model_validate(content["run"])
    described = [
        (data, {name: samples[own] for name, own in data["samples"].items()}) for data in content["measurements"]
    ]
    return run, [replace(measurement_of(*pair), origin=origin, reused=True) for pair in described]


# ---------------------------------------------------------------------- samples


def encode(array: np.ndarray) -> tuple[Layout, bytes]:
    """Encode a sample of numbers, and return its layout and the encoded bytes.

    >>> encode(np.array([3, 4, 3, 3]))[1]
    b'\\x03\\x04@'
    """
    stored = _narrowed(array.ravel())
    values, codes = np.unique(stored.view(f"u{stored.itemsize}"), return_inverse=True)
    few = 0 < len(values) <= min(CODES, len(stored) // 2)
    layout = Layout(
        dtype=array.dtype.str[1:], shape=[*array.shape], stored=stored.dtype.str[1:], codes=len(values) if few else 0
    )
    if not few:
        return layout, stored.view(np.uint8).reshape(-1, stored.itemsize).T.tobytes()
    codes = codes.astype(np.uint8)
    return layout, values.tobytes() + (np.packbits(codes) if len(values) <= 2 else codes).tobytes()


def decode(layout: Layout, data: bytes) -> np.ndarray:
    """Decode a sample from the layout and the bytes that `encode` returned.

    Raises:
        ValueError: The bytes do not match the layout.
    """
    stored, size = np.dtype(layout.stored), math.prod(layout.shape)
    if layout.codes:
        ends = layout.codes * stored.itemsize
        codes = np.frombuffer(data[ends:], np.uint8)
        codes = np.unpackbits(codes, count=size) if layout.codes <= 2 else codes
        if codes.size and codes.max() >= layout.codes:
            raise ValueError("a code has no value")
        flat = np.frombuffer(data[:ends], stored)[codes]
    else:
        flat = np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(stored.itemsize, size).T).view(stored)
    return flat.reshape(layout.shape).astype(layout.dtype)


def _narrowed(flat: np.ndarray) -> np.ndarray:
    """Convert numbers to the smallest type from which they can be restored exactly."""
    with np.errstate(over="ignore", invalid="ignore"):
        for name in NARROWER.get(flat.dtype.str[1:], ()):
            if flat.astype(name).astype(flat.dtype).tobytes() == flat.tobytes():
                return flat.astype(name)
    return flat
