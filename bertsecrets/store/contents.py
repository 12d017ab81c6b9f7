"""Functions that list the contents of a store, including damaged and unneeded items.

These functions can run while other processes use the store.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.store import files
from bertsecrets.store.entries import CHECKPOINTS, ENTRY_NAME, MEASUREMENTS, Key, damage
from bertsecrets.store.locks import unused

ENTRY_KINDS = (CHECKPOINTS, MEASUREMENTS)
GRIDS, PARSES, TRAINING_STATES = "grids", "parses", "training"
ITEM_KINDS = (*ENTRY_KINDS, GRIDS, TRAINING_STATES, PARSES)
DAMAGED_SUFFIX = ".damaged"
# Temporary files and folders that a killed process leaves behind.
LEFTOVER_NAME = re.compile(
    rf"\..+(\.[a-z0-9_]{{8}}{re.escape(files.UNFINISHED_SUFFIX)}|{re.escape(files.REPLACED_SUFFIX)})"
)
ABANDONED_DAYS = 30  # days after which the saved state of an unfinished training run is no longer needed

Outdated = Callable[[str, dict[str, Any]], str | None]  # returns why an entry is outdated, or None if it is current


@dataclass(frozen=True)
class Item:
    """An item in a store. `manifest` is empty if the item has no readable manifest."""

    path: Path
    kind: str
    bytes: int
    made: datetime
    manifest: dict[str, Any]

    @property
    def title(self) -> str:
        """The title in the item's manifest. For items without a manifest, the readable part of the item's name."""
        name = ENTRY_NAME.fullmatch(self.path.name)
        return self.manifest.get("name") or (name and name[1]) or self.path.stem

    @property
    def digests(self) -> str:
        """The digests in the item's name, or the whole name if it contains no digests."""
        name = ENTRY_NAME.fullmatch(self.path.name)
        return name[2] if name else self.path.name

    @property
    def key(self) -> Key | None:
        """The cache key in the item's manifest, or None if the manifest contains no valid key."""
        return Key.of_manifest(self.manifest)


@dataclass(frozen=True)
class Unneeded:
    """An item that can be deleted, and the reason why it is not needed."""

    path: Path
    bytes: int
    reason: str

    def remove(self) -> bool:
        """Delete the item unless a running process uses it, and return whether the item is gone."""
        with files.guarded_writes(self.path):
            return files.remove_unused(self.path)


def items(root: Path) -> list[Item]:
    """Return all items in a store except hidden files and damaged copies, sorted by kind and name."""
    if not root.is_dir():
        raise UserError(f"no store at {root}: specify the folder of the store with --store")
    paths = [(kind, path) for kind in ITEM_KINDS for path in files.listed(root / kind)]
    present = [_item(kind, path) for kind, path in paths if not path.name.endswith(DAMAGED_SUFFIX)]
    return [item for item in present if item is not None]


def _item(kind: str, path: Path) -> Item | None:
    manifest = files.read_json_object(path / files.MANIFEST) if kind in ENTRY_KINDS else {}
    try:
        return Item(path, kind, size(path), _made(path, manifest), manifest)
    except FileNotFoundError:  # another process has just removed it
        return None


def size(path: Path) -> int:
    """Return the size in bytes of a file or of all files in a folder."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for file in files.listed_below(path):
        with suppress(FileNotFoundError):
            total += file.lstat().st_size if not file.is_dir() else 0
    return total


def _made(path: Path, manifest: dict[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(manifest["made"])
    except (KeyError, TypeError, ValueError):
        newest = max((file.lstat().st_mtime for file in files.listed_below(path) if file.exists()), default=0.0)
        return datetime.fromtimestamp(max(path.lstat().st_mtime, newest), UTC)


# ---------------------------------------------------------------------- damage


def problems(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Verify all items in a store that have a digest, and yield each path with a description of the damage, or None."""
    for item in items(root):
        # Each portion of a grid and each training state has its own digest.
        parts = files.listed(item.path) if item.kind in (GRIDS, TRAINING_STATES) else [item.path]
        for path in parts:
            problem = _problem(path)
            if problem is None or path.exists():  # not removed in the meantime by another process
                yield path, problem


def _problem(path: Path) -> str | None:
    if path.is_dir():
        return damage(path)
    try:
        return None if files.is_intact(files.read_json(path)) else "it has changed"
    except UserError as error:
        return str(error)


# ---------------------------------------------------------------------- what is no longer needed


def unneeded(root: Path, outdated: Outdated | None, *, keep_checkpoints: bool = True) -> list[Unneeded]:
    """Return the items in a store that are no longer needed. `Unneeded.remove` keeps items that a running process uses.

    These are damaged copies, outdated entries, what killed processes have left behind, grids of finished measurements,
    and states of training runs that have finished or were abandoned.

    If `outdated` is None, outdated entries are left out. If `keep_checkpoints` is False, all checkpoints are listed.
    """
    present = items(root)
    finished = {item.path.name for item in present if item.kind == CHECKPOINTS}
    finished |= {item.path.name for item in present if item.kind == MEASUREMENTS and damage(item.path) is None}
    reasons = ((item, _reason(item, finished, outdated, keep_checkpoints)) for item in present)
    found = [Unneeded(item.path, item.bytes, reason) for item, reason in reasons if reason is not None]
    copies = [path for kind in ENTRY_KINDS for path in files.listed(root / kind) if path.name.endswith(DAMAGED_SUFFIX)]
    damaged = [Unneeded(path, size(path), "a damaged entry that was recreated") for path in copies]
    return [*_leftovers(root), *damaged, *found]


def _leftovers(root: Path) -> Iterator[Unneeded]:
    folders = [root / kind for kind in ITEM_KINDS]
    folders += [folder for kind in (GRIDS, TRAINING_STATES) for folder in files.listed(root / kind)]
    for path in sorted(
        path for folder in folders for path in files.listed(folder, ".*") if LEFTOVER_NAME.fullmatch(path.name)
    ):
        with unused(path) as free:
            if free:
                yield Unneeded(path, size(path), "left behind by a killed process")


def _reason(item: Item, finished: set[str], outdated: Outdated | None, keep_checkpoints: bool) -> str | None:
    """Return why an item is not needed, or None. `finished` contains the names of stored entries."""
    if item.kind in (GRIDS, TRAINING_STATES) and item.path.name in finished:
        return "parts of a finished measurement" if item.kind == GRIDS else "the state of a finished training run"
    if item.kind == TRAINING_STATES:
        days = (time.time() - item.made.timestamp()) / 86400
        return f"the state of a training run interrupted {days:.0f} days ago" if days > ABANDONED_DAYS else None
    facts = item.manifest if item.key else None
    if item.kind == GRIDS:
        facts = files.read_json_object(item.path / "grid.json").get("about")
    reason = outdated(item.kind, facts) if outdated is not None and isinstance(facts, dict) else None
    if reason is None and item.kind == CHECKPOINTS and not keep_checkpoints:
        return "will be retrained if a new measurement needs it"
    return reason
