"""A long list of sets of heads, computed in portions that survive an interruption and that processes can share.

A grid is a folder: `grid.json` records its sets and inputs, and each finished portion is a folder that is written
completely or not at all (`portion-0003/predicted.npz`). A process that computes a portion holds a lock on it, which the
operating system releases when the process ends, however it ends. So nothing is computed twice, and the next run
computes whatever is missing.
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
WAIT = 0.5  # seconds, after which the portions that other processes hold are checked again
RESULT = "predicted.npz"


@dataclass(frozen=True)
class Grid:
    """Sets of heads in a folder; each of the `portions` lists the numbers, in `sets`, of those computed together."""

    folder: Path
    sets: Sequence[HeadSet]
    portions: Sequence[Sequence[int]]

    @classmethod
    def open(cls, folder: Path, sets: Sequence[HeadSet], *, layers: int, size: int, about: dict[str, Any]) -> "Grid":
        """Return the grid in `folder`, which is created if it does not exist.

        Args:
            layers: number of layers of the model; sets with the same lowest layer are computed together, because they
                share the most work.
            size: sets per portion, at most; an interruption loses the portions that were being computed.
            about: everything else that determines the results (weights, inputs), as JSON data.

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
                        f"{folder} holds another grid (see its grid.json): name another folder, or delete this one"
                    )
        return cls(folder, sets, portions)

    def fill(
        self, compute: Compute, progress: Callable[[float], Any] | None = None
    ) -> Shaped[np.ndarray, " sets *rest"]:
        """Compute what is missing, and return all results in the order of `sets`.

        Args:
            compute: returns the results of the sets that it is given, and calls its second argument with the number
                of sets (or parts of sets) done since the last call.
            progress: called with the number of sets done since the last call, by this or another process.

        Raises:
            UserError: the disk is full, or the folder cannot be written.
        """
        report = progress or (lambda _done: None)
        results: dict[int, np.ndarray] = {}
        while len(results) < len(self.portions):
            before = len(results)
            for number, places in enumerate(self.portions):
                if number not in results:
                    result = self._portion(number, [self.sets[i] for i in places], compute, report)
                    if result is not None:
                        results[number] = result
            if len(results) == before:
                time.sleep(WAIT)  # other processes are computing all that is missing
        joined = np.concatenate([results[number] for number in range(len(self.portions))])
        return joined[np.argsort(np.concatenate([np.asarray(places) for places in self.portions]))]

    def _portion(self, number: int, sets, compute: Compute, report: Callable[[float], Any]) -> np.ndarray | None:
        """Return one portion's results; None while another process computes it."""
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
    """Return a finished portion; None if it is unfinished or damaged."""
    try:
        with np.load(place / RESULT, allow_pickle=False) as file:
            return file["predicted"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(place: Path, result: np.ndarray) -> None:
    """Write a finished portion, and remove a damaged one and what a killed process has left behind."""
    for old in [place, *(path for path in place.parent.glob(f".{place.name}.*") if path.is_dir())]:
        shutil.rmtree(old, ignore_errors=True)
    with guarded_writes(place), whole_folder(place) as temporary:
        np.savez_compressed(temporary / RESULT, predicted=result)
