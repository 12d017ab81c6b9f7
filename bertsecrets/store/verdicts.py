"""The last verdict on each claim, task and model, one small JSON file each: `verdicts/E1-rte-minilm-0c6b42.json`.

A digest of which model it was keeps namesakes apart. A verdict on a part of the rows never replaces that on all of
them: it has a file of its own (`...-limited.json`).

Every run that has a store writes them; `bertsecrets explain` and `bertsecrets claims` show them. They are a record and
never an input: claims are always judged from measurements.
"""

import errno
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bertsecrets.errors import UserError
from bertsecrets.store.entries import finite, read_json, write_json
from bertsecrets.store.files import is_whole, signed
from bertsecrets.store.measurements import place_digest
from bertsecrets.types import slug

FOLDER = "verdicts"
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class KeptVerdict(BaseModel):
    """The parts of a kept verdict that are shown, with the model and the time of judging."""

    id: str
    model: str
    task: str
    made: str
    seeds: list[int]
    verdict: str
    against: str = ""
    observed: float | None
    interval: tuple[float | None, float | None] | None
    unit: str
    reason: str
    power: str
    remarks: list[str]
    limited: bool = False


class NotKeptWarning(UserWarning):
    """The store is read-only, so that verdicts are given but not kept."""


def keep_verdict(root: Path, data: Mapping[str, Any], model: str, *, limited: bool = False) -> Path:
    """Write a verdict to its file, in place of the last one on the same claim, task and model; return the path.

    A store that is read-only is passed over with a warning.

    Args:
        data: the verdict as data, with its `id`.
        limited: it rests on a part of the rows.

    Raises:
        UserError: the disk is full or the store cannot be written.
    """
    name = "-".join([data["id"], slug(model), place_digest(model), *(["limited"] if limited else [])])
    path = root / FOLDER / f"{name}.json"
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        write_json(path, signed(finite({**data, "model": model, "made": made, "limited": limited})))
    except UserError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in READ_ONLY:
            raise
        warnings.warn(f"{root / FOLDER} cannot be written, so verdicts are not kept", NotKeptWarning, stacklevel=2)
    return path


def read_verdicts(root: Path, tasks: Mapping[str, str], model: str | None = None) -> list[dict[str, Any]]:
    """Return the kept verdicts of one model (or of all, if None), in the order of the ids, those on all rows first.

    Files that are unreadable, damaged or of earlier versions are skipped: the next run writes them again.

    Args:
        tasks: the wanted ids, such as `E1-rte`, each with its task.
    """
    verdicts = []
    for wanted, task_name in tasks.items():
        for path in sorted((root / FOLDER).glob(f"{wanted}-*.json")):
            try:
                data = read_json(path)
                kept = KeptVerdict.model_validate(data)
            except (UserError, ValidationError):
                continue
            if is_whole(data) and (kept.id, kept.task) == (wanted, task_name) and model in (None, kept.model):
                verdicts.append(kept.model_dump())
    return sorted(verdicts, key=lambda kept: kept["limited"])
