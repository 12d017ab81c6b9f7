"""The store of checkpoints and measurements: an entry is complete and undamaged, or it does not exist.

An entry is a folder that is found by the digests of its key: of what was asked, and of what computed it. The rest of
its name is for people. It is written under a temporary name and renamed when it is complete. Its manifest is written
last, holds the key, lists the sha256 of each file and covers itself; every reader checks it.
"""

import json
import math
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.store.files import MANIFEST, digest, file_sha256, guarded_writes, whole_folder, write_whole
from bertsecrets.store.locks import held, left_alone
from bertsecrets.store.permissions import make_folders

MARKS = re.compile(r"(?P<inputs>[0-9a-f]{12})-(?P<made_by>[0-9a-f]{8})")


class DamagedEntryWarning(UserWarning):
    """A stored entry does not match its manifest; it is recreated, and the old one is kept beside it."""


@dataclass(frozen=True)
class Key:
    """Everything that determines a result.

    `inputs` say what was asked: of which data and weights, with which settings. `made_by` says what computed it: code,
    versions of libraries, device.
    """

    inputs: dict[str, Any]
    made_by: dict[str, Any]

    @property
    def marks(self) -> str:
        """The digests by which an entry is found, the last part of its name."""
        return f"{digest(self.inputs)[:12]}-{digest(self.made_by)[:8]}"

    def as_json(self) -> dict[str, Any]:
        """Return the key as a manifest holds it."""
        return plain_json(asdict(self))

    @classmethod
    def of_manifest(cls, manifest: dict[str, Any]) -> "Key | None":
        """Return the key that a manifest holds; None if it holds none."""
        held = manifest.get("key")
        if not isinstance(held, dict) or not all(isinstance(held.get(part), dict) for part in ("inputs", "made_by")):
            return None
        return cls(held["inputs"], held["made_by"])


@dataclass(frozen=True)
class Store:
    """A folder of entries, sorted by kind: `checkpoints` and `measurements`.

    `accept_older` takes entries made by other code, versions or devices where there is none by the present ones.
    """

    root: Path
    accept_older: bool = False

    def folder(self, kind: str, name: str, key: Key) -> Path:
        """Return the folder for a new entry of `key`: <root>/<kind>/<readable name>-<digests of the key>."""
        return self.root / kind / f"{name.lstrip('.')}-{key.marks}"

    def find(self, kind: str, key: Key) -> Path | None:
        """Return the undamaged entry for `key` (with `accept_older`, else the newest for its inputs), or None."""
        exact = (folder for folder in self._named(kind, key.marks) if damage(folder, key) is None)
        return next(exact, None) or (self._older(kind, key) if self.accept_older else None)

    def named(self, kind: str, key: Key) -> Path | None:
        """Return the entry for `key` by its name alone, without reading its files; `find` checks them."""
        named = next(iter(self._named(kind, key.marks)), None)
        return named or (self._older(kind, key) if self.accept_older else None)

    def get_or_make(
        self,
        kind: str,
        name: str,
        key: Key,
        make: Callable[[Path], dict[str, Any]],
        will_do: Callable[[Path], bool] = lambda entry: True,
    ) -> tuple[Path, bool]:
        """Return the entry for `key` and make it if it does not exist; two processes never make the same one.

        An entry that exists is read without writing anything. A damaged one is renamed, and a warning says so.

        Args:
            name: the readable part of the name of a new entry.
            make: fills the folder that it is given, and returns what the manifest records besides the key.
            will_do: whether an entry that exists is whole enough; one that is not is replaced, as soon as no process
                reads it any more.

        Returns:
            The entry's folder, and whether it existed before.

        Raises:
            UserError: the disk is full or the store cannot be written.
        """
        entry = self.find(kind, key)
        if entry and will_do(entry):
            return entry, True
        folder = self.folder(kind, name, key)
        with guarded_writes(self.root):
            make_folders(folder.parent)
            with held(lock_of(folder), f"the {kind.removesuffix('s')} {name}"):
                entry = self.find(kind, key)  # another process may have made it
                if entry and will_do(entry):
                    return entry, True
                folder = entry if entry and entry.name.endswith(key.marks) else folder
                if folder != entry:
                    self._set_aside(kind, key)
                with ExitStack() as until_replaced, whole_folder(folder, replace=True) as temporary:
                    facts = make(temporary)
                    write_manifest(temporary, {"kind": kind, "name": name, "key": key.as_json(), **facts})
                    if folder == entry:
                        until_replaced.enter_context(left_alone(folder, f"{kind.removesuffix('s')} {name}"))
                return folder, False

    def _named(self, kind: str, marks: str) -> list[Path]:
        """Return the entries with these digests, whatever the readable part of their names."""
        return [folder for folder in sorted((self.root / kind).glob(f"[!.]*-{marks}")) if folder.is_dir()]

    def _older(self, kind: str, key: Key) -> Path | None:
        """Return the newest undamaged entry for the same inputs, whatever made it; None if there is none."""
        inputs = key.as_json()["inputs"]
        of_inputs = [path for path in self._named(kind, f"{key.marks[:12]}-*") if MARKS.search(path.name[-21:])]
        whole = [path for path in of_inputs if damage(path) is None]
        manifests = {path: read_manifest(path) for path in whole}
        same = [path for path in whole if (own := Key.of_manifest(manifests[path])) and own.inputs == inputs]
        return max(same, key=lambda path: (manifests[path].get("made", ""), path.name), default=None)

    def _set_aside(self, kind: str, key: Key) -> None:
        for folder in self._named(kind, key.marks):
            aside = folder.with_name(f"{folder.name}.damaged")
            problem = damage(folder, key)
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            warnings.warn(
                f"stored entry {folder} is damaged ({problem}); it is recreated", DamagedEntryWarning, stacklevel=3
            )


def entries(root: Path) -> Iterator[Path]:
    """Yield the folders of all entries of a store, by kind and name."""
    for folder in sorted(root.glob("*/[!.]*")):
        if folder.is_dir() and MARKS.fullmatch(folder.name[-21:]):
            yield folder


def lock_of(entry: Path) -> Path:
    """Return the lock under which an entry of a store is made or rewritten."""
    return entry.with_name(f".{entry.name[-21:]}.lock")


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write the manifest: the given facts, the time, the sha256 of every file in the folder, and that of all this.

    Facts of an entry that is rewritten hold the time at which it was made.
    """
    files = {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    files.pop(MANIFEST, None)
    made = facts.get("made") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    content = plain_json({**facts, "made": made, "files": files})
    text = json.dumps({**content, "sha256": digest(content)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return an entry's manifest.

    Raises:
        UserError: it is missing, is not valid JSON, or has changed since it was written.
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
    """Return what is wrong with an entry, or None.

    That is a missing, altered or added file, a manifest that is unreadable or was altered, or the key of another entry.
    An entry that seems damaged is looked at once more: another process may have replaced it meanwhile.

    Args:
        key: the key that was asked for; without it, an entry of a store must have the key that its name says.
    """
    return _damage(folder, key) and _damage(folder, key)


def _damage(folder: Path, key: Key | None) -> str | None:
    try:
        manifest = read_manifest(folder)
    except UserError as error:
        return str(error)
    own, named = Key.of_manifest(manifest), MARKS.fullmatch(folder.name[-21:])
    if key is not None and (own is None or own.as_json() != key.as_json()):
        return "it is another entry under this one's name"
    if named and own is not None and own.marks != named.group():
        return "it is another entry under this one's name"
    for name, expected in manifest["files"].items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if file_sha256(folder / name) != expected:
            return f"{name} has changed"
    held_files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    added = {str(path) for path in held_files if not path.name.startswith(".")} - {MANIFEST, *manifest["files"]}
    return f"{min(added)} was added" if added else None


def plain_json(data: Any) -> Any:
    """Return the same data as JSON gives them back: tuples as lists, all names as text."""
    return json.loads(json.dumps(data, default=str))


def write_json(path: Path, data: Any) -> None:
    """Write JSON completely or not at all; NaN and infinity, which JSON does not have, become null."""
    write_whole(path, json.dumps(finite(data), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        UserError: the file is missing or is not valid JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error})") from error


def finite(data: Any) -> Any:
    """Return the same data with None for every NaN and infinity.

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
