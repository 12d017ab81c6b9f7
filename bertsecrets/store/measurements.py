"""A measurement as a folder: its JSON for people and other programs, its samples beside it for judging again."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Never

import numpy as np

from bertsecrets.errors import UserError, first_line
from bertsecrets.store.entries import read_json, write_json
from bertsecrets.store.files import copy_whole, digest, guarded_writes
from bertsecrets.texts.archives import UNREADABLE
from bertsecrets.types import Measurement, slug


def save(found: Measurement, folder: Path) -> dict[str, Any]:
    """Write a measurement into a folder; returns what its manifest should say of it."""
    with guarded_writes(folder):
        write_json(folder / "measurement.json", found.as_json())
        np.savez_compressed(folder / "samples.npz", **found.samples)  # type: ignore[arg-type]
    return {"measure": found.measure, "subject": asdict(found.subject)}


class Whole(dict[str, Any]):
    """Samples or values of a kept measurement: one that is asked for and not there means that the folder is damaged."""

    def __init__(self, found: Mapping[str, Any], entry: Path):
        super().__init__(found)
        self.entry = entry

    def __missing__(self, name: str) -> Never:
        raise UserError(f"{self.entry} holds no whole measurement of this version (no {name!r}): make it again")


def load(entry: Path) -> Measurement:
    """A stored measurement, which raises the same where a value or sample that is needed of it later is missing.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    try:
        with np.load(entry / "samples.npz") as samples:
            found = Measurement.from_json(read_json(entry / "measurement.json"), Whole(samples, entry))
    except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{entry} holds no whole measurement ({first_line(error)}): make it again") from error
    return replace(found, values=Whole(found.values, entry))


def keep(found: Measurement, folder: Path) -> Path:
    """Keep a measurement in a folder of its own below `folder`, whole or not at all; an older one is replaced."""
    options = ((key, str(value)) for key, value in found.options.items())
    marks = (f"{key}-{value if slug(value) == value else digest(value)[:8]}" for key, value in options)
    name = "-".join([found.measure, str(found.subject), *marks])
    with guarded_writes(folder), tempfile.TemporaryDirectory() as room:
        save(found, Path(room))
        copy_whole(Path(room), folder / name, ("measurement.json", "samples.npz"))
    return folder / name
