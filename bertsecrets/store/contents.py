"""List the contents of a store, including damaged and unneeded items.

All functions are safe to run alongside other processes, and skip items that are being read or written.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.store.entries import CHECKPOINTS, DROPPED, MEASUREMENTS, EntryName, Key, damage
from bertsecrets.store.files import MANIFEST, REPLACED, UNFINISHED, digest, guarded_writes, is_intact, remove_unused
from bertsecrets.store.locks import unused

ENTRIES = (CHECKPOINTS, DROPPED, MEASUREMENTS)
GRIDS, PARSES, TRAINING = "grids", "parses", "training"
KINDS = (*ENTRIES, GRIDS, TRAINING, PARSES)
DAMAGED = ".damaged"
LEFTOVER = re.compile(rf"\..+(\.[a-z0-9_]{{8}}{re.escape(UNFINISHED)}|{re.escape(REPLACED)})")  # of a killed process
ABANDONED = 30  # days after which the saved state of an unfinished training run is no longer needed

Outdated = Callable[[str, dict[str, Any]], str | None]  # why an entry of this kind and manifest is outdated, if so


@dataclass(frozen=True)
class Item:
    """An item in a store. `manifest` is empty if it is missing or unreadable."""

    path: Path
    kind: str
    bytes: int
    made: datetime
    manifest: dict[str, Any]

    @property
    def subject(self) -> str:
        """The readable part of the name."""
        name = EntryName.parse(self.path)
        return name.readable if name else self.path.stem

    @property
    def marks(self) -> str:
        """The digests in the name, or the full name if there are none."""
        name = EntryName.parse(self.path)
        return name.marks if name else self.path.name

    @property
    def key(self) -> Key | None:
        """The cache key of the entry, or None."""
        return Key.of_manifest(self.manifest)


@dataclass(frozen=True)
class Unneeded:
    """An item that can be deleted, with the reason."""

    path: Path
    bytes: int
    reason: str

    def remove(self) -> bool:
        """Delete the item unless a running process uses it, and return whether it is gone.

        Raises:
            UserError: If the item cannot be deleted.
        """
        with guarded_writes(self.path):
            return remove_unused(self.path)


def items(root: Path) -> list[Item]:
    """Return the items in a store, sorted by kind and name, except hidden files and damaged copies.

    Raises:
        UserError: If the folder does not exist.
    """
    if not root.is_dir():
        raise UserError(f"no store at {root}: name its folder with --store")
    paths = [(kind, path) for kind in KINDS for path in sorted((root / kind).glob("[!.]*"))]
    present = [_item(kind, path) for kind, path in paths if not path.name.endswith(DAMAGED)]
    return [item for item in present if item is not None]


def _item(kind: str, path: Path) -> Item | None:
    manifest = _json_object(path / MANIFEST) if kind in ENTRIES else {}
    try:
        return Item(path, kind, size(path), _made(path, manifest), manifest)
    except FileNotFoundError:  # just removed by another process
        return None


def _json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def size(path: Path) -> int:
    """Return the size of a file, or of all files in a folder, in bytes."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.lstat().st_size if not file.is_dir() else 0
        except FileNotFoundError:
            continue
    return total


def _made(path: Path, manifest: dict[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(manifest["made"])
    except (KeyError, TypeError, ValueError):
        newest = max((file.lstat().st_mtime for file in path.rglob("*") if file.exists()), default=0.0)
        return datetime.fromtimestamp(max(path.lstat().st_mtime, newest), UTC)


# ---------------------------------------------------------------------- damage


def problems(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield every path in a store that has a digest, with a description of any damage, or None.

    Raises:
        UserError: If the folder does not exist.
    """
    for item in items(root):
        # Each portion of a grid and each training state has its own digest.
        parts = sorted(item.path.glob("[!.]*")) if item.kind in (GRIDS, TRAINING) else [item.path]
        for path in parts:
            problem = _problem(path)
            if problem is None or path.exists():  # not removed in the meantime
                yield path, problem


def _problem(path: Path) -> str | None:
    try:
        if path.is_dir():
            return damage(path)
        data = json.loads(path.read_text(encoding="utf-8"))
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return "it is not valid JSON"
    return None if is_intact(data) else "it has changed"


# ---------------------------------------------------------------------- what is no longer needed


def unneeded(root: Path, outdated: Outdated | None) -> list[Unneeded]:
    """Return the items that a store no longer needs and that no running process uses.

    These are leftovers of killed processes, damaged copies, outdated entries, grids of finished measurements, and
    states of finished or abandoned training runs.

    Args:
        outdated: Function that returns why an entry is outdated, or None. If not given, outdated entries are kept.

    Raises:
        UserError: If the folder does not exist.
    """
    present = items(root)
    listed = [*_leftovers(root), *_damaged(root), *_outdated(present, outdated), *_dropped(present)]
    return [*listed, *_grids(present, outdated), *_training_states(present)]


def _leftovers(root: Path) -> Iterator[Unneeded]:
    folders = [root / kind for kind in KINDS]
    folders += [folder for kind in (GRIDS, TRAINING) for folder in (root / kind).glob("[!.]*")]
    for path in sorted(path for folder in folders for path in folder.glob(".*") if LEFTOVER.fullmatch(path.name)):
        with unused(path) as free:
            if free:
                yield Unneeded(path, size(path), "left behind by a killed process")


def _damaged(root: Path) -> Iterator[Unneeded]:
    for path in sorted(path for kind in ENTRIES for path in (root / kind).glob(f"[!.]*{DAMAGED}")):
        yield Unneeded(path, size(path), "a damaged copy, recreated since")


def _outdated(present: list[Item], outdated: Outdated | None) -> Iterator[Unneeded]:
    for item in present:
        if outdated is not None and item.key and (reason := outdated(item.kind, item.manifest)):
            yield Unneeded(item.path, item.bytes, reason)


def _dropped(present: list[Item]) -> Iterator[Unneeded]:
    with_weights = {item.marks for item in present if item.kind == CHECKPOINTS}
    for item in present:
        if item.kind == DROPPED and item.marks in with_weights:
            yield Unneeded(item.path, item.bytes, "its checkpoint has been trained again")


def _grids(present: list[Item], outdated: Outdated | None) -> Iterator[Unneeded]:
    measured = {item.marks for item in present if item.kind == MEASUREMENTS and damage(item.path) is None}
    for item in present:
        if item.kind != GRIDS:
            continue
        about = _json_object(item.path / "grid.json").get("about")
        if item.marks in measured:
            yield Unneeded(item.path, item.bytes, "parts of a finished measurement")
        elif outdated is not None and (reason := outdated(GRIDS, about if isinstance(about, dict) else {})):
            yield Unneeded(item.path, item.bytes, reason)


def _training_states(present: list[Item]) -> Iterator[Unneeded]:
    trained = {digest(item.key.as_json()) for item in present if item.kind == CHECKPOINTS and item.key}
    now = time.time()
    for item in present:
        days = (now - item.made.timestamp()) / 86400
        if item.kind == TRAINING and item.path.name in trained:
            yield Unneeded(item.path, item.bytes, "the state of a finished training")
        elif item.kind == TRAINING and days > ABANDONED:
            yield Unneeded(item.path, item.bytes, f"the state of a training run interrupted {days:.0f} days ago")
