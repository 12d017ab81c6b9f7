"""Every verdict on each claim, task and model, one small JSON file each, in the order in which they were given.

`history/E1-rte-minilm-0c6b42/20261122T200102.123456Z-3f9c0a1b.json`: a folder is a series, of one claim, task and
model; a digest of which model it was keeps namesakes apart. Verdicts on a part of the rows are a series of their own
(`...-limited`), so they never stand in for those on all of them. A verdict that equals the last of its series in
everything but the time is counted there (`times`, `last`) instead of being written again.

Every run that has a store writes them; `bertsecrets explain`, `claims` and `history` show them. They are a record and
never an input: claims are always judged from measurements. Earlier versions kept the last verdict alone, in
`verdicts/E1-rte-minilm-0c6b42.json`: such a file is read as the first of its series.
"""

import errno
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from bertsecrets.errors import UserError
from bertsecrets.formats import current_outcome
from bertsecrets.store.entries import finite, plain_json, read_json, write_json
from bertsecrets.store.files import UNFINISHED, digest, guarded_writes, is_whole, signed
from bertsecrets.store.locks import held
from bertsecrets.store.measurements import place_digest
from bertsecrets.types import slug

FOLDER, EARLIER = "history", "verdicts"
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# What may differ between a verdict and its repetition, besides the remark `stored`; models may have several paths.
NO_DIFFERENCE = ("made", "last", "times", "seconds", "reused", "sha256", "model", "models")


class KeptVerdict(BaseModel):
    """The parts of a kept verdict that are shown; further ones are allowed, and those of later versions are optional.

    `made` is the time at which it was given first, `last` that at which the same was given last, `times` how often.
    """

    id: str
    model: str
    task: str
    made: str
    last: str = ""
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


class NotKeptWarning(UserWarning):
    """The store is read-only, so that verdicts are given but not kept."""


def keep_verdict(
    root: Path, data: Mapping[str, Any], model: str, *, limited: bool = False, facts: Mapping[str, Any] | None = None
) -> Path:
    """Add a verdict to the series of its claim, task and model, or count it as a repetition; return the file's path.

    A store that is read-only is passed over with a warning.

    Args:
        data: the verdict as data, with its `id`.
        limited: it rests on a part of the rows.
        facts: of the run and of the measurements (`provenance.run_facts`, `compare.history.evidence`).

    Raises:
        UserError: the disk is full or the store cannot be written.
    """
    name = "-".join([data["id"], slug(model), place_digest(model), *(["limited"] if limited else [])])
    now = datetime.now(UTC)
    made = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    content = {"made": made, **data, **(facts or {}), "model": model, "limited": limited}
    content = plain_json(finite({**content, "last": content["made"], "times": 1}))
    folder = root / FOLDER / name
    path = folder / f"{now:%Y%m%dT%H%M%S.%fZ}-{_mark(content)}.json"
    try:
        with guarded_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with held(folder / ".lock", f"the verdicts on {data['id']}"):
                for unfinished in folder.glob(f".*{UNFINISHED}"):  # of killed processes, since no other writes now
                    unfinished.unlink(missing_ok=True)
                before = next(_whole(reversed(_files(root, name))), None)
                if before is not None and before[0].parent == folder and _mark(before[1]) == _mark(content):
                    path, content = (
                        before[0],
                        {**before[1], "last": content["last"], "times": before[1].get("times", 1) + 1},
                    )
                content.pop("sha256", None)
                write_json(path, signed(content))
    except UserError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in READ_ONLY:
            raise
        warnings.warn(f"{root / FOLDER} cannot be written, so verdicts are not kept", NotKeptWarning, stacklevel=2)
    return path


def read_verdicts(root: Path, tasks: Mapping[str, str], model: str | None = None) -> list[dict[str, Any]]:
    """Return the last verdict of each series of one model (or of all, if None), those on all rows first.

    They are in the order of the ids. Files that are unreadable or damaged are passed over.

    Args:
        tasks: the wanted ids, such as `E1-rte`, each with its task.
    """
    series = _series(root, tasks)
    last = [next(_kept(reversed(files), wanted, task_name, model), None) for wanted, task_name, files in series]
    return sorted((kept for kept in last if kept is not None), key=lambda kept: kept["limited"])


def read_history(root: Path, tasks: Mapping[str, str], model: str | None = None) -> list[list[dict[str, Any]]]:
    """Return the series of verdicts of one model (or of all, if None), each in the order in which they were given.

    Args:
        tasks: as for `read_verdicts`, which also says what is passed over.
    """
    series = (list(_kept(files, wanted, task_name, model)) for wanted, task_name, files in _series(root, tasks))
    return sorted(filter(None, series), key=lambda verdicts: verdicts[0]["limited"])


def verdict_files(root: Path) -> list[list[Path]]:
    """Return the files of each series of verdicts in a store, the oldest first."""
    return [_files(root, name) for name in _names(root)]


def _names(root: Path) -> list[str]:
    """Return the names of all series."""
    earlier = (path.stem for path in (root / EARLIER).glob("[!.]*.json"))
    return sorted({*earlier, *(path.name for path in (root / FOLDER).glob("[!.]*"))})


def _series(root: Path, tasks: Mapping[str, str]) -> Iterator[tuple[str, str, list[Path]]]:
    """Yield the files of each series that may be about one of the wanted ids, with the id and its task."""
    names = _names(root)
    for wanted, task_name in tasks.items():
        for name in names:
            if name.startswith(f"{wanted}-"):
                yield wanted, task_name, _files(root, name)


def _files(root: Path, name: str) -> list[Path]:
    """Return the files of a series, the oldest first."""
    earlier = root / EARLIER / f"{name}.json"
    return [*([earlier] if earlier.is_file() else []), *sorted((root / FOLDER / name).glob("[!.]*.json"))]


def _whole(files: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield what undamaged files hold."""
    for path in files:
        try:
            data = read_json(path)
        except UserError:
            continue
        if is_whole(data):
            yield path, data


def _kept(
    files: Iterator[Path] | list[Path], wanted: str, task_name: str, model: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the verdicts on one case that undamaged files hold."""
    for _, data in _whole(files):
        try:
            kept = KeptVerdict.model_validate(data)
        except ValidationError:
            continue
        if (kept.id, kept.task) == (wanted, task_name) and model in (None, kept.model):
            yield kept.model_copy(update={"last": kept.last or kept.made}).model_dump()


def _mark(data: Mapping[str, Any]) -> str:
    """Return a short digest of a verdict, whenever it was given, and whether its measurements were new or stored."""
    same = {name: value for name, value in data.items() if name not in NO_DIFFERENCE}
    return digest({**same, "remarks": [remark for remark in data.get("remarks", ()) if remark != "stored"]})[:8]
