"""The last verdict on each claim, task and model, one small JSON file each in the store: `verdicts/E1-rte-minilm.json`.

Every run that has a store writes them; `bertsecrets explain` and `bertsecrets claims` show them. They are a record and
never an input: claims are always judged from measurements.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bertsecrets.store.entries import write_json
from bertsecrets.types import slug

FOLDER = "verdicts"


class KeptVerdict(BaseModel):
    """The parts of a kept verdict that are shown, with the model and the time of judging."""

    id: str
    model: str
    task: str
    made: str
    seeds: list[int]
    verdict: str
    observed: float | None
    interval: tuple[float | None, float | None] | None
    unit: str
    reason: str
    power: str
    remarks: list[str]


def keep_verdict(root: Path, data: Mapping[str, Any], model: str) -> Path:
    """Write a verdict to its file, in place of the last one on the same claim, task and model; return the path.

    Args:
        data: the verdict as data, with its `id`.

    Raises:
        UserError: the disk is full or the store cannot be written.
    """
    path = root / FOLDER / f"{data['id']}-{slug(model)}.json"
    write_json(path, {**data, "model": model, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    return path


def read_verdicts(root: Path, tasks: Mapping[str, str], model: str | None = None) -> list[dict[str, Any]]:
    """Return the kept verdicts of one model (or of all, if None), in the order of the ids.

    Unreadable files are skipped: the next run writes them again.

    Args:
        tasks: the wanted ids, such as `E1-rte`, each with its task.
    """
    verdicts = []
    for wanted, task_name in tasks.items():
        for path in sorted((root / FOLDER).glob(f"{wanted}-*.json")):
            try:
                kept = KeptVerdict.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):
                continue
            if (kept.id, kept.task) == (wanted, task_name) and model in (None, kept.model):
                verdicts.append(kept.model_dump())
    return verdicts
