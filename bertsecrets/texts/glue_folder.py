"""Write tasks from the hub or another folder to a GLUE folder, either completely or not at all."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import copy_whole
from bertsecrets.texts.glue import FETCH_RECORD, SPLITS, Source, Split, load_folder
from bertsecrets.texts.rows import public_origin
from bertsecrets.texts.tasks import Task


def write_tasks(source: Source, tasks: Sequence[Task], folder: Path) -> list[Split]:
    """Write the checked splits of tasks to a GLUE folder, and return the splits. An earlier version is replaced.

    Files from a GLUE folder are copied byte by byte. The output is deterministic.
    """
    splits = [source.split(task, name) for task in tasks for name in SPLITS]
    with tempfile.TemporaryDirectory() as temporary:
        for split in splits:
            _write(split, Path(temporary), copied=source.glue is not None)
        write_json(Path(temporary) / FETCH_RECORD, _record(splits))
        copy_whole(Path(temporary), folder, [FETCH_RECORD, *(task.folder for task in tasks)])
    return splits


def _write(split: Split, glue: Path, *, copied: bool) -> None:
    """Write a split's file into a GLUE folder. If `copied` is True, copy the file from which the split was read."""
    task = split.task
    file = glue / task.folder / (task.dev_file if split.name == "dev" else "train.tsv")
    file.parent.mkdir(exist_ok=True)
    if copied:
        shutil.copyfile(split.origin, file)
    else:
        file.write_text(as_tsv(split), encoding="utf-8", newline="")
    if load_folder(glue, task, split.name).fingerprint != split.fingerprint:
        raise UserError(f"the rows of {split.origin} changed while they were being copied: run the command again")


def as_tsv(split: Split) -> str:
    r"""Return a split as text in the layout of GLUE's files, with a header and one unquoted line per row."""
    task = split.task
    codes = {name: code for code, name in task.label_codes.items()}
    seconds = [] if split.sentence2 is None else [split.sentence2]
    header = [task.sentence1, *([task.sentence2] if task.sentence2 else []), task.label]
    rows = [
        [*texts, str(label) if task.regression else codes[str(label)]]
        for *texts, label in zip(split.sentence1, *seconds, split.labels, strict=True)
    ]
    for number, row in enumerate(rows, start=1):
        if any(mark in cell for cell in row for mark in "\t\n"):
            raise UserError(f"{split.origin}, row {number}: a text contains a tab or line end, which cannot be written")
    return "".join("\t".join(row) + "\n" for row in [header, *rows])


def _record(splits: Sequence[Split]) -> dict[str, dict[str, dict[str, object]]]:
    """Return a description of the splits, by task and split name, that does not depend on local paths."""
    record: dict[str, dict[str, dict[str, object]]] = {}
    for split in splits:
        record.setdefault(split.task.name, {})[split.name] = {
            "origin": public_origin(split),
            "rows": len(split),
            "official": split.official,
            "fingerprint": split.fingerprint,
        }
    return record
