"""The history of verdicts: a chronological series of small JSON files for each claim, task and model.

A series is stored in a folder such as `history/E1-rte-minilm-0c6b42`, whose name includes a digest of the model's
location. Verdicts on a subset of the rows form a separate series (`-limited`). A repeated verdict only updates the last
file (`times`, `last`).

Stored verdicts are only a record, shown by `explain`, `claims` and `history`. Claims are always judged from
measurements.
"""

import errno
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError, model_validator

from bertsecrets.errors import UserError
from bertsecrets.formats import current_outcome
from bertsecrets.store.entries import finite, plain_json, read_json, write_json
from bertsecrets.store.files import UNFINISHED, digest, guarded_writes, is_intact, signed
from bertsecrets.store.locks import held
from bertsecrets.store.measurements import place_digest
from bertsecrets.types import slug

FOLDER = "history"
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# Fields that may differ in a repeated verdict, in addition to the remark `stored`.
VOLATILE = ("made", "last", "times", "seconds", "reused", "sha256", "model", "models")


class KeptVerdict(BaseModel):
    """A verdict in the history. Fields that were added later are optional.

    Attributes:
        made, last, times: When the verdict was first and last reached, and how often.
        limited: Whether the verdict is based on a subset of the rows.
    """

    id: str
    model: str
    task: str
    made: str
    last: str
    times: int = 1
    seeds: list[int]
    verdict: Annotated[str, BeforeValidator(current_outcome)]
    against: str = ""
    observed: float | None
    interval: tuple[float | None, float | None] | None
    band: tuple[float | None, float | None] | None = None
    unit: str
    reason: str
    power: str
    remarks: list[str]
    limited: bool = False
    commit: str | None = None
    modified: bool | None = None
    software: dict[str, str] = {}
    circumstances: dict[str, Any] = {}
    measurements: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _given_once(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {"last": data.get("made"), **data}


class NotKeptWarning(UserWarning):
    """The store is read-only, so verdicts are not saved."""


def keep_verdict(
    root: Path, data: Mapping[str, Any], model: str, *, limited: bool = False, facts: Mapping[str, Any] | None = None
) -> Path:
    """Add a verdict to its series, or update the count if it repeats the last one, and return the file.

    If the store is read-only, nothing is saved and a warning is issued.

    Args:
        data: Verdict as JSON data.
        limited: Whether the verdict is based on a subset of the rows.
        facts: Facts about the run and the measurements (`provenance.run_facts`, `compare.history.evidence`).

    Raises:
        UserError: If the disk is full or the store cannot be written.
    """
    name = "-".join([data["id"], slug(model), place_digest(model), *(["limited"] if limited else [])])
    now = datetime.now(UTC)
    times = {"made": f"{now:%Y-%m-%dT%H:%M:%SZ}"} | dict(facts or {})
    times |= {"last": times["made"], "times": 1}
    content = plain_json(finite({**data, **times, "model": model, "limited": limited}))
    folder = root / FOLDER / name
    path = folder / f"{now:%Y%m%dT%H%M%S.%fZ}-{_mark(content)}.json"
    try:
        with guarded_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with held(folder / ".lock", f"the verdicts on {data['id']}"):
                for unfinished in folder.glob(f".*{UNFINISHED}"):  # of killed processes, since no other one writes now
                    unfinished.unlink(missing_ok=True)
                latest, last = next(_undamaged(reversed(_files(root, name))), (path, {}))
                if _mark(last) == _mark(content):
                    path, content = latest, {**last, "last": content["last"], "times": last.get("times", 1) + 1}
                    content.pop("sha256")
                write_json(path, signed(content))
    except UserError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in READ_ONLY:
            raise
        warnings.warn(f"{root / FOLDER} cannot be written, so verdicts are not saved", NotKeptWarning, stacklevel=2)
    return path


def read_verdicts(root: Path, tasks: Mapping[str, str], model: str | None = None) -> list[KeptVerdict]:
    """Return the last verdict of each series (`read_history`)."""
    return [series[-1] for series in read_history(root, tasks, model, last=1)]


def read_history(
    root: Path, tasks: Mapping[str, str], model: str | None = None, *, last: int | None = None
) -> list[list[KeptVerdict]]:
    """Return all series of verdicts, oldest first. Series on all rows precede those on a subset.

    Damaged files are skipped.

    Args:
        tasks: Tasks by case id, such as `E1-rte`.
        model: If given, return only verdicts on this model.
        last: If given, return only this many of the latest verdicts in each series.
    """
    names, histories = _names(root), []
    for case_id, task in tasks.items():
        for name in names:
            if name.startswith(f"{case_id}-"):
                latest = islice(_verdicts(reversed(_files(root, name)), (case_id, task), model), last)
                histories.append(list(latest)[::-1])
    return sorted(filter(None, histories), key=lambda series: series[0].limited)


def verdict_files(root: Path) -> list[list[Path]]:
    """Return the files of each series, oldest first."""
    return [_files(root, name) for name in _names(root)]


def _names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / FOLDER).glob("[!.]*"))


def _files(root: Path, name: str) -> list[Path]:
    return sorted((root / FOLDER / name).glob("[!.]*.json"))


def _undamaged(files: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in files:
        try:
            data = read_json(path)
        except UserError:
            continue
        if is_intact(data):
            yield path, data


def _verdicts(files: Iterable[Path], case: tuple[str, str], model: str | None) -> Iterator[KeptVerdict]:
    for _, data in _undamaged(files):
        try:
            verdict = KeptVerdict.model_validate(data)
        except ValidationError:
            continue
        if (verdict.id, verdict.task) == case and model in (None, verdict.model):
            yield verdict


def _mark(data: Mapping[str, Any]) -> str:
    """Return a short digest that is the same for repeated verdicts."""
    fixed = {name: value for name, value in data.items() if name not in VOLATILE}
    return digest({**fixed, "remarks": [remark for remark in data.get("remarks", ()) if remark != "stored"]})[:8]
