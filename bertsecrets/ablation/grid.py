"""A resumable computation for many sets of heads, split into portions that several processes can share.

A grid is stored in a folder, in which `grid.json` records the sets of heads and the inputs. Finished portions are
subfolders such as `portion-0003`, which contain their results in `predicted.npz`. A portion is written atomically, with
a manifest that identifies the grid. While a process computes a portion, it holds a lock that the operating system
releases when the process exits. Two processes never compute the same portion, and the next run computes all portions
that are missing or damaged.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from bertsecrets.ablation.head_sets import HeadSet, label, lowest_layer
from bertsecrets.errors import UserError
from bertsecrets.store.entries import damage, read_manifest, write_manifest
from bertsecrets.store.files import (
    digest,
    guarded_writes,
    is_intact,
    read_json_object,
    whole_folder,
    with_digest,
    write_whole,
)
from bertsecrets.store.locks import held, held_now, in_use
from bertsecrets.store.measurements import READ_ERRORS

Report = Callable[[float], Any]
Compute = Callable[[Sequence[HeadSet], Report], Shaped[np.ndarray, " sets *rest"]]
WAIT_SECONDS = 0.5  # seconds between checks for portions from other processes
GRID_FILE, RESULT_FILE = "grid.json", "predicted.npz"


@dataclass(frozen=True)
class Grid:
    """A grid that is stored in a folder. Each portion lists the indices of sets that are computed together.

    `mark` is a digest of everything that determines the results.
    """

    folder: Path
    sets: Sequence[HeadSet]
    portions: Sequence[Sequence[int]]
    mark: str

    @classmethod
    def open(cls, folder: Path, sets: Sequence[HeadSet], *, layers: int, size: int, about: dict[str, Any]) -> "Grid":
        """Open the grid in `folder`, creating it if necessary.

        Args:
            layers: Number of layers in the model. Sets with the same lowest layer are computed together, because they
                share the most work.
            size: Maximum number of sets per portion. If a run is interrupted, unfinished portions are lost.
            about: Everything that determines the results besides the sets, such as weights and inputs, as JSON data.
        """
        order = sorted(range(len(sets)), key=lambda i: lowest_layer(sets[i], layers))
        portions = [order[start : start + size] for start in range(0, len(order), size)]
        facts = {"about": about, "size": size, "sets": [label(heads) for heads in sets]}
        mark = digest(facts)
        with guarded_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with held(folder / ".grid.lock", f"the grid {folder.name}"):
                stored = read_json_object(folder / GRID_FILE)
                if not is_intact(stored):
                    write_whole(folder / GRID_FILE, json.dumps(with_digest(facts), indent=1, sort_keys=True))
                elif stored["sha256"] != mark:
                    raise UserError(
                        f"{folder} contains a different grid (see its grid.json): "
                        "choose another folder, or delete this one"
                    )
        return cls(folder, sets, portions, mark)

    def fill(self, compute: Compute, progress: Report = lambda done: None) -> Shaped[np.ndarray, " sets *rest"]:
        """Compute missing portions, and return all results in the order of `sets`.

        Args:
            compute: Function that returns the results for the given sets. Its second argument is a progress callback.
            progress: Progress callback. Its argument is the number of sets, possibly fractional, completed since the
                last call by this or another process.
        """
        results: dict[int, np.ndarray] = {}
        with in_use(self.folder):
            while missing := [number for number in range(len(self.portions)) if number not in results]:
                for number in missing:
                    if (result := self._portion(number, compute, progress)) is not None:
                        results[number] = result
                if results.keys().isdisjoint(missing):
                    time.sleep(WAIT_SECONDS)  # other processes are computing all missing portions
        return np.concatenate([results[n] for n in sorted(results)])[np.argsort(np.concatenate(self.portions))]

    def _portion(self, number: int, compute: Compute, report: Report) -> np.ndarray | None:
        """Return the results of a portion, or None if another process is still computing it."""
        place, sets = self.folder / f"portion-{number:04d}", [self.sets[i] for i in self.portions[number]]
        result = self._read(place)
        if result is None:
            with held_now(self.folder / f".portion-{number:04d}.lock") as ours:
                if not ours:
                    return None
                result = self._read(place)  # another process may have finished it
                if result is None:
                    result = compute(sets, report)
                    with guarded_writes(place), whole_folder(place, replace=True) as temporary:
                        np.savez_compressed(temporary / RESULT_FILE, predicted=result)
                        write_manifest(temporary, {"kind": "portion", "name": place.name, "grid": self.mark})
                    return result
        report(float(len(sets)))
        return result

    def _read(self, place: Path) -> np.ndarray | None:
        """Return the results of a finished portion, or None if they are missing, damaged or from another grid."""
        try:
            if damage(place) is not None or read_manifest(place).get("grid") != self.mark:
                return None
            with np.load(place / RESULT_FILE, allow_pickle=False) as file:
                return file["predicted"]
        except (UserError, *READ_ERRORS):
            return None
