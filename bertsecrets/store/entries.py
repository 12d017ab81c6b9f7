"""The store: immutable entries, looked up by the digests of their cache keys.

An entry is a folder that is written once, under a temporary name, and renamed when it is complete. Its manifest
contains the key, the sha256 of each file and its own digest, all of which are verified on reading.
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
from bertsecrets.store.files import MANIFEST, digest, file_sha256, guarded_writes, remove, whole_folder, write_whole
from bertsecrets.store.locks import held

CHECKPOINTS, DROPPED = "checkpoints", "dropped"  # with weights, and with weights dropped
MEASUREMENTS = "measurements"
DEVICES = ("cpu", "cuda", "mps")  # types of devices that compute, unlike `meta`
MARKS = re.compile(r"[0-9a-f]{12}-[0-9a-f]{8}")
# Fields of our manifests. A manifest with four of them is treated as ours, even if damaged.
OURS = frozenset({"kind", "name", "key", "settings", "files", "sha256", "subject", "training"})


class DamagedEntryWarning(UserWarning):
    """A stored entry does not match its manifest; it is renamed to `NAME.damaged` and recreated."""


@dataclass(frozen=True)
class Key:
    """A cache key: everything that determines a result.

    `inputs` are the data, weights and settings. `made_by` identifies the code, library versions and device.
    """

    inputs: dict[str, Any]
    made_by: dict[str, Any]

    @property
    def marks(self) -> str:
        """The digests at the end of an entry's name, used to look it up."""
        return f"{digest(self.inputs)[:12]}-{digest(self.made_by)[:8]}"

    def check_unchanged(self, now: "Key") -> None:
        """Check that the inputs have not changed during use.

        Raises:
            UserError: If a file of the model, the checkpoint or the data has changed.
        """
        changed = sorted(name for name in self.inputs if self.inputs[name] != now.inputs.get(name))
        if changed:
            raise UserError(f"{', '.join(changed)} changed while in use, so nothing was stored: run the command again")

    def as_json(self) -> dict[str, Any]:
        """Return the key in JSON form, for a manifest."""
        return plain_json(asdict(self))

    @classmethod
    def of_manifest(cls, manifest: dict[str, Any]) -> "Key | None":
        """Return the key in a manifest, if any."""
        key = manifest.get("key")
        if not isinstance(key, dict) or not all(isinstance(key.get(part), dict) for part in ("inputs", "made_by")):
            return None
        return cls(key["inputs"], key["made_by"])


@dataclass(frozen=True)
class EntryName:
    """The folder name of an entry: a readable part and the digests of its key (`Key.marks`).

    >>> EntryName.parse(Path("runs/measurements/scores-minilm-rte-0123456789ab-01234567"))
    EntryName(readable='scores-minilm-rte', marks='0123456789ab-01234567')
    >>> EntryName.parse(Path("runs/notes"))
    """

    readable: str
    marks: str

    @classmethod
    def parse(cls, path: Path) -> "EntryName | None":
        """Parse an entry's name; None if the folder is not an entry."""
        parts = re.fullmatch(rf"(.+)-({MARKS.pattern})", path.name)
        return cls(*parts.groups()) if parts else None

    def __str__(self) -> str:
        return f"{self.readable}-{self.marks}"


@dataclass(frozen=True)
class Store:
    """A folder of entries, grouped by kind: `checkpoints` and `measurements`."""

    root: Path

    def find(self, kind: str, key: Key, *, verify: bool = True) -> Path | None:
        """Return the entry for `key` if it exists and is undamaged, else None.

        Args:
            verify: Whether to read all files. Otherwise, an entry with the right name counts as undamaged.
        """
        named = self._named(kind, key.marks)
        return next((folder for folder in named if not verify or damage(folder, key) is None), None)

    def get_or_make(
        self,
        kind: str,
        name: str,
        key: Key,
        make: Callable[[Path], dict[str, Any]],
    ) -> tuple[Path, bool]:
        """Return the entry for `key`, making it if it does not exist, and whether it existed.

        Two processes never make the same entry. Reading an existing entry does not write to the store.

        Args:
            name: Readable part of the name of a new entry.
            make: Function that fills a folder and returns facts to record in the manifest in addition to the key.

        Raises:
            UserError: If the disk is full or the store cannot be written.
        """
        if entry := self.find(kind, key):
            return entry, True
        folder = self.root / kind / str(EntryName(name.lstrip("."), key.marks))
        with guarded_writes(self.root):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with held(lock_of(folder), f"the {kind.removesuffix('s')} {name}"):
                if entry := self.find(kind, key):  # another process has just made it
                    return entry, True
                self._set_aside(kind, key)
                with whole_folder(folder) as temporary:
                    facts = make(temporary)
                    write_manifest(temporary, {"kind": kind, "name": name, "key": key.as_json(), **facts})
                return folder, False

    def _named(self, kind: str, marks: str) -> list[Path]:
        """Return the entries with these digests in their names."""
        return [folder for folder in sorted((self.root / kind).glob(f"[!.]*-{marks}")) if folder.is_dir()]

    def _set_aside(self, kind: str, key: Key) -> None:
        """Rename a damaged entry and warn about it."""
        for folder in self._named(kind, key.marks):
            problem = damage(folder, key)
            if not folder.is_dir():  # just deleted
                continue
            aside = folder.with_name(f"{folder.name}.damaged")
            remove(aside)
            folder.rename(aside)
            warnings.warn(
                f"stored entry {folder} is damaged ({problem}); recreating it", DamagedEntryWarning, stacklevel=3
            )


def entries(root: Path) -> Iterator[Path]:
    """Yield all entries in a store, sorted by kind and name."""
    yield from (folder for folder in sorted(root.glob("*/[!.]*")) if folder.is_dir() and EntryName.parse(folder))


def has_weights(checkpoint: Path) -> bool:
    """Return whether a checkpoint has its weights; False if they were dropped."""
    return checkpoint.parent.name != DROPPED or EntryName.parse(checkpoint) is None


def lock_of(entry: Path) -> Path:
    """Return the lock file of an entry."""
    name = EntryName.parse(entry)
    assert name is not None
    return entry.with_name(f".{name.marks}.lock")


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write a manifest with the given facts, the time, the sha256 of every file, and the manifest's own digest."""
    files = {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    files.pop(MANIFEST, None)
    made = facts.get("made") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    content = plain_json({**facts, "made": made, "files": files})
    text = json.dumps({**content, "sha256": digest(content)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return an entry's manifest.

    Raises:
        UserError: If the manifest is missing, is not valid JSON, or has been modified.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder} has no {MANIFEST}: it is not an entry of a store") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{folder / MANIFEST} is not valid JSON: delete the folder to recreate it") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise UserError(f"{folder / MANIFEST}: the manifest lists no files: delete the folder to recreate it")
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    if manifest.get("sha256") != digest(content):
        raise UserError(f"{folder / MANIFEST}: the manifest has changed: delete the folder to recreate it")
    return manifest


def damage(folder: Path, key: Key | None = None) -> str | None:
    """Describe the damage to an entry; None if it is undamaged.

    Detects missing, modified or extra files, an unreadable or modified manifest, and the key of another entry.

    Args:
        key: Expected key. By default, the one in the entry's name.
    """
    try:
        manifest = read_manifest(folder)
    except UserError as error:
        return str(error).removeprefix(f"{folder / MANIFEST}: ").partition(": delete")[0]
    own, name = Key.of_manifest(manifest), EntryName.parse(folder)
    if key is not None and (own is None or own.as_json() != key.as_json()):
        return "a different entry has this name"
    if name and own and own.marks != name.marks:
        return "a different entry has this name"
    for file, expected in manifest["files"].items():
        if not (folder / file).is_file():
            return f"{file} is missing"
        if file_sha256(folder / file) != expected:
            return f"{file} has changed"
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    added = {str(path) for path in files if not path.name.startswith(".")} - {MANIFEST, *manifest["files"]}
    return f"{min(added)} was added" if added else None


def checked_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an exported checkpoint after verifying all files; empty if it has no manifest.

    Raises:
        UserError: If the manifest is damaged, or a file does not match it.
    """
    manifest = read_own_manifest(folder)
    if manifest and (problem := damage(folder)):
        raise _refused(folder, problem)
    return manifest


def read_own_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an exported checkpoint; empty if it has no manifest.

    Raises:
        UserError: If the manifest is not valid JSON, or not an object.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {folder / MANIFEST}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(folder, f"{MANIFEST} is not valid JSON") from error
    if not isinstance(manifest, dict):
        raise _refused(folder, f"{MANIFEST} is not a JSON object")
    return manifest if len(OURS & manifest.keys()) >= 4 else {}


def _refused(folder: Path, problem: str) -> UserError:
    return UserError(
        f"{folder} was modified ({problem}): recreate it, or delete its {MANIFEST} if it was changed on purpose"
    )


def plain_json(data: Any) -> Any:
    """Return data as after a JSON round trip: tuples become lists, and keys become strings."""
    return json.loads(json.dumps(data, default=str))


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file atomically, with null for NaN and infinity."""
    write_whole(path, json.dumps(finite(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        UserError: If the file is missing or is not valid JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error})") from error


def finite(data: Any) -> Any:
    """Replace NaN and infinity by None in nested data.

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
