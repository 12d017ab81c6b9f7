"""The annotated maps of P20 (Prasanna et al. 2020), from `data/head_classification_data.tar.gz` in P20's repository.

The format is that of P20's loader (`src/classify_attention_patterns.py`). `raw/labels.txt` contains lines of the form
`label = name, name`, and the folder next to `raw` contains one `.npy` file with the raw attention of each map, which
may have any size. Names without an underscore are zero-padded to 4 characters. Single, double and multiple vertical are
merged into one class, as in K19 (Kovaleva et al. 2019). `mix` means vertical and diagonal, and `other` means everything
else.

This module was tested on generated archives in this format, but not yet on P20's own archive.
"""

import re
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.request import urlopen

import numpy as np

from bertsecrets.errors import UserError, excerpt
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.reading import decoded, lines_of, read_npy
from instruments.annotation.map_set import LARGEST, MapSet, PatternMap
from instruments.archives import TOTAL_LIMIT, read_members, unpacking

LABELS = "labels.txt"
THEIRS = {
    "single-vertical": "vertical",
    "double-vertical": "vertical",
    "multiple-vertical": "vertical",
    "mix": "vertical-diagonal",
    "other": "heterogeneous",
}
TIMEOUT = 60  # maximum number of seconds to wait for a response
NAME_LIMIT = 200  # maximum number of characters in a map's name
ARCHIVE = "https://github.com/sai-prasanna/bert-experiments/raw/master/data/head_classification_data.tar.gz"
ADVICE = "give head_classification_data.tar.gz of P20 (Prasanna et al. 2020), or the folder in it"


def fetch(address: str, folder: Path) -> Path:
    """Download an archive to a folder and return its path.

    Raises:
        UserError: If the address does not use https or cannot be read, or the file is too large.
    """
    if not address.startswith("https://"):
        raise UserError(f"{excerpt(address)} is not an https address: {ADVICE}")
    path = folder / "archive.tar.gz"
    try:
        with urlopen(address, timeout=TIMEOUT) as response, path.open("wb") as file:  # nosec B310: https only
            while block := response.read(2**20):
                if file.tell() > TOTAL_LIMIT:
                    raise UserError(f"{excerpt(address)} is larger than {TOTAL_LIMIT} bytes: {ADVICE}")
                file.write(block)
    except (OSError, HTTPException, ValueError) as error:
        raise UserError(f"{excerpt(address)} cannot be downloaded ({excerpt(error, 150)}): {ADVICE}") from error
    return path


def read_p20(source: Path) -> MapSet:
    """Read annotated maps in P20's format.

    P20 records neither where second texts begin nor which head a map belongs to, so each map is a separate group.

    Raises:
        UserError: If labels.txt is missing, a label is unknown, or a map is missing, duplicated, not square or not a
            matrix of weights. The message contains the file and line.
    """
    with unpacking(source, ADVICE):
        if not source.exists():
            raise UserError(f"{source} does not exist: {ADVICE}")
        texts = list(read_members(source, lambda name: PurePosixPath(name).name == LABELS))
        if not texts:
            raise UserError(f"no {LABELS} in {source}: {ADVICE}")
        name, text = texts[0]
        file, parent = excerpt(source / name), PurePosixPath(name).parent
        lines = _labels(file, text)
        if not lines:
            raise UserError(f"{file} names no maps: expected lines such as 'vertical = name, name'")

        def wanted(name: str) -> bool:  # another folder contains normalised maps with the same names
            path = PurePosixPath(name)
            return path.suffix == ".npy" and path.stem in lines and path.is_relative_to(parent)

        maps: dict[str, PatternMap] = {}
        for name, content in read_members(source, wanted):
            stem = PurePosixPath(name).stem
            if stem in maps:
                raise UserError(f"{lines[stem][0]}: there are two files {stem}.npy: remove one of them")
            maps[stem] = _map(stem, content, lines[stem][0])
    for stem, (where, _) in lines.items():
        if stem not in maps:
            raise UserError(f"{where}: {stem}.npy is missing: download the archive again, or remove the name")
    return MapSet(tuple(maps[stem] for stem in lines), tuple((label,) for _, label in lines.values()))


def _labels(file: str, text: bytes) -> dict[str, tuple[str, str]]:
    """Return the file and line, and the class of each map, by name."""
    labels: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(lines_of(decoded(text, file)), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        label, equals, names = line.partition("=")
        if not equals:
            raise UserError(f"{where}: no '=' in {line[:40]!r}: expected 'label = name, name'")
        kind = _class(label.strip(), where)
        for stem in (_stem(name.strip()) for name in names.split(",") if name.strip()):
            if len(stem) > NAME_LIMIT or not stem.isprintable():
                raise UserError(f"{where}: {stem[:40]!r} is not a valid map name: rename it")
            if stem in labels:
                raise UserError(f"{where}: {stem!r} is named twice: each map has one label")
            labels[stem] = where, kind
    return labels


def _stem(name: str) -> str:
    """Return a map's file name without suffix. Names without an underscore are zero-padded to four characters.

    >>> _stem("12")
    '0012'
    """
    return name if "_" in name else name.rjust(4, "0")


def _class(label: str, where: str) -> str:
    """Return the class of one of P20's labels."""
    plain = re.sub("[^a-z]+", "-", label.lower()).strip("-")
    name = THEIRS.get(plain, plain)
    if name not in CLASSES:
        raise UserError(f"{where}: unknown label {label[:60]!r}; expected one of {', '.join((*CLASSES, *THEIRS))}")
    return name


def _map(name: str, data: bytes, where: str) -> PatternMap:
    try:
        values = read_npy(data)
    except ValueError as error:
        raise UserError(f"{where}: {name}.npy is not an array ({error}): restore it") from error
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise UserError(f"{where}: {name}.npy has the shape {values.shape}, instead of tokens x tokens")
    if values.dtype.kind not in "fiu" or not (values.min() >= 0 and values.max() <= LARGEST):
        raise UserError(
            f"{where}: {name}.npy does not contain attention weights (finite, not negative, at most {LARGEST:.0f}): "
            "restore it"
        )
    tokens = len(values)
    return PatternMap(name, "p20", "unknown", "fine-tuned", 0, 0, 0, tokens, values.astype(np.float16))
