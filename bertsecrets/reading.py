"""Readers of user files (text, YAML, arrays) with size limits and one-line errors."""

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from yaml.composer import Composer
from yaml.constructor import BaseConstructor

from bertsecrets.errors import UserError, excerpt, shortened

TEXT_LIMIT = 512 * 2**20  # in bytes, several times the size of GLUE's largest text file
YAML_LIMIT = 8 * 2**20  # in bytes, for settings or claims
SECONDS_BY_UNIT = {"s": 1, "min": 60, "h": 3600, "d": 86400}  # in seconds
MERGE_TAG = "tag:yaml.org,2002:merge"
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
NOT_DECIMAL = re.compile(r"[-+]?0[0-9_bx]|.*:")  # 010 and 1:30 would be read as 8 and 90


READ_FILES: set[str] = set()  # absolute paths of the files that this module has read for the current command


def seconds(text: str) -> float:
    """Parse a duration and return it in seconds.

    >>> seconds("20min"), seconds("1.5 h"), seconds("90s")
    (1200.0, 5400.0, 90.0)
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?([a-z]+)", text.strip())
    if match is None or match[2] not in SECONDS_BY_UNIT or float(match[1]) == 0:
        raise ValueError(f"{shortened(text)!r} is not a duration: give one such as 90s, 20min or 2h")
    return float(match[1]) * SECONDS_BY_UNIT[match[2]]


def read_bytes(path: Path, limit: int = TEXT_LIMIT, failing: str = "cannot read") -> bytes:
    """Return the content of a file, which must have at most `limit` bytes.

    If the file cannot be read, the message begins with `failing`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
        READ_FILES.add(os.path.abspath(path))
    except OSError as error:
        raise UserError(f"{failing} {excerpt(path)}: {error.strerror}") from error
    except ValueError as error:  # a null character in the path
        raise UserError(f"{failing} {str(path)!r}: {error}") from error
    if len(data) > limit:
        raise UserError(f"{path} is larger than {limit >> 20} MiB: use a smaller file")
    return data


def read_text(path: Path, limit: int = TEXT_LIMIT, failing: str = "cannot read") -> str:
    """Return the text of a UTF-8 file, without a byte order mark and with line endings unchanged."""
    return decoded(read_bytes(path, limit, failing), str(path))


def decoded(data: bytes, name: str) -> str:
    """Decode UTF-8 bytes, and drop a byte order mark at the start."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{name}, line {line}: not UTF-8 (byte {error.start}): save the file as UTF-8") from error


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text, split at LF or CRLF only.

    `str.splitlines` also splits at U+2028 and other characters that occur inside sentences.

    >>> lines_of("a\r\nb\u2028c\n")
    ['a', 'b\u2028c', '']
    """
    return [line.removesuffix("\r") for line in text.split("\n")]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary from the pairs of a JSON object, and reject duplicate keys (for `object_pairs_hook`)."""
    data = dict(pairs)
    if len(data) < len(pairs):
        twice = next(key for key in data if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"duplicate key {excerpt(twice, 60)!r}")
    return data


class YamlError(ValueError):
    """An error in a YAML document, with its line number, counted from 1."""

    def __init__(self, line: int, problem: str):
        super().__init__(problem)
        self.line = line


if yaml.__with_libyaml__:  # six times as fast

    class Loader(Composer, yaml.CSafeLoader):
        """A loader that parses with libyaml but composes in Python, as libyaml's composer crashes on deep nesting."""

        def __init__(self, text: str):
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)

else:
    Loader = yaml.SafeLoader  # type: ignore[assignment, misc]


def read_yaml(text: str, *, as_text: bool = False) -> tuple[yaml.Node | None, Any]:
    """Return the root node (with line numbers) and the data of a YAML document. Both are None for an empty document.

    If `as_text` is True, all scalars of the data are strings.
    """
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None
        _check_nodes(node, set(), as_text=as_text)
        return node, (BaseConstructor() if as_text else loader).construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        raise YamlError(mark.line + 1 if mark else 1, f"this is not valid YAML: {excerpt(problem)}") from error
    except YamlError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:  # a date like 2019-99-99
        raise YamlError(1, f"a value cannot be read: {excerpt(error)}") from error
    finally:
        loader.dispose()


def _check_nodes(node: yaml.Node, visited: set[int], *, as_text: bool) -> None:
    """Refuse duplicate keys and, unless scalars are read as text, numbers that YAML does not read as decimal."""
    if id(node) in visited:  # reached before, through an alias
        return
    visited.add(id(node))
    if not as_text and node.tag in NUMBER_TAGS and NOT_DECIMAL.match(node.value):
        problem = f"{excerpt(node.value, 60)} is not a decimal number: write it as one, or in quotes if it is text"
        raise YamlError(node.start_mark.line + 1, problem)
    children = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE_TAG:
                if key.value in keys:
                    raise YamlError(key.start_mark.line + 1, f"duplicate key {excerpt(key.value, 60)!r}")
                keys.add(key.value)
    for child in children:
        _check_nodes(child, visited, as_text=as_text)


def read_npy(data: bytes) -> np.ndarray:
    """Return the array of numbers or strings in an .npy file."""
    try:
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python, which can fail in many ways
        raise ValueError(f"not a valid .npy file: {excerpt(error, 100)}") from error
    if array.dtype.kind not in "fiuU":
        raise ValueError(f"expected numbers, not values of type {array.dtype}")
    return array


def expanded(name: str | os.PathLike[str]) -> Path:
    """Expand a leading `~` or `~user` in a path, as a shell does. A path with an unknown user is not changed.

    Shells do not expand `~` in workflow files, in environment variables or in `--name=~/folder`.
    """
    return Path(os.path.expanduser(name))


def working_directory() -> str:
    """Return the working directory. Raise a `UserError` if it no longer exists."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UserError("the working directory no longer exists: change to another folder") from error
