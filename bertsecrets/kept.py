"""A measurement as a folder: its JSON for people and other programs, its samples beside it for judging again."""

import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.core import Measurement, UserError, digest, slug
from bertsecrets.files import copy_whole, guarded_writes
from bertsecrets.store import read_json, write_json


def save(found: Measurement, folder: Path) -> dict[str, Any]:
    """Write a measurement into a folder; returns what its manifest should say of it."""
    with guarded_writes(folder):
        write_json(folder / "measurement.json", found.as_json())
        np.savez_compressed(folder / "samples.npz", **found.samples)  # type: ignore[arg-type]
    return {"measure": found.measure, "subject": asdict(found.subject)}


def load(entry: Path) -> Measurement:
    """A stored measurement.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    try:
        with np.load(entry / "samples.npz") as samples:
            return Measurement.from_json(read_json(entry / "measurement.json"), dict(samples))
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{entry} holds no whole measurement ({error}): make it again") from error


def keep(found: Measurement, folder: Path) -> Path:
    """Keep a measurement in a folder of its own below `folder`, whole or not at all; an older one is replaced."""
    options = ((key, str(value)) for key, value in found.options.items())
    marks = (f"{key}-{value if slug(value) == value else digest(value)[:8]}" for key, value in options)
    name = "-".join([found.measure, str(found.subject), *marks])
    with guarded_writes(folder), tempfile.TemporaryDirectory() as room:
        save(found, Path(room))
        copy_whole(Path(room), folder / name, ("measurement.json", "samples.npz"))
    return folder / name
