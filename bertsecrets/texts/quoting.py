"""GLUE's files as K19's notebook reads them: by `csv.reader` with quoting on, for which a `"` is no text.

A field that begins with a `"` then reaches to the next one that ends a field, over tabs and line ends. The rows in
between are lost, and the row gets a very long text.
"""

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.reading import read_text
from bertsecrets.texts.glue import Split


def read_quoted(split: Split) -> Split:
    """Return a split as `csv.reader` reads its file with quoting on.

    A second text that has been swallowed is empty; a label, which no measure of attention reads, is the first row's.

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
    columns = [header.index(name) for name in (task.sentence1, task.sentence2 or task.sentence1, task.label)]
    first, second, label = columns
    whole = [row for row in rows if len(row) > first]
    codes: dict[str, Any] = {} if task.regression else dict(task.label_codes)
    labels: list[Any] = [
        codes.get(row[label], split.labels[0]) if len(row) > label else split.labels[0] for row in whole
    ]
    return replace(
        split,
        sentence1=[row[first] for row in whole],
        sentence2=[row[second] if len(row) > second else "" for row in whole] if split.sentence2 is not None else None,
        labels=labels,
    )
