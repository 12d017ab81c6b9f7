"""The store of immutable entries. The name of each entry is computed from the entry's cache key.

An entry is a folder that is written once, under a temporary name, and renamed when it is complete. Its manifest
contains the key, the sha256 of each file and a digest of the manifest itself. All three are verified on every read.
"""

import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.store.files import (
    MANIFEST,
    digest,
    file_sha256,
    files_below,
    guarded_writes,
    is_intact,
    listed,
    read_json,
    remove,
    whole_folder,
    with_digest,
    write_whole,
)
from bertsecrets.store.locks import held

NO_SOURCE = "code without a source file"  # part of keys that cannot identify the code
CHECKPOINTS, MEASUREMENTS = "checkpoints", "measurements"
ENTRY_NAME = re.compile(r"(?:(.+)-)?([0-9a-f]{12}-[0-9a-f]{8})")  # an entry's name: readable words and `Key.digests`
NAME_INPUTS = ("measure", "task", "initialisation", "seed")  # the inputs in an entry's name
# Fields of the suite's manifests. A file with four of them is treated as such a manifest, even if damaged.
MANIFEST_FIELDS = frozenset({"kind", "name", "key", "settings", "files", "sha256", "subject", "training"})


class DamagedEntryWarning(UserWarning):
    """Warning that a stored entry does not match its manifest. The entry is renamed, and a new one is made."""


@dataclass(frozen=True)
class Key:
    """A cache key, which contains everything that determines a result.

    `inputs` are the data, weights and settings. `made_by` identifies the code, library versions and device. In the key
    of a measurement, `inputs["checkpoint"]` identifies the measured checkpoint. If the suite trained the checkpoint,
    this is the key under which the checkpoint was stored. For other checkpoints, it is a digest of the weights.
    """

    inputs: dict[str, Any]
    made_by: dict[str, Any]

    @property
    def digests(self) -> str:
        """The digests of `inputs` and `made_by`."""
        return f"{digest(self.inputs)[:12]}-{digest(self.made_by)[:8]}"

    @property
    def name(self) -> str:
        """The name of the entry's folder. The entry's lock, grid and training states are named after this folder.

        >>> Key({"task": "rte", "initialisation": "pretrained", "seed": 1}, {}).name
        'rte-pretrained-1-267583cbaae6-44136fa3'
        """
        checkpoint = self.inputs.get("checkpoint")
        inputs = (checkpoint["inputs"] if isinstance(checkpoint, dict) else {}) | self.inputs
        # A user's own task is named without its metric and classes, which follow after a space.
        words = [str(inputs[name]).partition(" ")[0] for name in NAME_INPUTS if name in inputs]
        return "-".join([*words, self.digests])

    @property
    def identifies_code(self) -> bool:
        """Whether the key covers all code. Otherwise, results must not be stored, because they could be outdated."""
        return self.made_by.get("code") is not None and NO_SOURCE not in json.dumps(self.as_json())

    def check_unchanged(self, now: "Key") -> None:
        """Check that the inputs did not change while they were used. `now` is a key made from the current inputs."""
        changed = sorted(name for name in self.inputs if self.inputs[name] != now.inputs.get(name))
        if changed:
            raise UserError(f"{', '.join(changed)} changed while in use, so nothing was stored: run the command again")

    def as_json(self) -> dict[str, Any]:
        """Return the key in JSON form, for a manifest."""
        return plain_json(asdict(self))

    @classmethod
    def of_manifest(cls, manifest: dict[str, Any]) -> "Key | None":
        """Return the key in a manifest, or None if the manifest contains no valid key."""
        key = manifest.get("key")
        if not isinstance(key, dict) or not all(isinstance(key.get(part), dict) for part in ("inputs", "made_by")):
            return None
        return cls(key["inputs"], key["made_by"])


@dataclass(frozen=True)
class Store:
    """A folder of entries, grouped by kind: `checkpoints` and `measurements`."""

    root: Path

    def find(self, kind: str, key: Key, *, verify: bool = True) -> Path | None:
        """Return the entry for `key`, or None if it is missing or damaged. If `verify` is False, damage is ignored."""
        entry = self.root / kind / key.name
        return entry if entry.is_dir() and not (verify and damage(entry, key)) else None

    def get_or_make(self, kind: str, title: str, key: Key, make: Callable[[Path], dict[str, Any]]) -> tuple[Path, bool]:
        """Return the entry for `key`, and whether it already existed. A missing or damaged entry is recreated.

        Two processes never make the same entry. Reading an existing entry does not write to the store.

        Args:
            title: Description of a new entry, for messages and for the entry's manifest.
            make: Function that writes a new entry's files to a folder, and returns additional facts for the manifest.
        """
        if entry := self.find(kind, key):
            return entry, True
        entry = self.root / kind / key.name
        with guarded_writes(self.root):
            entry.parent.mkdir(parents=True, exist_ok=True)
            with held(entry.with_name(f".{entry.name}.lock"), f"the {kind.removesuffix('s')} {title}"):
                if self.find(kind, key):  # another process has just made the entry
                    return entry, True
                _set_aside(entry, key)
                with whole_folder(entry) as temporary:
                    facts = make(temporary)
                    write_manifest(temporary, {"kind": kind, "name": title, "key": key.as_json(), **facts})
                return entry, False


def _set_aside(entry: Path, key: Key) -> None:
    problem = damage(entry, key)
    if entry.is_dir():
        aside = entry.with_name(f"{entry.name}.damaged")
        remove(aside)
        entry.rename(aside)
        warnings.warn(f"stored entry {entry} is damaged ({problem}); recreating it", DamagedEntryWarning, stacklevel=3)


def entries(root: Path) -> Iterator[Path]:
    """Yield all entries in a store, sorted by kind and name."""
    for kind in (CHECKPOINTS, MEASUREMENTS):
        yield from (entry for entry in listed(root / kind) if ENTRY_NAME.fullmatch(entry.name) and entry.is_dir())


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write a manifest with the given facts, the current time, the sha256 of every file, and its own digest."""
    files = {str(p.relative_to(folder)): file_sha256(p) for p in files_below(folder)}
    files.pop(MANIFEST, None)
    made = facts.get("made") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    content = with_digest(plain_json({**facts, "made": made, "files": files}))
    (folder / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return an entry's manifest."""
    manifest = read_json(folder / MANIFEST)
    if not is_intact(manifest) or not isinstance(manifest.get("files"), dict):
        raise UserError(f"{MANIFEST} of {folder} has changed")
    return manifest


def damage(folder: Path, key: Key | None = None) -> str | None:
    """Return a description of the damage to an entry, or None if the entry is undamaged.

    The manifest must contain `key` or, by default, a key whose digests match the entry's name.
    """
    try:
        manifest = read_manifest(folder)
    except UserError as error:
        return str(error)
    own, name = Key.of_manifest(manifest), ENTRY_NAME.fullmatch(folder.name)
    if (key and (own is None or own.as_json() != key.as_json())) or (name and own and own.digests != name[2]):
        return "a different entry has this name"
    for file, expected in manifest["files"].items():
        if not (folder / file).is_file():
            return f"{file} is missing"
        if file_sha256(folder / file) != expected:
            return f"{file} has changed"
    files = {path.relative_to(folder) for path in files_below(folder)}
    added = {str(path) for path in files if not path.name.startswith(".")} - {MANIFEST, *manifest["files"]}
    return f"{min(added)} was added" if added else None


def checked_manifest(folder: Path) -> dict[str, Any]:
    """Verify all files of an exported checkpoint, and return its manifest, or {} if it has no manifest."""
    manifest = read_own_manifest(folder)
    if manifest and (problem := damage(folder)):
        raise _refused(folder, problem)
    return manifest


def read_own_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an exported checkpoint, or {} if the folder has no manifest of this suite."""
    try:
        manifest = read_json(folder / MANIFEST)
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        if isinstance(error.__cause__, OSError):
            raise
        raise _refused(folder, f"{MANIFEST} is not valid JSON") from error
    if not isinstance(manifest, dict):
        raise _refused(folder, f"{MANIFEST} is not a JSON object")
    return manifest if len(MANIFEST_FIELDS & manifest.keys()) >= 4 else {}


def _refused(folder: Path, problem: str) -> UserError:
    return UserError(
        f"{folder} was modified ({problem}): recreate the folder or, if the change was intended, delete its {MANIFEST}"
    )


def plain_json(data: Any) -> Any:
    """Convert data to JSON and back, which turns tuples into lists and all keys into strings."""
    return json.loads(json.dumps(data, default=str))


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file atomically, with null for NaN and infinity."""
    write_whole(path, json.dumps(finite(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def finite(data: Any) -> Any:
    """Return nested data with NaN and infinity replaced by None.

    >>> finite({"score": float("nan"), "counts": (1, 2)})
    {'score': None, 'counts': [1, 2]}
    """
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return data
