"""What a store holds, what of it is damaged, and what is no longer needed.

All of it may run next to other processes: what they use or write is left alone.
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
from bertsecrets.store.files import MANIFEST, REPLACED, UNFINISHED, digest, guarded_writes, is_whole, remove_unused
from bertsecrets.store.locks import unused
from bertsecrets.store.verdicts import FOLDER as HISTORY
from bertsecrets.store.verdicts import verdict_files

ENTRIES = (CHECKPOINTS, DROPPED, MEASUREMENTS)
GRIDS, PARSES, VERDICTS, TRAINING = "grids", "parses", "verdicts", "training"
KINDS = (*ENTRIES, GRIDS, TRAINING, PARSES, VERDICTS)
DAMAGED = ".damaged"
LEFT = re.compile(rf"\..+(\.[a-z0-9_]{{8}}{re.escape(UNFINISHED)}|{re.escape(REPLACED)})")  # by a killed process
EARLIER = "made by an earlier version of bertsecrets"
ABANDONED = 30  # days after which the saved state of a training that nobody has finished is no longer needed

Older = Callable[[str, dict[str, Any]], str | None]  # says why something of this kind and manifest is outdated


@dataclass(frozen=True)
class Item:
    """One thing in a store. `manifest` is empty if it has none, or an unreadable one."""

    path: Path
    kind: str
    bytes: int
    made: datetime
    manifest: dict[str, Any]

    @property
    def subject(self) -> str:
        """The readable part of its name; of a verdict, the name of its series."""
        if self.path.parent.parent.name == HISTORY:
            return self.path.parent.name
        name = EntryName.parse(self.path)
        return name.readable if name else self.path.stem

    @property
    def marks(self) -> str:
        """The digests in its name; the name itself if it has none."""
        name = EntryName.parse(self.path)
        return name.marks if name else self.path.name

    @property
    def key(self) -> Key | None:
        """The key of an entry; None for what has none."""
        return Key.of_manifest(self.manifest)

    @property
    def earlier(self) -> bool:
        """Whether an earlier version wrote it, whose entries are no longer used."""
        return "settings" in self.manifest and not {"key", "sha256"} & self.manifest.keys()


@dataclass(frozen=True)
class Unneeded:
    """Something that can be deleted from a store, and why."""

    path: Path
    bytes: int
    reason: str

    def remove(self) -> bool:
        """Delete it unless a running process uses it; returns whether it is gone.

        Raises:
            UserError: it cannot be deleted.
        """
        with guarded_writes(self.path):
            return remove_unused(self.path)


def items(root: Path) -> list[Item]:
    """Return everything that a store holds, by kind and name, except hidden files and damaged copies.

    Raises:
        UserError: there is no such folder.
    """
    if not root.is_dir():
        raise UserError(f"no store at {root}: name its folder with --store")
    paths = [(kind, path) for kind in KINDS for path in _paths(root, kind)]
    held = [_item(kind, path) for kind, path in paths if not path.name.endswith(DAMAGED)]
    return [item for item in held if item is not None]


def _paths(root: Path, kind: str) -> list[Path]:
    if kind == VERDICTS:
        return [path for series in verdict_files(root) for path in series]
    return sorted((root / kind).glob("[!.]*"))


def _item(kind: str, path: Path) -> Item | None:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8")) if kind in ENTRIES else {}
    except (OSError, ValueError, RecursionError):
        manifest = {}
    manifest = manifest if isinstance(manifest, dict) else {}
    try:
        return Item(path, kind, size(path), _made(path, manifest), manifest)
    except FileNotFoundError:  # removed by another process just now
        return None


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for below in path.rglob("*"):
        try:
            total += below.lstat().st_size if not below.is_dir() else 0
        except FileNotFoundError:
            continue
    return total


def _made(path: Path, manifest: dict[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(manifest["made"])
    except (KeyError, TypeError, ValueError):
        newest = max((below.lstat().st_mtime for below in path.rglob("*") if below.exists()), default=0.0)
        return datetime.fromtimestamp(max(path.lstat().st_mtime, newest), UTC)


# ---------------------------------------------------------------------- what is damaged


def problems(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield everything in a store that has a digest, each with what is wrong with it, or None.

    Entries of earlier versions are left out; they are never read.

    Raises:
        UserError: there is no such folder.
    """
    for item in items(root):
        for path in [] if item.earlier else _parts(item):
            problem = _problem(item.kind, path)
            if problem is None or path.exists():  # and was not removed meanwhile
                yield path, problem


def _parts(item: Item) -> list[Path]:
    """Return what has a digest of its own: an entry, a file, each portion of a grid, each state of a training."""
    if item.kind in (GRIDS, TRAINING):
        return sorted(item.path.glob("[!.]*"))
    return [item.path]


def _problem(kind: str, path: Path) -> str | None:
    try:
        if path.is_dir():
            problem = damage(path)
            return problem.removeprefix(f"{path / MANIFEST}: ").partition(": delete")[0] if problem else None
        data = json.loads(path.read_text(encoding="utf-8"))
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return "it is not valid JSON"
    if "sha256" not in data:
        return "it has no digest, as earlier versions wrote it"
    return None if is_whole(data) else "it has changed"


# ---------------------------------------------------------------------- what is no longer needed


def unneeded(root: Path, older: Older | None, verdicts: int | None = None) -> list[Unneeded]:
    """Return what a store no longer needs, except what running processes use.

    These are leftovers of killed processes, damaged copies, entries made by other code or versions than those in use,
    grids whose measurement exists, and states of trainings that are finished or abandoned.

    Args:
        older: says why something is outdated, by its kind and manifest; None keeps everything outdated.
        verdicts: how many are kept of each claim, task and model, the newest ones; None keeps all.

    Raises:
        UserError: there is no such folder.
    """
    held = items(root)
    listed = [*_left(root), *_damaged(root), *_older(held, older), *_dropped(held)]
    listed += [*_grids(held, older), *_states(held)]
    return listed if verdicts is None else [*listed, *_past(root, verdicts)]


def _past(root: Path, verdicts: int) -> Iterator[Unneeded]:
    for series in verdict_files(root):
        for path in series[:-verdicts]:
            yield Unneeded(path, size(path), f"not among the last {verdicts} verdicts of its kind")


def _left(root: Path) -> Iterator[Unneeded]:
    places = [root / kind for kind in KINDS]
    places += [folder for kind in (GRIDS, TRAINING, HISTORY) for folder in (root / kind).glob("[!.]*")]
    for path in sorted(path for place in places for path in place.glob(".*") if LEFT.fullmatch(path.name)):
        with unused(path) as free:
            if free:
                yield Unneeded(path, size(path), "left behind by a killed process")


def _damaged(root: Path) -> Iterator[Unneeded]:
    for path in sorted(path for kind in ENTRIES for path in (root / kind).glob(f"[!.]*{DAMAGED}")):
        yield Unneeded(path, size(path), "a damaged copy, recreated since")


def _older(held: list[Item], older: Older | None) -> Iterator[Unneeded]:
    for item in held:
        if older is None or item.manifest.get("kind") != item.kind:
            continue
        reason = EARLIER if item.earlier else older(item.kind, item.manifest)
        if reason:
            yield Unneeded(item.path, item.bytes, reason)


def _dropped(held: list[Item]) -> Iterator[Unneeded]:
    whole = {item.marks for item in held if item.kind == CHECKPOINTS}
    for item in held:
        if item.kind == DROPPED and item.marks in whole:
            yield Unneeded(item.path, item.bytes, "its checkpoint has been trained again")


def _grids(held: list[Item], older: Older | None) -> Iterator[Unneeded]:
    measured = {item.marks for item in held if item.kind == MEASUREMENTS and damage(item.path) is None}
    for item in held:
        if item.kind != GRIDS:
            continue
        try:
            about = json.loads((item.path / "grid.json").read_text(encoding="utf-8"))["about"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            about = {}
        if item.marks in measured:
            yield Unneeded(item.path, item.bytes, "parts of a finished measurement")
        elif older is not None:
            own = EntryName.parse(item.path) and isinstance(about, dict)
            reason = older(GRIDS, about) if own else EARLIER
            if reason:
                yield Unneeded(item.path, item.bytes, reason)


def _states(held: list[Item]) -> Iterator[Unneeded]:
    """Yield the states of trainings whose checkpoint exists, or that were abandoned long ago."""
    trained = {digest(item.key.as_json()) for item in held if item.kind == CHECKPOINTS and item.key}
    now = time.time()
    for item in held:
        days = (now - item.made.timestamp()) / 86400
        if item.kind == TRAINING and item.path.name in trained:
            yield Unneeded(item.path, item.bytes, "the state of a finished training")
        elif item.kind == TRAINING and days > ABANDONED:
            yield Unneeded(item.path, item.bytes, f"the state of a training that was left {days:.0f} days ago")
