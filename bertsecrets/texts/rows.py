"""The rows of tasks that a session uses for training and measuring.

Subsets are drawn at random, because the first rows of a sorted file (STS-B is sorted by genre) are not representative.
K19's code also uses random rows for attention maps.
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

from bertsecrets.errors import NotGivenError, UserError
from bertsecrets.reading import read_text
from bertsecrets.texts.glue import Source, Split
from bertsecrets.texts.tasks import ALL_TASKS, task

ROW_DRAW_SEED = 2019  # seed for drawing rows; not configurable, so that all results on N rows use the same rows


@dataclass(frozen=True)
class TaskRows:
    """The rows of each task, read from `source` and limited in number.

    At most `limit` validation rows and `train_limit` training rows are used. When each head or layer is disabled in
    turn, at most `grid_limit` validation rows are used. If `trains` is False, nothing is trained, and so only
    validation rows are needed. A split is read again if its file has changed.
    """

    source: Source
    limit: int | None = None
    train_limit: int | None = None
    grid_limit: int | None = None
    trains: bool = True
    # Splits that were read, each with the state of its file, and cut splits, each with its whole split.
    _kept: dict[tuple[Any, ...], tuple[Any, Split]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def split(
        self, task_name: str, name: str, most: int | None = None, *, first: bool = False, quoted: bool = False
    ) -> Split:
        """Return a checked split (`train` or `dev`), cut to the limits.

        Args:
            most: Maximum number of rows. If `limit` or `train_limit` is lower, it applies instead.
            first: Whether to take the first rows of the file instead of random rows.
            quoted: Whether to read the file as K19's notebook does (see `read_quoted`).
        """
        wanted = min((number for number in (self._limit(name), most) if number is not None), default=None)
        key = (task_name, name, wanted, first, quoted)
        whole = self.whole(task_name, name)
        if key not in self._kept or self._kept[key][0] is not whole:
            rows = read_quoted(whole) if quoted else whole
            self._kept[key] = whole, rows.head(wanted) if first else draw_rows(rows, wanted)
        return self._kept[key][1]

    def whole(self, task_name: str, name: str) -> Split:
        """Return a checked split with all of its rows."""
        key, state = (task_name, name), self.source.state(task(task_name), name)
        if key not in self._kept or self._kept[key][0] != state:
            self._kept[key] = state, self.source.split(task(task_name), name)
        return self._kept[key][1]

    def _limit(self, name: str) -> int | None:
        return self.train_limit if name == "train" else self.limit

    def cut(self, task_name: str, name: str) -> int | None:
        """Return the row limit of a split, or None if the split has no limit or does not exceed it."""
        limit = self._limit(name)
        return limit if limit is not None and limit < len(self.whole(task_name, name)) else None

    def missing(self, task_name: str, *, training: bool | None = None) -> str | None:
        """Return why the rows of a task are not available, or None if they are available or the task is `all`.

        `training` says whether training rows are also needed. It defaults to `trains`.
        """
        if task_name == ALL_TASKS:
            return None
        needed = self.trains if training is None else training
        return self.source.missing(task(task_name), ("train", "dev") if needed else ("dev",))

    def training_facts(self, task_name: str) -> dict[str, Any]:
        """Return facts for the manifest of a checkpoint: where the training rows come from, and how many there are."""
        rows = self.split(task_name, "train")
        return {"origin": {"train": public_origin(rows)}, "rows": {"train": len(rows)}, "official": rows.official}


def draw_rows(split: Split, wanted: int | None) -> Split:
    """Return `wanted` random rows of a split, in file order. If `wanted` is None or too large, return all rows.

    The draw is deterministic. A smaller draw is a subset of a larger draw.
    """
    if wanted is None or wanted >= len(split):
        return split
    count = len(split.head(wanted))
    order = np.random.RandomState(ROW_DRAW_SEED).permutation(len(split))  # stable across numpy versions
    return split.select(np.sort(order[:count]).tolist())


def read_quoted(split: Split) -> Split:
    """Return a split as K19's notebook reads it: with `csv.reader`, which treats `"` as a quotation mark.

    A field that begins with a `"` extends to the next `"` at the end of a field, across tabs and line breaks. The rows
    in between are merged into one row with a very long text. Its second text and its label can be missing. A missing
    second text becomes an empty string. If a label is missing or unknown, the label of the first row is used instead.
    For regression, all rows get this label. Wrong labels do no harm, because attention measures do not use labels.
    """
    path, task = Path(split.origin), split.task
    if task.own or not path.is_file():
        raise NotGivenError(
            "to read texts as K19's notebook does, give the folder of GLUE's original files with the option `glue`"
        )
    before = csv.field_size_limit(sys.maxsize)
    try:
        header, *rows = csv.reader(io.StringIO(read_text(path), newline=""), delimiter="\t")
    except csv.Error as error:
        raise UserError(f"{path}: csv.reader cannot read it with quoting enabled ({error})") from error
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
    """Shuffle the words of every text in a split. The texts of a pair are shuffled separately.

    Words are separated by white space, so punctuation moves with the word it is attached to. The new order depends only
    on `draw` and the row index.
    """
    second = None if split.sentence2 is None else _shuffled(split.sentence2, draw, 2)
    return replace(split, sentence1=_shuffled(split.sentence1, draw, 1), sentence2=second, official=False)


def _shuffled(texts: Sequence[str], draw: int, of_pair: int) -> list[str]:
    orders = (np.random.default_rng([draw, of_pair, row]) for row in range(len(texts)))
    return [" ".join(order.permutation(text.split())) for text, order in zip(texts, orders, strict=True)]


def text_clusters(split: Split) -> Int[np.ndarray, " rows"]:
    """Return the cluster index of each row. Rows that share a text, directly or through other rows, form a cluster.

    The rows of a cluster are not independent. MNLI has up to three hypotheses per premise, and QNLI has several
    sentences per question. Texts are compared without leading and trailing white space, and empty texts are ignored.
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
    """Return the origin of a split. If the origin is a local file, the path of its folder is left out."""
    return "/".join(Path(split.origin).parts[-2:]) if Path(split.origin).is_file() else split.origin
