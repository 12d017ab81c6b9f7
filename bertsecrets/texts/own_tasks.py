"""User-defined tasks: texts and labels that a user provides as a table in memory, a CSV or TSV file, or a task file.

A task contains its rows, which are read and checked when it is created, so that it can be sent to another process.
"""

import csv
import inspect
import io
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.arguments import checked, is_text
from bertsecrets.errors import UserError, errors_in, excerpt, near_matches, quoted
from bertsecrets.reading import YAML_LIMIT, YamlError, expanded, lines_of, read_text, read_yaml
from bertsecrets.store.files import file_sha256
from bertsecrets.texts.glue import Split
from bertsecrets.texts.metrics import METRICS, is_constant
from bertsecrets.texts.tasks import ALL_TASKS, GLUE_TASKS, Task, task_name_of
from bertsecrets.types import INITIALISATIONS, plain

REGRESSION_METRIC = "pearson"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
KINDS: dict[type, str] = {bool: "true or false", int: "a number", float: "a number"}
LARGEST_SCORE = 1e100  # whose square, and the sum of many squares, is finite
NUMBER = re.compile(r"[-+]?(inf|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?)")  # float() also accepts 1_0
# Names that have another meaning in a claim's name, on the command line, or as a mark of pytest.
RESERVED_NAMES = (
    *(ALL_TASKS, *(task.name for task in GLUE_TASKS), *INITIALISATIONS, "and", "in", "not", "or", "mean"),
    *("skip", "skipif", "xfail", "parametrize", "usefixtures", "filterwarnings", "benchmark"),
)


class OwnTask(Task):
    """A task of your own, defined by texts and labels.

    Data can be a pandas `DataFrame`, a `datasets.Dataset`, a mapping of columns, or the path of a CSV or TSV file with
    a header. Every row needs its texts and a label.

    ```python
    task = bs.Task("complaints", train=train, dev="dev.csv", texts=("title", "text"), label="upheld")
    bs.Session(model="minilm", tasks=[task]).judge("C1", seeds=3)
    ```

    Attributes:
        splits: The checked rows of each split, by name: `dev` and, if training rows were given, `train`.
        fingerprints: The fingerprint of each split.
        file: The task file that describes the task, or None.
        data_files: The sha256 of each file of rows when it was read.
    """

    splits: Mapping[str, Split]
    fingerprints: Mapping[str, str]
    file: Path | None
    data_files: Mapping[Path, str]

    @checked
    def __init__(
        self,
        name: str,
        *,
        dev: Any,
        train: Any = None,
        texts: str | Sequence[str] = "text",
        label: str = "label",
        metric: str = "accuracy",
        labels: Sequence[str | int] | None = None,
        file: Path | None = None,
    ):
        """Read and check the rows.

        Args:
            name: Name of the task: a letter, followed by up to 59 letters, digits, hyphens and underscores.
            dev: Validation rows, on which models are measured.
            train: Training rows, which are only needed to fine-tune models.
            texts: Name of the text column, or names of both text columns if each row has a text pair.
            label: Name of the column that contains the labels: names or numbers of classes or, for `pearson`, scores.
            metric: `accuracy`, `f1` (F1 of the second of two classes), or `pearson` (for regression).
            labels: Names of the classes, in the order of a model's outputs. By default, these are the classes that
                occur in the training rows, in alphabetical or numerical order.
            file: Task file that describes the task. Paths of data are relative to the folder of this file.

        Raises:
            UserError: If the name, metric or a column is invalid, if a value is missing, or if a label is unknown or is
                the only one. The message names the row, counted from 1, or the line of the file.
        """
        what, folded = f"task {name}", task_name_of(name)
        columns = (texts,) if isinstance(texts, str) else tuple(texts)
        if not re.fullmatch("[A-Za-z][A-Za-z0-9_-]{0,59}", name) or folded in map(task_name_of, RESERVED_NAMES):
            allowed = f"use at most 60 letters, digits, - and _, and none of the names {', '.join(RESERVED_NAMES)}"
            raise UserError(f"{excerpt(name, 60)!r} cannot be the name of your own task: {allowed}")
        if len(columns) not in (1, 2):
            raise UserError(f"{what} has {len(columns)} text columns, but must have one or two")
        if metric not in METRICS:
            raise UserError(f"{what}: unknown metric {excerpt(metric, 60)!r}: {near_matches(metric, METRICS)}")
        given = {"dev": dev} if train is None else {"train": train, "dev": dev}
        tables = {split: _table(data, f"{what}, {split}", columns, label, file) for split, data in given.items()}
        classes = () if metric == REGRESSION_METRIC else _classes(next(iter(tables.values())), labels, metric, what)
        super().__init__(
            name=folded,
            title=name,
            folder=folded,
            sentence1=columns[0],
            sentence2=columns[1] if len(columns) == 2 else None,
            label=label,
            labels=classes,
            label_codes={},
            metric=metric,
            train_rows=len(tables["train"].labels) if "train" in tables else 0,
            dev_rows=len(tables["dev"].labels),
            own=True,
        )
        data_files = {table.path.absolute(): file_sha256(table.path) for table in tables.values() if table.path}
        splits = {split: table.split(self, split) for split, table in tables.items()}
        fingerprints = {split: rows.fingerprint for split, rows in splits.items()}
        vars(self).update(file=file, data_files=data_files, splits=splits, fingerprints=fingerprints)
        for split, rows in splits.items():
            if is_constant(self, rows.targets()):
                value = f"about {rows.labels[0]}" if self.regression else rows.labels[0]
                raise UserError(f"{what}, {split}: every label is {value}: add rows with other labels")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnTask) and self.fingerprints == other.fingerprints

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        kind = "scores" if self.regression else f"classes {excerpt(', '.join(self.labels), 60)}"
        rows = " and ".join(f"{len(split)} {name}" for name, split in self.splits.items())
        return f"<Task {self.title}: {kind}; {rows} rows>"

    def check_data(self) -> None:
        """Check that no file of rows has been edited since it was read. Deleted files are ignored."""
        for path, sha256 in self.data_files.items():
            if path.is_file() and file_sha256(path) != sha256:
                raise UserError(f"{path} was edited after {self.title} was created from it: create the task again")


@dataclass(frozen=True)
class _Table:
    """The columns of a table, its class names if it defines any, and its file. `place` describes a row's location."""

    texts: list[list[str]]
    labels: list[Any]
    names: tuple[str, ...]
    path: Path | None
    place: Callable[[int], str]

    def split(self, task: Task, name: str) -> Split:
        """Return the rows of the table as a split, after checking their labels."""
        labels: list[Any] = [*map(_number if task.regression else _label_name, self.labels)]
        for row, label in enumerate(labels):
            if not (abs(label) <= LARGEST_SCORE if task.regression else label in task.labels):
                expected = f"one of {excerpt(', '.join(task.labels))}"
                expected = f"a number of at most {LARGEST_SCORE:g}" if task.regression else expected
                raise UserError(f"{self.place(row)}: unknown label {quoted(self.labels[row])}: expected {expected}")
        second = self.texts[1] if len(self.texts) > 1 else None
        origin = f"own data, {self.path.name}" if self.path else f"task {task.title}, {name}"
        return Split(task, name, self.texts[0], second, labels, origin, official=False)


def _table(data: Any, what: str, texts: Sequence[str], label: str, file: Path | None) -> _Table:
    """Read the columns of a table (an object in memory or a file), and check that each cell has a valid value."""
    import pandas as pd  # takes a third of a second to import

    path, place = None, lambda row: f"{what}, row {row + 1}"
    if isinstance(data, str | Path):
        path = file.parent / expanded(data) if file else expanded(data)
        what += f" ({path})"
        data, place = _read_file(path)
    names = [*(data.keys() if callable(getattr(data, "keys", None)) else getattr(data, "column_names", None) or ())]
    if not names:
        raise UserError(f"{what} must be a DataFrame, a Dataset or the path of a CSV or TSV file, not {quoted(data)}")
    columns: dict[str, list[Any]] = {}
    for column in (*texts, label):
        if names.count(column) != 1:
            raise UserError(f"{what} must have one column {excerpt(column, 60)!r}: its columns are {excerpt(names)}")
        cells = data[column]
        if isinstance(cells, str | set | Mapping) or not isinstance(cells, Iterable) or getattr(cells, "ndim", 1) != 1:
            raise UserError(f"{what}: column {column!r} must be a list of values, not {quoted(cells)}")
        columns[column] = [*map(_cell, cells)]
    lengths = {column: len(cells) for column, cells in columns.items()}
    if len({0, *lengths.values()}) != 2:
        raise UserError(f"{what} has no rows, or its columns differ in length: {excerpt(lengths)}")
    features = getattr(data, "features", None)  # features of a Dataset, whose classes may have names
    classes = tuple(getattr(features[label], "names", ())) if isinstance(features, Mapping) else ()
    if classes:
        columns[label] = [classes[each] if each is not None and each >= 0 else None for each in columns[label]]
    for column, values in columns.items():
        empty = ("", "nan", "NaN") if column == label else ("",)
        missing = pd.Series([None if str(value).strip() in empty else value for value in values], dtype=object).isna()
        kinds = ["text" if is_text(value) else KINDS.get(type(value)) for value in values]
        kind = (kinds[0] or "text or numbers") if column == label else "text"
        for row, (value, found, is_missing) in enumerate(zip(values, kinds, missing.tolist(), strict=True)):
            if is_missing:
                raise UserError(f"{place(row)}: column {column!r} has no value: add the value, or remove the row")
            if found != kind:
                raise UserError(f"{place(row)}: column {column!r} must hold {kind}, not {quoted(value)}")
    return _Table([columns[column] for column in texts], columns[label], classes, path, place)


def _read_file(path: Path) -> tuple[dict[str, list[str]], Callable[[int], str]]:
    """Return the columns of a CSV or TSV file, and a function that describes where a row ends."""
    delimiter = DELIMITERS.get(path.suffix.lower())
    if delimiter is None:
        raise UserError(f"{path} is neither CSV nor TSV: its name must end in {' or '.join(DELIMITERS)}")
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        rows = [(fields, reader.line_num) for fields in reader if fields]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}: an open quotation mark or a long text?") from error
    if len({*header}) < max(1, len(header)):
        raise UserError(f"{path}: the first line must name the columns, and each name must be unique")
    for fields, line in rows:
        if len(fields) != len(header):
            raise UserError(f"{path}, line {line} has {len(fields)} instead of {len(header)} fields")
        merged = lines_of("\t".join(fields))  # the lines that quotation marks may have merged
        if delimiter == "\t" and len(merged) > 1 and {each.count("\t") for each in merged} == {len(header) - 1}:
            raise UserError(f"{path}, line {line}: quotation marks merge {len(merged)} rows: save the file as CSV")
    columns = {name: [fields[place] for fields, _ in rows] for place, name in enumerate(header)}
    return columns, lambda row: f"{path}, line {rows[row][1]}"


def _cell(value: Any) -> Any:
    """Return a value as plain data, and whole numbers that are too large for a float as infinite."""
    value = plain(value)
    return math.inf if isinstance(value, int) and value.bit_length() >= sys.float_info.max_exp else value


def _number(value: Any) -> float:
    return float(value) if not isinstance(value, str) or NUMBER.fullmatch(value) else math.nan


def _look(name: str) -> str:
    """Return how a label looks: without case, spaces, invisible characters and different encodings of a character."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(character for character in folded if unicodedata.category(character)[0] not in "CZ")


def _label_name(value: Any) -> str:
    """Return a class name as text. 1.0 becomes `1`, because pandas stores integers with gaps as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _classes(table: _Table, given: Sequence[str | int] | None, metric: str, what: str) -> tuple[str, ...]:
    """Return the names of the classes in the order of a model's outputs."""
    found = {_label_name(value) for value in table.labels}
    numeric = all(map(NUMBER.fullmatch, found))
    classes = (
        tuple(map(_label_name, given or ())) or table.names or tuple(sorted(found, key=_number if numeric else str))
    )
    scores = [name for name in found if NUMBER.fullmatch(name) and float(name) % 1]  # inf % 1 is NaN
    if scores and not (given or table.names):
        raise UserError(f"{what}: labels such as {min(scores)} are scores, which need the metric {REGRESSION_METRIC}")
    different = {float(look) if NUMBER.fullmatch(look) else look for look in map(_look, classes)}  # 1 equals 1.0
    if len(different) < max(2, len(classes)):
        raise UserError(f"{what} has the labels {excerpt(classes)}, but needs two or more, each with only one spelling")
    if metric == "f1" and len(classes) != 2:
        raise UserError(f"{what} has {len(classes)} classes, but the metric f1 needs two: use accuracy instead")
    return classes


def read_task_file(path: Path) -> OwnTask:
    """Return the task that a YAML file describes. Its fields are arguments of `OwnTask`, as strings or lists.

    Raises:
        UserError: If the file or its data are invalid.
    """
    try:
        _, given = read_yaml(read_text(path, YAML_LIMIT, "cannot read the task file"), as_text=True)
    except YamlError as error:
        raise UserError(f"{path}, line {error.line}: {error}") from error
    given = given if isinstance(given, dict) else {}
    for name in (name for name, value in given.items() if value in ("", "~", "null")):
        raise UserError(f"{path}: the field {excerpt(name, 60)} is empty: give a value, or remove the field")
    known = [name for name in inspect.signature(OwnTask.__init__).parameters if name not in ("self", "file")]
    for name in given.keys() - {*known}:
        raise UserError(f"{path}: unknown field {excerpt(name, 60)!r}: {near_matches(name, known)}")
    for name in {"name", "dev"} - given.keys():
        raise UserError(f"{path} has no field {name}: the fields name and dev (the validation data) are required")
    with errors_in(path):
        return OwnTask(**given, file=path)
