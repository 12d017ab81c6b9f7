"""A long list of sets of heads, worked off in portions that survive an interruption and that processes share.

A grid is a folder: `grid.json` says what it is a grid of, and each finished portion is a folder that appears whole
(`portion-0003/predicted.npz`). Who works on a portion holds a lock on it; the system lets go of the lock when the
process ends, however it ends. So nothing is done twice, and whatever was not finished is simply still to be done.
"""

import json
import shutil
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Shaped

from bertsecrets.ablation.head_sets import HeadSet, label, lowest_layer
from bertsecrets.errors import UserError
from bertsecrets.store.files import guarded_writes, whole_folder, write_whole

Compute = Callable[[Sequence[HeadSet], Callable[[float], Any]], Shaped[np.ndarray, " sets *rest"]]
WAIT = 0.5  # seconds between looks at what other processes hold
RESULT = "predicted.npz"


@dataclass(frozen=True)
class Grid:
    """Sets of heads in a folder, in `portions`: the places in `sets` that are computed together."""

    folder: Path
    sets: Sequence[HeadSet]
    portions: Sequence[Sequence[int]]

    @classmethod
    def open(cls, folder: Path, sets: Sequence[HeadSet], layers: int, size: int, about: dict[str, Any]) -> "Grid":
        """The grid in `folder`, made there where it is not yet.

        Args:
            layers: of the model; sets with the same lowest layer share the most work and go together.
            size: sets per portion, at most. An interruption loses the portions being worked on.
            about: whatever else determines the results (weights, inputs); JSON.

        Raises:
            UserError: the folder holds another grid, or cannot be written.
        """
        order = sorted(range(len(sets)), key=lambda i: lowest_layer(sets[i], layers))
        portions = [order[start : start + size] for start in range(0, len(order), size)]
        facts = json.dumps(
            {"about": about, "size": size, "sets": [label(heads) for heads in sets]}, indent=1, sort_keys=True
        )
        with guarded_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".grid.lock"):
                if not (folder / "grid.json").exists():
                    write_whole(folder / "grid.json", facts)
                elif (folder / "grid.json").read_text(encoding="utf-8") != facts:
                    raise UserError(
                        f"{folder} holds another grid (see its grid.json): name another folder, or delete it"
                    )
        return cls(folder, sets, portions)

    def fill(
        self, compute: Compute, progress: Callable[[float], Any] | None = None
    ) -> Shaped[np.ndarray, " sets *rest"]:
        """Compute what is still missing, and return all results in the order of `sets`.

        Args:
            compute: results for some sets; it calls its second argument with the number of sets' worth of work done.
            progress: called with the number of sets done since the last call, by whomever.
        """
        report = progress or (lambda _done: None)
        found: dict[int, np.ndarray] = {}
        while len(found) < len(self.portions):
            before = len(found)
            for number, places in enumerate(self.portions):
                if number not in found:
                    result = self._portion(number, [self.sets[i] for i in places], compute, report)
                    if result is not None:
                        found[number] = result
            if len(found) == before:
                time.sleep(WAIT)  # others hold all that is left
        joined = np.concatenate([found[number] for number in range(len(self.portions))])
        return joined[np.argsort(np.concatenate([np.asarray(places) for places in self.portions]))]

    def _portion(self, number: int, sets, compute: Compute, report: Callable[[float], Any]) -> np.ndarray | None:
        """One portion's results; None where another process is at work on it."""
        place = self.folder / f"portion-{number:04d}"
        result = _read(place)
        if result is None:
            try:
                with FileLock(self.folder / f".portion-{number:04d}.lock", timeout=0):
                    result = _read(place)
                    if result is None:
                        result = compute(sets, report)
                        _write(place, result)
                        return result
            except Timeout:
                return None
        report(float(len(sets)))
        return result


def _read(place: Path) -> np.ndarray | None:
    """A finished portion; None where it is not finished, or damaged."""
    try:
        with np.load(place / RESULT, allow_pickle=False) as file:
            return file["predicted"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(place: Path, result: np.ndarray) -> None:
    """Keep a finished portion, in the place of a damaged one and of what a killed process left half written."""
    for old in [place, *(each for each in place.parent.glob(f".{place.name}.*") if each.is_dir())]:
        shutil.rmtree(old, ignore_errors=True)
    with guarded_writes(place), whole_folder(place) as temporary:
        np.savez_compressed(temporary / RESULT, predicted=result)
