"""The rows of GLUE tasks that a session trains and measures on.

Where not all rows are wanted, as many are drawn at random: files may be sorted (STS-B's by genre), and their first rows
then stand for nothing but themselves. K19's code draws the rows whose attention it reads, too.
"""

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.reading import read_text
from bertsecrets.texts.glue import Source, Split
from bertsecrets.texts.tasks import ALL_TASKS, task

DRAWING = 2019  # seed of the order in which rows are drawn; no setting, so that all results on N rows rest on the same


@dataclass(frozen=True)
class TaskRows:
    """The source of rows, and how many of them are read.

    `limit` is the number of validation rows, `train_limit` that of training rows; `grid_limit` that of validation rows
    when every head or layer is disabled in turn. `trains` is False if nothing is trained, so that tasks need only their
    validation rows. A split is read once, so that all of a session's results rest on the same rows; another session
    reads it again.
    """

    source: Source
    limit: int | None = None
    train_limit: int | None = None
    grid_limit: int | None = None
    trains: bool = True
    _read: dict[tuple[str, str], Split] = field(default_factory=dict, init=False, repr=False, compare=False)
    _cut: dict[tuple[str, str, int | None, bool, bool], Split] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def split(
        self, task_name: str, name: str, most: int | None = None, *, first: bool = False, quoted: bool = False
    ) -> Split:
        """Return a checked split (`train` or `dev`), limited to the rows that are read.

        Args:
            most: how many rows are wanted at most; fewer where the limit is lower.
            first: take the first rows of the file instead of drawing them.
            quoted: read the file as K19's notebook does (`read_quoted`).

        Raises:
            UserError: the data are missing, malformed or unofficial.
        """
        wanted = min((number for number in (self._limit(name), most) if number is not None), default=None)
        key = (task_name, name, wanted, first, quoted)
        if key not in self._cut:
            whole = self.whole(task_name, name)
            whole = read_quoted(whole) if quoted else whole
            self._cut[key] = whole.head(wanted) if first else draw_rows(whole, wanted)
        return self._cut[key]

    def whole(self, task_name: str, name: str) -> Split:
        """Return a checked split with all its rows.

        Raises:
            UserError: as `split`.
        """
        if (task_name, name) not in self._read:
            self._read[task_name, name] = self.source.split(task(task_name), name)
        return self._read[task_name, name]

    def _limit(self, name: str) -> int | None:
        return self.train_limit if name == "train" else self.limit

    def cut(self, task_name: str, name: str) -> int | None:
        """Return the limit on a split if it leaves rows out, else None."""
        limit = self._limit(name)
        return limit if limit is not None and limit < len(self.whole(task_name, name)) else None

    def missing(self, task_name: str, *, training: bool | None = None) -> str | None:
        """Return why a task's rows are not available; None if they are, and for `all` tasks together.

        Args:
            training: whether training rows are needed as well; by default if anything is trained.
        """
        if task_name == ALL_TASKS:
            return None
        needed = self.trains if training is None else training
        return self.source.missing(task(task_name), ("train", "dev") if needed else ("dev",))

    def facts(self, task_name: str, names: tuple[str, ...]) -> dict[str, Any]:
        """Return origin and size of a task's splits, which a checkpoint's manifest records."""
        splits = {name: self.split(task_name, name) for name in names}
        return {
            "origin": {name: public_origin(split) for name, split in splits.items()},
            "rows": {name: len(split) for name, split in splits.items()},
            "official": all(split.official for split in splits.values()),
        }


def draw_rows(split: Split, wanted: int | None) -> Split:
    """Return so many rows of a split, drawn at random, in file order; all, if there are no more or `wanted` is None.

    The same rows are drawn every time, and those of a smaller number are among those of a larger one.

    Raises:
        UserError: `wanted` is below 1.
    """
    if wanted is None or wanted >= len(split):
        return split
    count = len(split.head(wanted))
    order = np.random.RandomState(DRAWING).permutation(len(split))  # the same in all versions of numpy
    return split.select(np.sort(order[:count]).tolist())


def read_quoted(split: Split) -> Split:
    """Return a split as K19's notebook reads its file: by `csv.reader` with quoting on, so that a `"` is not text.

    A field that begins with a `"` then ends at the next one that ends a field, across tabs and line ends. The rows in
    between are lost, and the row gets a very long text. A second text that is swallowed is empty; a label, which no
    measure of attention reads, is the first row's.

    Raises:
        NotApplicableError: it was not read from a file in GLUE's own layout.
        UserError: `csv.reader` cannot read the file.
    """
    path, task = Path(split.origin), split.task
    if not path.is_file():
        raise NotApplicableError("quoting is a slip in reading GLUE's own files: give a local folder with --glue")
    before = csv.field_size_limit(sys.maxsize)
    try:
        header, *rows = csv.reader(io.StringIO(read_text(path), newline=""), delimiter="\t")
    except csv.Error as error:
        raise UserError(f"{path}: csv.reader with quoting on cannot read it ({error})") from error
    finally:
        csv.field_size_limit(before)
    first, second, label = map(header.index, (task.sentence1, task.sentence2 or task.sentence1, task.label))
    whole = [row for row in rows if len(row) > first]
    codes: dict[str, Any] = {} if task.regression else dict(task.label_codes)
    return replace(
        split,
        sentence1=[row[first] for row in whole],
        sentence2=[row[second] if len(row) > second else "" for row in whole] if split.sentence2 is not None else None,
        labels=[codes.get(row[label] if len(row) > label else "", split.labels[0]) for row in whole],
    )


def shuffled(split: Split, draw: int) -> Split:
    """Return a split whose texts have their words in a random order, each text of a pair by itself.

    Words are separated by white space, so punctuation moves with its word. The order of a text depends only on `draw`
    and the row's number.
    """
    second = None if split.sentence2 is None else _shuffled(split.sentence2, draw, 2)
    return replace(split, sentence1=_shuffled(split.sentence1, draw, 1), sentence2=second, official=False)


def _shuffled(texts: Sequence[str], draw: int, of_pair: int) -> list[str]:
    orders = (np.random.default_rng([draw, of_pair, row]) for row in range(len(texts)))
    return [" ".join(order.permutation(text.split())) for text, order in zip(texts, orders, strict=True)]


def text_clusters(split: Split) -> Int[np.ndarray, " rows"]:
    """Return the number of each row's cluster, from 0; rows share one if they share a text, directly or through others.

    Such rows are not independent examples: MNLI has up to three hypotheses for a premise, QNLI several sentences for a
    question. Texts are compared without the white space around them; empty ones connect nothing.
    """
    from scipy.sparse import coo_array  # takes a third of a second to import
    from scipy.sparse.csgraph import connected_components

    columns: list[Sequence[str]] = [column for column in (split.sentence1, split.sentence2) if column is not None]
    places: dict[str, int] = {}
    links = [
        (row, places.setdefault(text.strip(), len(places)))
        for column in columns
        for row, text in enumerate(column)
        if text.strip()
    ]
    rows, texts = np.array(links, dtype=np.int64).reshape(-1, 2).T
    size = len(split) + len(places)
    graph = coo_array((np.ones(len(rows), dtype=bool), (rows, len(split) + texts)), shape=(size, size))
    of_rows = connected_components(graph, directed=False)[1][: len(split)]
    _, numbers = np.unique(of_rows, return_inverse=True)
    return numbers.astype(np.int64)


def public_origin(split: Split) -> str:
    """Return a split's origin without the folders of this machine, which mean nothing to others."""
    return "/".join(Path(split.origin).parts[-2:]) if Path(split.origin).is_file() else split.origin
