"""Every verdict on each claim, task and model, one small JSON file each, in the order in which they were given.

`history/E1-rte-minilm-0c6b42/20261122T200102.123456Z-3f9c0a1b.json`: a folder is a series, of one claim, task and
model; the digest of the model's place tells models of the same name apart. Verdicts on part of the rows are a series of
their own (`...-limited`), so they never replace those on all rows. A verdict that differs from the last of its series
only in its time is counted there (`times`, `last`) instead of being written again.

Every run with a store writes verdicts; `bertsecrets explain`, `claims` and `history` show them. They are a record and
never an input: claims are always judged from measurements. Earlier versions kept only the last verdict, in
`verdicts/E1-rte-minilm-0c6b42.json`; such a file is read as the first of its series.
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
from bertsecrets.store.files import UNFINISHED, digest, guarded_writes, is_whole, signed
from bertsecrets.store.locks import held
from bertsecrets.store.measurements import place_digest
from bertsecrets.types import slug

FOLDER, EARLIER = "history", "verdicts"
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# What may differ between a verdict and its repetition, besides the remark `stored`; a model may have several paths.
VOLATILE = ("made", "last", "times", "seconds", "reused", "sha256", "model", "models")


class KeptVerdict(BaseModel):
    """The part of a kept verdict that is shown; fields that earlier versions did not keep are optional.

    Attributes:
        made, last, times: when the verdict was given first and last, and how often.
        limited: whether it rests on part of the rows.
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
    """The store is read-only, so verdicts are not kept."""


def keep_verdict(
    root: Path, data: Mapping[str, Any], model: str, *, limited: bool = False, facts: Mapping[str, Any] | None = None
) -> Path:
    """Add a verdict to its series, or count it there if it repeats the last one; return the file's path.

    If the store is read-only, a warning says so.

    Args:
        data: the verdict as data, with its `id`.
        limited: whether it rests on part of the rows.
        facts: of the run and of the measurements (`provenance.run_facts`, `compare.history.evidence`).

    Raises:
        UserError: the disk is full or the store cannot be written.
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
                for unfinished in folder.glob(f".*{UNFINISHED}"):  # of killed processes: no other process writes now
                    unfinished.unlink(missing_ok=True)
                latest, last = next(_undamaged(reversed(_files(root, name))), (path, {}))
                if latest.parent == folder and _mark(last) == _mark(content):
                    path, content = latest, {**last, "last": content["last"], "times": last.get("times", 1) + 1}
                    content.pop("sha256")
                write_json(path, signed(content))
    except UserError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in READ_ONLY:
            raise
        warnings.warn(f"{root / FOLDER} cannot be written, so verdicts are not kept", NotKeptWarning, stacklevel=2)
    return path


def read_verdicts(root: Path, tasks: Mapping[str, str], model: str | None = None) -> list[KeptVerdict]:
    """Return the last verdict of each series; the arguments and the order are those of `read_history`."""
    return [series[-1] for series in read_history(root, tasks, model, last=1)]


def read_history(
    root: Path, tasks: Mapping[str, str], model: str | None = None, *, last: int | None = None
) -> list[list[KeptVerdict]]:
    """Return series of verdicts, oldest first; series on all rows come before those on part of them.

    Damaged files are skipped.

    Args:
        tasks: the ids, such as `E1-rte`, with their tasks.
        model: only verdicts on this model.
        last: only so many verdicts of each series.
    """
    names, every = _names(root), []
    for wanted, task in tasks.items():
        for name in names:
            if name.startswith(f"{wanted}-"):
                latest = islice(_verdicts(reversed(_files(root, name)), (wanted, task), model), last)
                every.append(list(latest)[::-1])
    return sorted(filter(None, every), key=lambda series: series[0].limited)


def verdict_files(root: Path) -> list[list[Path]]:
    """Return the files of each series of verdicts in a store, oldest first."""
    return [_files(root, name) for name in _names(root)]


def _names(root: Path) -> list[str]:
    """Return the names of all series."""
    earlier = (path.stem for path in (root / EARLIER).glob("[!.]*.json"))
    return sorted({*earlier, *(path.name for path in (root / FOLDER).glob("[!.]*"))})


def _files(root: Path, name: str) -> list[Path]:
    """Return the files of a series, oldest first."""
    earlier = root / EARLIER / f"{name}.json"
    return [*([earlier] if earlier.is_file() else []), *sorted((root / FOLDER / name).glob("[!.]*.json"))]


def _undamaged(files: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in files:
        try:
            data = read_json(path)
        except UserError:
            continue
        if is_whole(data):
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
    """Return a short digest of a verdict, the same for repetitions."""
    fixed = {name: value for name, value in data.items() if name not in VOLATILE}
    return digest({**fixed, "remarks": [remark for remark in data.get("remarks", ()) if remark != "stored"]})[:8]
