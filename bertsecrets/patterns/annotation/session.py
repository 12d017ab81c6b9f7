"""One annotator at work on a set of maps: what is shown in which order, what each key changes, what is on disk.

Every label is written the moment it is given, so that one may stop anywhere. Who labelled stands in `annotators.json`.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from bertsecrets.errors import UserError
from bertsecrets.patterns.annotation.agreement import Agreement, set_agreement
from bertsecrets.patterns.annotation.map_set import ANNOTATIONS, ANNOTATORS, LOCK, MapSet, check_set
from bertsecrets.patterns.classes import CLASSES, check_class
from bertsecrets.store.files import guarded_writes, write_whole

FIRST, SECOND = "label", "second label"
ORDER_SEED = 2019  # of the order in which maps are shown, and of the second annotator's subset


@dataclass
class Annotation:
    """The state of one annotator's work. Places count from 0 in the order shown.

    The second annotator sees a subset in an order of its own, and never the first's labels.
    """

    folder: Path
    maps: MapSet
    annotator: str
    second: bool
    order: list[int]
    history: list[tuple[int, str | None]] = field(default_factory=list)
    written: str = ""

    @classmethod
    def open(
        cls, folder: Path, annotator: str | None = None, second: int | None = None, anew: bool = False
    ) -> "Annotation":
        """Go on with a set.

        Args:
            annotator: a name; without one, whoever labelled before.
            second: label so many maps as the second annotator; None for the first one's work on all maps.
            anew: leave out the labels that are there; the first label given replaces them all.

        Raises:
            UserError: no set there, the labels are another annotator's, or an impossible number of maps.
        """
        maps = MapSet.load(folder)
        if second is not None and not 1 <= second <= len(maps):
            raise UserError(f"a second annotator on {second} of {len(maps)} maps: give 1 to {len(maps)}")
        known = _annotators(folder)
        column = SECOND if second is not None else FIRST
        name = annotator or known.get(column) or ("second" if second is not None else "first")
        if anew:
            maps = maps.relabelled({one.name: None for one in maps}, second is not None)
        labelled = any(maps.second_labels if second is not None else maps.labels)
        if labelled and annotator and known.get(column) != annotator:
            raise UserError(
                f"the {column}s in {folder} are {known.get(column, 'someone unnamed')}'s, not {annotator}'s: go on "
                "under that name, label a subset with --second N, or replace them all with --anew (in a copy)"
            )
        if second is not None and known.get(FIRST) == name:
            raise UserError(f"{name} is the first annotator of {folder}: the second one needs another name")
        rng = np.random.default_rng([ORDER_SEED, int(second is not None)])
        made = cls(folder, maps, name, second is not None, rng.permutation(len(maps))[:second].tolist())
        made.written = (folder / ANNOTATIONS).read_text(encoding="utf-8")
        return made

    # ------------------------------------------------------------------ what is there

    def __len__(self) -> int:
        return len(self.order)

    @property
    def labels(self) -> list[str | None]:
        """This annotator's labels, in the order shown."""
        column = self.maps.second_labels if self.second else self.maps.labels
        return [column[i] for i in self.order]

    @property
    def counts(self) -> dict[str, int]:
        """How many maps this annotator gave each class."""
        given = Counter(self.labels)
        return {name: given[name] for name in CLASSES}

    @property
    def done(self) -> int:
        """How many maps this annotator has labelled."""
        return sum(label is not None for label in self.labels)

    def open_place(self, after: int = -1) -> int:
        """Return the next place without a label, from `after` on and then from the start; where none is, the last."""
        labels = self.labels
        places = [*range(after + 1, len(self)), *range(min(after + 1, len(self)))]
        return next((place for place in places if labels[place] is None), len(self) - 1)

    def agreement(self) -> Agreement | None:
        """Return the agreement with the first annotator; None before the second one's work, which is blind, is done."""
        if not self.second or self.done < len(self):
            return None
        return set_agreement(self.maps.take(self.order))

    # ------------------------------------------------------------------ what changes

    def label(self, place: int, name: str) -> int:
        """Give a map its class, on disk too; returns the place to go to next.

        Raises:
            UserError: no such class or place, or the file cannot be written or was changed by others; nothing changes.
        """
        check_class(name)
        if not 0 <= place < len(self):
            raise UserError(f"no map at place {place}: there are {len(self)}")
        before = self.labels[place]
        self._set(place, name)
        self.history.append((place, before))
        return self.open_place(place)

    def undo(self) -> int | None:
        """Take back the last label of this sitting, on disk too; returns its place, or None if there is none.

        Raises:
            UserError: as `label`.
        """
        if not self.history:
            return None
        place, before = self.history[-1]
        self._set(place, before)
        self.history.pop()
        return place

    def _set(self, place: int, label: str | None) -> None:
        path = self.folder / ANNOTATIONS
        if not path.is_file() or path.read_text(encoding="utf-8") != self.written:
            raise UserError(
                f"{path} was changed by another program: start the command again to go on from what it says"
            )
        changed = self.maps.relabelled({self.maps[self.order[place]].name: label}, self.second)
        known = _annotators(self.folder)
        column = SECOND if self.second else FIRST
        if known.get(column) != self.annotator:
            write_whole(self.folder / ANNOTATORS, json.dumps(known | {column: self.annotator}, indent=1) + "\n")
        changed.save_annotations(self.folder)
        self.maps, self.written = changed, path.read_text(encoding="utf-8")


def _annotators(folder: Path) -> dict[str, str]:
    path = folder / ANNOTATORS
    if not path.is_file():
        return {}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): put it right or remove it") from error
    if not isinstance(known, dict) or not all(isinstance(name, str) for name in known.values()):
        raise UserError(f'{path} is damaged: it should hold names, such as {{"label": "Anna"}}')
    return known


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other annotators' processes away from a set while the block runs.

    Raises:
        UserError: another process has it, or there is none.
    """
    check_set(folder)
    lock = FileLock(folder / LOCK, timeout=0)
    with guarded_writes(folder):
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(f"{folder} is being annotated by another process: end that one first") from error
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        lock.release()
