"""The store of checkpoints and measurements: an entry is complete and undamaged, or it does not exist.

An entry is a folder named after its subject and the digest of everything that determines it. It is written under
a temporary name and renamed when it is complete. Its manifest is written last and lists the sha256 of each file;
every reader checks them.
"""

import json
import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from bertsecrets.errors import UserError
from bertsecrets.store.files import MANIFEST, digest, file_sha256, guarded_writes, whole_folder, write_whole


class DamagedEntryWarning(UserWarning):
    """A stored entry does not match its manifest; it is recreated, and the old one is kept beside it."""


class Store:
    """A folder of entries, sorted by kind: `checkpoints` and `measurements`."""

    def __init__(self, root: Path):
        self.root = root

    def folder(self, kind: str, name: str, key: dict[str, Any]) -> Path:
        """Return the folder for the entry of `key`: <root>/<kind>/<readable name>-<digest of the key>."""
        return self.root / kind / f"{name}-{digest(key)[:12]}"

    def find(self, kind: str, name: str, key: dict[str, Any]) -> Path | None:
        """Return the undamaged entry for `key`, or None. A damaged one is renamed, and a warning says so."""
        folder = self.folder(kind, name, key)
        if not folder.is_dir():
            return None
        problem = damage(folder)
        if problem is None:
            return folder
        aside = folder.with_name(f"{folder.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        warnings.warn(
            f"stored entry {folder} is damaged ({problem}); it is recreated",
            DamagedEntryWarning,
            stacklevel=2,
        )
        return None

    def get_or_make(
        self, kind: str, name: str, key: dict[str, Any], make: Callable[[Path], dict[str, Any]]
    ) -> tuple[Path, bool]:
        """Return the entry for `key` and make it if it does not exist; two processes never make the same one.

        Args:
            make: fills the folder that it is given, and returns what the manifest records besides the key.

        Returns:
            The entry's folder, and whether it existed before.

        Raises:
            UserError: the disk is full or the store cannot be written.
        """
        folder = self.folder(kind, name, key)
        with guarded_writes(self.root):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_name(f".{folder.name}.lock")):
                entry = self.find(kind, name, key)
                if entry:
                    return entry, True
                with whole_folder(folder) as temporary:
                    facts = make(temporary)
                    write_manifest(temporary, {"kind": kind, "name": name, "settings": key, **facts})
                return folder, False


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write the manifest: the given facts, and the sha256 of every file already in the folder."""
    files = {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
    (folder / MANIFEST).write_text(json.dumps({**facts, "files": files}, indent=1, default=str), encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return an entry's manifest.

    Raises:
        UserError: it is missing or is not valid JSON.
    """
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder} has no {MANIFEST}: it is not an entry of a store") from error
    except ValueError as error:
        raise UserError(f"{folder / MANIFEST} is not valid JSON: delete the folder to recreate it") from error


def damage(folder: Path) -> str | None:
    """Return what is wrong with an entry (a missing or altered file, an unreadable manifest), or None."""
    try:
        files = read_manifest(folder)["files"]
    except UserError as error:
        return str(error)
    except (KeyError, TypeError):
        return "its manifest lists no files"
    for name, expected in files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if file_sha256(folder / name) != expected:
            return f"{name} has changed"
    return None


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
