"""One annotator's work on a set of maps: the order in which maps are shown, labels given and undone, files on disk.

Every label is written at once, so that one can stop at any time. The annotators' names are in `annotators.json`.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from bertsecrets.errors import UserError, excerpt
from bertsecrets.lab.annotation.agreement import Agreement, set_agreement
from bertsecrets.patterns.classes import CLASSES, check_class
from bertsecrets.patterns.map_set import ANNOTATIONS, ANNOTATORS, LOCK, MapSet, check_set
from bertsecrets.reading import read_text
from bertsecrets.store.files import guarded_writes, write_whole

FIRST, SECOND = "label", "second label"
ORDER_SEED = 2019  # of the order in which maps are shown, and of the second annotator's subset


@dataclass
class Annotation:
    """The state of one annotator's work. Places count from 0 in the order shown.

    The second annotator sees a subset in a different order, and never the first annotator's labels.
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
        """Return the state of an annotator's work on a set, new or continued.

        Args:
            annotator: a name; by default, that of the annotator who labelled before.
            second: label this many maps as the second annotator; None for the first annotator, who labels all.
            anew: ignore the existing labels; the first label given replaces all of them.

        Raises:
            UserError: there is no set, the labels are another annotator's, or the number of maps is impossible.
        """
        maps = MapSet.load(folder)
        if second is not None and not 1 <= second <= len(maps):
            raise UserError(f"--second {second} of {len(maps)} maps: give 1 to {len(maps)}")
        known = _annotators(folder)
        column = SECOND if second is not None else FIRST
        name = annotator or known.get(column) or ("second" if second is not None else "first")
        if anew:
            maps = maps.relabelled({one.name: None for one in maps}, second is not None)
        labelled = any(maps.second_labels if second is not None else maps.labels)
        if labelled and annotator and known.get(column) != annotator:
            raise UserError(
                f"the {column}s in {folder} are {known.get(column, 'someone unnamed')}'s, not {annotator}'s: continue "
                "under that name, label a subset with --second N, or replace all labels with --anew (in a copy)"
            )
        if second is not None and known.get(FIRST) == name:
            raise UserError(f"{name} is the first annotator of {folder}: give the second one another name")
        rng = np.random.default_rng([ORDER_SEED, int(second is not None)])
        made = cls(folder, maps, name, second is not None, rng.permutation(len(maps))[:second].tolist())
        made.written = (folder / ANNOTATIONS).read_text(encoding="utf-8")
        return made

    # ------------------------------------------------------------------ state

    def __len__(self) -> int:
        return len(self.order)

    @property
    def labels(self) -> list[str | None]:
        """This annotator's labels, in the order shown."""
        column = self.maps.second_labels if self.second else self.maps.labels
        return [column[i] for i in self.order]

    @property
    def counts(self) -> dict[str, int]:
        """The number of maps that this annotator has put in each class."""
        given = Counter(self.labels)
        return {name: given[name] for name in CLASSES}

    @property
    def done(self) -> int:
        """The number of maps that this annotator has labelled."""
        return sum(label is not None for label in self.labels)

    def open_place(self, after: int = -1) -> int:
        """Return the next unlabelled place, searching from `after` and then from the start; else the last place."""
        labels = self.labels
        places = [*range(after + 1, len(self)), *range(min(after + 1, len(self)))]
        return next((place for place in places if labels[place] is None), len(self) - 1)

    def agreement(self) -> Agreement | None:
        """Return the second annotator's agreement with the first; None until the second, who works blind, is done."""
        if not self.second or self.done < len(self):
            return None
        return set_agreement(self.maps.take(self.order))

    # ------------------------------------------------------------------ changes

    def label(self, place: int, name: str) -> int:
        """Label a map, on disk too, and return the place to go to next.

        Raises:
            UserError: no such class or place, or the file cannot be written or was changed by another program; then
                nothing changes.
        """
        check_class(name)
        if not 0 <= place < len(self):
            raise UserError(f"no map at place {place}: there are {len(self)} maps, from place 0")
        before = self.labels[place]
        self._set(place, name)
        self.history.append((place, before))
        return self.open_place(place)

    def undo(self) -> int | None:
        """Undo the last label of this session, on disk too, and return its place; None if there is none.

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
                f"{path} was changed by another program: start the command again to continue from the changed file"
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
        known = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({excerpt(error)}): repair or remove it") from error
    if not isinstance(known, dict) or not all(isinstance(name, str) for name in known.values()):
        raise UserError(f'{path} is damaged: it should hold names, such as {{"label": "Anna"}}')
    return known


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Prevent other processes from annotating a set while the block runs.

    Raises:
        UserError: another process is annotating it, or there is no set.
    """
    check_set(folder)
    lock = FileLock(folder / LOCK, timeout=0)
    with guarded_writes(folder):
        try:
            lock.acquire()
        except Timeout as error:
            raise UserError(f"{folder} is being annotated by another process: stop that one first") from error
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        lock.release()
