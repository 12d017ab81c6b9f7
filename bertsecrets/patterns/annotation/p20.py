"""The annotated maps of P20 (Prasanna et al. 2020), `data/head_classification_data.tar.gz` in its repository, as a set.

The format follows from their own reader (`src/classify_attention_patterns.py`): `raw/labels.txt` has lines of `label =
name, name`, and a folder beside it has one `.npy` file for each map, raw attention of any size. A bare number stands
for a name of 4 digits. Single, double and multiple vertical are one class, as in K19 (Kovaleva et al. 2019); `mix` is
vertical and diagonal, `other` is everything else.
"""

import io
import re
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.patterns.annotation.map_set import MapSet, PatternMap
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.texts.archives import unpacking

LABELS = "labels.txt"
THEIRS = {
    "single-vertical": "vertical",
    "double-vertical": "vertical",
    "multiple-vertical": "vertical",
    "mix": "vertical-diagonal",
    "other": "heterogeneous",
}
UNKNOWN = "unknown"
ADVICE = "give head_classification_data.tar.gz of P20 (Prasanna et al. 2020), or the folder in it"


def read_p20(source: Path) -> MapSet:
    """Return annotated maps read from P20's format.

    The heads of the maps are not recorded there, so each map is a group of its own; nor are the second texts marked.

    Raises:
        UserError: labels.txt is missing, a label is unknown, or a map is missing, doubled, not square or not a matrix
        of
            weights; the message names file and line.
    """
    if source.is_dir():
        path = next(iter(sorted(source.rglob(LABELS))), None)
        if path is None:
            raise UserError(f"no {LABELS} in {source}: {ADVICE}")
        arrays = {file.stem: file.read_bytes for file in sorted(path.parent.rglob("*.npy"))}
        return _read(path, path.read_bytes(), arrays)
    if not source.is_file():
        raise UserError(f"{source} does not exist: {ADVICE}")
    with unpacking(source, ADVICE), tarfile.open(source) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        labels = [member for member in members if PurePosixPath(member.name).name == LABELS]
        if not labels:
            raise UserError(f"no {LABELS} in {source}: {ADVICE}")

        def read(member: tarfile.TarInfo) -> bytes:
            opened = archive.extractfile(member)
            assert opened is not None  # it is a file
            return opened.read()

        beside = PurePosixPath(
            labels[0].name
        ).parent  # another folder of the archive has other values under the same names
        paths = {PurePosixPath(member.name): member for member in members}
        arrays = {
            path.stem: partial(read, member)
            for path, member in paths.items()
            if path.suffix == ".npy" and path.is_relative_to(beside)
        }
        return _read(source / labels[0].name, read(labels[0]), arrays)


def _read(path: Path, text: bytes, arrays: Mapping[str, Callable[[], bytes]]) -> MapSet:
    labelled: dict[str, tuple[PatternMap, str]] = {}
    for line, label, names in _lines(path, text):
        for name in names:
            where = f"{path}, line {line}"
            if name in labelled:
                raise UserError(f"{where}: {name!r} is named twice: each map has one label")
            if name not in arrays:
                raise UserError(f"{where}: {name}.npy is missing: get the archive again, or remove the name")
            labelled[name] = (_map(name, arrays[name](), where), label)
    if not labelled:
        raise UserError(f"{path} names no maps: expected lines such as 'vertical = name, name'")
    maps, labels = zip(*labelled.values(), strict=True)
    return MapSet(maps, labels)


def _lines(path: Path, text: bytes) -> list[tuple[int, str, list[str]]]:
    """Return the number, the class and the names of maps of each line."""
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
    parsed = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        label, equals, names = line.partition("=")
        if not equals:
            raise UserError(f"{path}, line {number}: no '=' in {line[:40]!r}: expected 'label = name, name'")
        stems = [_stem(name.strip()) for name in names.split(",") if name.strip()]
        parsed.append((number, _class(label.strip(), f"{path}, line {number}"), stems))
    return parsed


def _stem(name: str) -> str:
    """Return a map's file name without its suffix; bare numbers have four digits.

    >>> _stem("12")
    '0012'
    """
    return name if "_" in name else name.rjust(4, "0")


def _class(label: str, where: str) -> str:
    """Return the class that one of P20's labels stands for."""
    plain = re.sub("[^a-z]+", "-", label.lower()).strip("-")
    name = THEIRS.get(plain, plain)
    if name not in CLASSES:
        raise UserError(f"{where}: unknown label {label!r}; expected one of {', '.join((*CLASSES, *THEIRS))}")
    return name


def _map(name: str, data: bytes, where: str) -> PatternMap:
    try:
        values = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UserError(f"{where}: {name}.npy is not an array ({error}): get it again") from error
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise UserError(f"{where}: {name}.npy has the shape {values.shape}, where tokens x tokens was expected")
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all() or values.min() < 0:
        raise UserError(f"{where}: {name}.npy does not hold attention weights (finite, not negative): get it again")
    tokens = len(values)
    return PatternMap(name, "p20", UNKNOWN, "fine-tuned", 0, 0, 0, tokens, values.astype(np.float16))
