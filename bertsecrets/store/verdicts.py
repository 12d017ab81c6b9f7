"""The last verdict on each claim, task and model, one small JSON file each in the store: `verdicts/E1-rte-minilm.json`.

Whoever judges with a store keeps them; `bertsecrets explain` and `claims` show them. They are a record, never an input:
no verdict is taken from here.
"""

import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from bertsecrets.claims.judge import Verdict, show, show_band
from bertsecrets.claims.schema import Claim
from bertsecrets.report.text import task_title
from bertsecrets.store.entries import write_json
from bertsecrets.types import slug

FOLDER = "verdicts"


class Kept(BaseModel):
    """What is shown of a kept verdict (`Verdict.as_json`, and who was judged when)."""

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


def keep_verdict(root: Path, verdict: Verdict, model: str) -> Path:
    """Write a verdict, whole or not at all, in place of the last one on the same claim, task and model."""
    path = root / FOLDER / f"{verdict.case}-{slug(model)}.json"
    write_json(path, {**verdict.as_json(), "model": model, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    return path


def read_verdicts(root: Path, claim: Claim, model: str | None = None) -> list[dict[str, Any]]:
    """The kept verdicts on a claim, by task in the claim's order, of one model or of all.

    What cannot be read is no verdict: the next run writes it anew.
    """
    found = []
    for name in claim.tasks:
        stem = "-".join(filter(None, (claim.id, name, claim.variant)))
        for path in sorted((root / FOLDER).glob(f"{stem}-*.json")):
            try:
                data = Kept.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):
                continue
            if (data.id, data.task) == (stem, name) and model in (None, data.model):
                found.append(data.model_dump())
    return found


def in_words(data: dict[str, Any]) -> str:
    """A kept verdict in one line."""
    low_high = [float("nan") if end is None else end for end in data["interval"] or ()]
    interval = f" {show_band((low_high[0], low_high[1]))}" if low_high else ""
    seeds = ", ".join(str(seed) for seed in data["seeds"])
    parts = [
        f"{data['model']} on {task_title(data['task'])}, {data['made'][:10]}, seeds {seeds}: {data['verdict']}, "
        f"observed {show(data['observed'])}{interval} {data['unit']}",
        data["reason"],
        data["power"],
        *(remark for remark in data["remarks"] if remark != "stored"),
    ]
    return "; ".join(part for part in parts if part)
