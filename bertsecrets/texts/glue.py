"""GLUE data, read from a pinned revision on the hub or from a local folder in GLUE's original TSV layout.

Data from both sources are returned as a `Split`, and are checked against the official row and class counts. Local files
must have the format of GLUE's files: UTF-8, tab-separated, unquoted (a `"` is text), with one header line.
"""

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError, excerpt
from bertsecrets.hub import Repository
from bertsecrets.progress import counted
from bertsecrets.reading import lines_of, read_text
from bertsecrets.store.files import file_sha256, listed
from bertsecrets.texts.tasks import Task

GLUE_HUB = "nyu-mll/glue"
GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
SPLITS = ("train", "dev")
MADE_UP_COLUMN = "made_up"  # a column of the suite's own corpus that no GLUE data set has
FETCH_RECORD = "fetched.json"  # record of the splits in a GLUE folder written by `fetch --output`
TEXT_CHARACTERS = 100_000  # characters, about 20 times GLUE's longest text
# float() also accepts 1_0 and non-ASCII digits.
SCORE_PATTERN = re.compile(r"[0-9]{1,3}(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")

# The sha256 of the hub's files at this revision, from their LFS pointers. Several public projects pin the files of
# MRPC, QQP and SST-2, and one project pins the others.
GLUE_SHA256 = {
    "mnli/train-00000-of-00001.parquet": "49a4a5508b89b8fed2c6e81d2c47d00f4759050a7048c6cc5d95d31122ced3c1",
    "mnli/validation_matched-00000-of-00001.parquet":
        "7f918c09d9c35446b8e8f06a5672f8ab704e2897fecbf52e2e154141f3d7c421",
    "mrpc/train-00000-of-00001.parquet": "61fd41301e0e244b0420c4350a170c8e7cf64740335fc875a4af2d79af0df0af",
    "mrpc/validation-00000-of-00001.parquet": "33c007dbf5bfa8463d87a13e6226df8c0fcf2596c2cd39d0f3bb79754e00f50f",
    "qnli/train-00000-of-00001.parquet": "ebc7cb70a5bbde0b0336c3d51f31bb4df4673e908e8874b090b52169b1365c6c",
    "qnli/validation-00000-of-00001.parquet": "e69311b81dc65589286091d9905a27617a90436dd215c7a59832fa8f4f336169",
    "qqp/train-00000-of-00001.parquet": "4d6f02e643f7c36e9a4f7d4971a5ee9bd74063a319452fe6c87850c739774cd7",
    "qqp/validation-00000-of-00001.parquet": "efd86a539c412d74874ee451573d7bd142f56c47fe36de033b9f367d8bb0fa71",
    "rte/train-00000-of-00001.parquet": "a6252ab17015d718f6de1effe0980f7b158df63e3d16207cd8bd396b608e5147",
    "rte/validation-00000-of-00001.parquet": "fb2aa2e04f551133ba663617a15ae133dc22b0f6a969bc0629b5ea6003ee9cf8",
    "sst2/train-00000-of-00001.parquet": "66a253e67968acfabcbe49dbe9da964b42ac1c851c40ab760e8c8942efdb3229",
    "sst2/validation-00000-of-00001.parquet": "a1371f3b3a7b0bcefa8388799a9359dc3ce76c349cc0079507a7991364fd2a9b",
    "stsb/train-00000-of-00001.parquet": "bbd93bbb988fd18437e02185fe3b2bd9a18350376c392e7820de9df1b247ed1f",
    "stsb/validation-00000-of-00001.parquet": "152de7cf1fa34ee4df1c243bd209b02ade21a1d5c4fb3b7da5240f78e4000aa9",
}  # fmt: skip

# Fingerprints of splits in GLUE's original TSV files, where known. Splits from the hub are identified by their files.
# MNLI's fingerprint is that of a copy without double spaces, whose WordPiece tokens are the same. TEXT_BYTES has the
# original size.
FINGERPRINTS = {
    ("mnli", "dev"): "a839954d38e597fecc4bf122164c681e5088074d2178c4a527e2e51787bc8187",
    ("mrpc", "train"): "4f6ef28ed4bcbcf924dffa66e6f0dd6ed6a51a750286e576f85bc1a29bd99884",
    ("mrpc", "dev"): "1f5aeacdaab3ead056faf83fc3e41bdc815d5ebb0bf19be9e1d3c450ec1d00be",
    ("qnli", "dev"): "025dddf09f68c47661a499e4b9a0c1ec8b9586d934ab69ea431242d18afd21cc",
    ("rte", "train"): "da95959694e1ecc3525b6f72633171a981a106230f12d209d0d9f2afb49a6c55",
    ("rte", "dev"): "227909f7a89cf6d9d910f3d2106283998cdda7f4a675b419d2bb6d3351f42a3d",
    ("sst2", "train"): "5e35f73620bb0f7233093a54d816e2cb6789c2d474ae9316ca73501a5d1705a3",
    ("sst2", "dev"): "7022319467fb6d4b482c9f35f391046d66eaee1f5ac6e499d88d73b5bc2c5b4e",
    ("stsb", "train"): "65bfdc1b762a6232679ba6d70eac92ae737a3f55f8dfd73f029e0270c890f73b",
    ("stsb", "dev"): "4a71a3b067722ff47d153bbde6a449d3aba14a6f7405b3a72acf8659fa1b52a3",
}
# UTF-8 bytes of all texts of the other splits: `num_bytes` in the hub's dataset card, minus 20 bytes per row (two
# offsets of 4, a label of 8 and an index of 4). The texts of RTE and of QNLI's dev split have exactly this size.
TEXT_BYTES = {
    ("mnli", "train"): 66765606,
    ("mnli", "dev"): 1637483,
    ("qnli", "train"): 23517583,
    ("qqp", "train"): 43623900,
    ("qqp", "dev"): 4845154,
}


@dataclass(frozen=True)
class Split:
    """A split of a task, with its rows in the order of the file.

    `labels` are class names or, for STS-B, scores from 0 to 5. `official` is True if the split appears to be GLUE's own
    data. Results from other data are marked as unofficial. `made_up` marks the suite's synthetic corpus.
    """

    task: Task
    name: str
    sentence1: Sequence[str]
    sentence2: Sequence[str] | None
    labels: Sequence[str] | Sequence[float]
    origin: str
    official: bool
    made_up: bool = False

    def __len__(self) -> int:
        return len(self.sentence1)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hex digest of all texts and labels in order, each preceded by its length, from any source."""
        sha = hashlib.sha256(f"{self.task.identity} {self.name}".encode())
        second = self.sentence2 or [""] * len(self)
        for row in zip(self.sentence1, second, self.labels, strict=True):
            for cell in map(str, row):
                content = cell.encode()
                sha.update(b"%d:%b" % (len(content), content))
        return sha.hexdigest()

    def targets(self) -> list[float] | list[int]:
        """Return numeric labels for the loss: class indices in the order of `task.labels`, or scores for regression."""
        if self.task.regression:
            return [float(score) for score in self.labels]
        index = {name: i for i, name in enumerate(self.task.labels)}
        return [index[str(label)] for label in self.labels]

    def select(self, rows: Iterable[int]) -> "Split":
        """Return a split that contains only the rows with these indices."""
        numbers = list(rows)
        second = self.sentence2
        labels: list[Any] = [self.labels[i] for i in numbers]
        return replace(
            self,
            sentence1=[self.sentence1[i] for i in numbers],
            sentence2=None if second is None else [second[i] for i in numbers],
            labels=labels,
        )

    def head(self, limit: int | None) -> "Split":
        """Return the first `limit` rows. If there are fewer rows or if `limit` is None, return all rows."""
        if limit is None or limit >= len(self):
            return self
        if limit < 1:
            raise UserError(f"a limit of rows must be at least 1, not {limit}")
        return self.select(range(limit))


@dataclass(frozen=True)
class Source:
    """The source of splits: local GLUE folders or, if no folder is given, the hub.

    A split is read from `glue` or, if it is missing there, from the first folder in `fallbacks` that contains it. For
    example, one folder can contain the official files, and another folder can contain incomplete files.

    `own` contains the splits of user-defined tasks, by task name and split name.
    """

    glue: Path | None = None
    offline: bool = False
    allow_unofficial: bool = False
    fallbacks: tuple[Path, ...] = ()
    own: Mapping[str, Mapping[str, Split]] = field(default_factory=dict)

    def split(self, task: Task, name: str) -> Split:
        """Load a split (`train` or `dev`) and check it."""
        if task.own:
            return self._own(task, name)
        if self.glue is None:
            split, content = load_hub(task, name, self.offline), None
        else:
            folder, file = self._find(task, name)
            split = read_tsv(file, task, name)
            content = other_content(split, as_fetched(folder, split))
        problem = official_problem(split) or content
        if problem and not self.allow_unofficial:
            raise UserError(
                f"{split.origin}: {problem}; "
                "the option `allow_unofficial_data` accepts such data and marks the results as unofficial"
            )
        return replace(split, official=not problem)

    def state(self, task: Task, name: str) -> tuple[str, ...]:
        """Return a tuple that changes whenever the local data of a split change. It is empty for data from the hub."""
        if task.own:
            task.check_data()
            return (self._own(task, name).fingerprint,)
        if self.glue is None:
            return ()
        folder, file = self._find(task, name)
        record = folder / FETCH_RECORD
        return (str(file), file_sha256(file), file_sha256(record) if record.is_file() else "")

    def missing(self, task: Task, splits: Sequence[str] = SPLITS) -> str | None:
        """Return why one of the splits is missing, or None if all splits are present. The hub is not checked."""
        try:
            find = self._own if task.own else self._find
            for name in splits if self.glue is not None or task.own else ():
                find(task, name)
        except UserError as error:
            return str(error)
        return None

    def _own(self, task: Task, name: str) -> Split:
        splits = self.own.get(task.name)
        if splits is None or splits["dev"].task != task:
            raise UserError(f"{task.title} is not a task of this session, or was redefined: open a new session with it")
        if name not in splits:
            raise UserError(f"{task.title} has no training rows: give the task training data, or judge a checkpoint")
        return splits[name]

    def _find(self, task: Task, name: str) -> tuple[Path, Path]:
        """Return the first folder that contains a split, and the path of the split's file."""
        assert self.glue is not None
        for folder in (self.glue, *self.fallbacks):
            with contextlib.suppress(UserError):
                return folder, find_file(folder, task, name)
        return self.glue, find_file(self.glue, task, name)


# ---------------------------------------------------------------------- local folders


def check_glue(folder: Path) -> None:
    """Check that a GLUE folder exists."""
    try:
        there = folder.is_dir()
    except OSError as error:  # the name is too long, or access is denied
        raise UserError(f"cannot read the GLUE folder {excerpt(folder, 100)}: {error.strerror}") from error
    if not there:
        raise UserError(f"no GLUE folder at {folder}: give the folder that contains files such as RTE/dev.tsv")
    if (folder / "train.tsv").is_file():
        raise UserError(f"{folder} is the folder of a single task: give its parent folder")


def find_file(glue: Path, task: Task, name: str) -> Path:
    """Return the TSV file of a split in a GLUE folder. Case and hyphens in the task's folder name are ignored."""
    check_glue(glue)
    wanted = task.folder.lower().replace("-", "")
    file_name = task.dev_file if name == "dev" else "train.tsv"
    for folder in listed(glue, "*"):
        if folder.name.lower().replace("-", "") == wanted and (folder / file_name).is_file():
            return folder / file_name
    raise UserError(
        f"no {task.folder}/{file_name} in {glue}: {task.title} needs this file, so give the folder that contains "
        f"{task.folder}"
    )


def load_folder(glue: Path, task: Task, name: str) -> Split:
    """Load a split from a folder in GLUE's original TSV layout."""
    return read_tsv(find_file(glue, task, name), task, name)


def read_tsv(path: Path, task: Task, name: str) -> Split:
    """Read a split from a file in GLUE's original layout."""
    header, *lines = (line.split("\t") for line in lines_of(read_text(path)))
    places = _places(path, header, task)
    rows: list[tuple[str, str, Any]] = []
    for number, fields in enumerate(lines, start=2):
        if fields == [""]:
            continue
        short = len(fields) <= max(places)
        if task.skips_short_rows and short:  # GLUE's QQP file has a few short rows, which the official count excludes
            continue
        if short or (any(fields[len(header) :]) and not task.skips_short_rows):
            lacking = f"the columns from {header[len(fields)]!r} on are missing" if short else ""
            raise UserError(
                f"{path}, line {number} has {counted(len(fields), 'field')}, but the header has {len(header)}: "
                f"{lacking or 'is there a tab inside a text?'}"
            )
        first, second, code = (fields[place] for place in places)
        if max(len(first), len(second)) > TEXT_CHARACTERS:
            raise UserError(
                f"{path}, line {number}: a text has more than {TEXT_CHARACTERS} characters: is a line end missing?"
            )
        rows.append((first, second, _label(task, code, f"{path}, line {number}, column {task.label!r}")))
    if not rows:
        raise UserError(f"{path} has no rows after its header, but should contain {task.title}'s {name} split")
    firsts, seconds, labels = map(list, zip(*rows, strict=True))
    second_column = seconds if task.sentence2 else None
    return Split(task, name, firsts, second_column, labels, str(path), official=True, made_up=MADE_UP_COLUMN in header)


def _places(path: Path, header: list[str], task: Task) -> list[int]:
    """Return the indices of the columns that contain the two sentences and the label, given a file's header."""
    if header == [""]:
        raise UserError(f"{path} is empty, but should be GLUE's file for {task.title}")
    wanted = [task.sentence1, task.sentence2 or task.sentence1, task.label]
    for column in wanted:
        if column not in header:
            columns = excerpt(header)
            raise UserError(f"{path}, line 1: no column {column!r} in {columns}: is this GLUE's file for {task.title}?")
        if header.count(column) > 1:
            raise UserError(f"{path}, line 1: two columns are called {column!r}: rename one of them")
    return [header.index(column) for column in wanted]


def _label(task: Task, code: str, where: str) -> str | float:
    if not task.regression:
        if code not in task.label_codes:
            expected = ", ".join(task.label_codes)
            raise UserError(f"{where}: unknown label {excerpt(code, 60)!r}; expected one of {expected}")
        return task.label_codes[code]
    score = float(code) if SCORE_PATTERN.fullmatch(code) else float("nan")
    if not 0 <= score <= 5:
        raise UserError(f"{where}: {excerpt(code, 60)!r} is not a score between 0 and 5")
    return score


# ---------------------------------------------------------------------- the hub


def load_hub(task: Task, name: str, offline: bool) -> Split:
    """Load a split of `nyu-mll/glue` at the pinned revision, from the local cache if possible."""
    import datasets  # takes over a second to import
    import pyarrow.parquet

    repository = Repository(
        GLUE_HUB,
        GLUE_REVISION,
        title=f"GLUE's {task.title}",
        advice="give a local GLUE folder with the option `glue`, or run once with a network connection",
        kind="dataset",
        offline=offline,
        pins=GLUE_SHA256,
    )
    pattern = f"{task.name}/{task.dev_split if name == 'dev' else 'train'}-*.parquet"
    place = repository.folder(GLUE_REVISION, [pattern], [[pattern]]) / pattern
    files = listed(place.parent, place.name)  # the pinned revision fixes their content
    return from_hub_table(task, name, datasets.Dataset(pyarrow.parquet.read_table(files)))


def from_hub_table(task: Task, name: str, table) -> Split:
    """Convert a table from the hub to a split. The table stores labels as numbers, and has a list of their names."""
    first, second = task.hub_columns
    if task.regression:
        # The hub stores float32, whose shortest decimal form is the score in GLUE's file.
        labels = [float(str(np.float32(score))) for score in table["label"]]
    else:
        names = table.features["label"].names
        if set(names) != set(task.labels):
            raise UserError(f"the labels of {task.name} in {GLUE_HUB} are {names}, not {list(task.labels)}")
        labels = [names[number] for number in table["label"]]
    return Split(
        task,
        name,
        list(table[first]),
        list(table[second]) if second else None,
        labels,
        f"{GLUE_HUB}@{GLUE_REVISION} {task.name}",
        official=True,
    )


# ---------------------------------------------------------------------- official or not


def official_problem(split: Split) -> str | None:
    """Return a message if the row or class counts of a split differ from the official counts, or else None."""
    task, held = split.task, Counter(split.labels)
    rows, counts = (task.dev_rows, task.dev_counts) if split.name == "dev" else (task.train_rows, task.train_counts)
    of_labels = [(held[label], count, f" with the label {label}") for label, count in counts.items()]
    for found, official, which in [(len(split), rows, ""), *of_labels]:
        if found != official:
            return (
                f"it has {counted(found, 'row')}{which}, but {task.title}'s official {split.name} split has {official}"
            )
    return None


def as_fetched(glue: Path, split: Split) -> str | None:
    """Return the fingerprint that `fetch --output` recorded in this folder for an official split, or None.

    If the folder has no valid record, the result is None. The record is needed because the hub publishes digests of
    files, but not of the rows in them.
    """
    try:
        record = json.loads((glue / FETCH_RECORD).read_text(encoding="utf-8"))[split.task.name][split.name]
        return str(record["fingerprint"]) if record["official"] is True else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def other_content(split: Split, fetched: str | None = None) -> str | None:
    """Return a message if a split is known to differ from GLUE's file in its texts or labels, or else None.

    Args:
        fetched: Recorded fingerprint of the official split (see `as_fetched`), or None if it was not recorded.
    """
    key = (split.task.name, split.name)
    known = fetched or FINGERPRINTS.get(key)
    if fetched is None and key in TEXT_BYTES and known != split.fingerprint:
        size = sum(len(text.encode()) for texts in (split.sentence1, split.sentence2 or ()) for text in texts)
        if size == TEXT_BYTES[key]:
            return None
        return (
            f"its texts have {size} bytes, but the texts of {split.task.title}'s official {split.name} split have "
            f"{TEXT_BYTES[key]} bytes, although the row counts agree: was the file cleaned or rewritten with quotes?"
        )
    if known in (None, split.fingerprint):
        return None
    return (
        f"its texts or labels differ from {split.task.title}'s official {split.name} split, although the row counts "
        f"agree (the fingerprint is {split.fingerprint[:12]} instead of {known[:12]})"
    )
