"""Files that a user gives: text, YAML and arrays, read within limits; what is wrong is told in one line."""

import io
import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bertsecrets.errors import UserError, excerpt, shortened

TEXT_LIMIT = 512 * 2**20  # bytes of a text file: several times GLUE's largest
YAML_LIMIT = 8 * 2**20  # bytes of settings or claims
YAML_NODES, YAML_DEPTH = 200_000, 50  # of a YAML document, with every alias written out
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}  # seconds of each unit of a time
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where installed, is eight times as fast


def seconds(text: str) -> float:
    """Return the seconds of a time in words.

    Raises:
        ValueError: it is none, or is 0.

    >>> seconds("20min"), seconds("1.5 h"), seconds("90s")
    (1200.0, 5400.0, 90.0)
    """
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?([a-z]+)", text.strip())
    if found is None or found[2] not in UNITS or float(found[1]) == 0:
        raise ValueError(f"{shortened(text)!r} is not a time: give one such as 90s, 20min or 2h")
    return float(found[1]) * UNITS[found[2]]


def read_bytes(path: Path, limit: int = TEXT_LIMIT, failing: str = "cannot read") -> bytes:
    """Return the content of a file; a device or pipe without an end is not read beyond the limit.

    Args:
        failing: how the message begins if it cannot be read, such as `cannot read the settings`.

    Raises:
        UserError: it is missing, cannot be read, or is larger than `limit` bytes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UserError(f"{failing} {excerpt(path)}: {error.strerror}") from error
    except ValueError as error:  # a path with a null character
        raise UserError(f"{failing} {str(path)!r}: {error}") from error
    if len(data) > limit:
        raise UserError(f"{path} is larger than {limit >> 20} MiB, which no such file is: name another file")
    return data


def read_text(path: Path, limit: int = TEXT_LIMIT, failing: str = "cannot read") -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark; line ends are left as they are.

    Raises:
        UserError: it is missing, cannot be read, is too large or is not UTF-8; the message names the line.
    """
    return decoded(read_bytes(path, limit, failing), str(path))


def decoded(data: bytes, name: str) -> str:
    """Return UTF-8 bytes as text, without a byte order mark.

    Raises:
        UserError: they are not UTF-8; the message names file and line.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{name}, line {line}: not UTF-8 (byte {error.start}): save the file as UTF-8") from error


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text, which end with a line feed or with carriage return and line feed.

    Unlike `str.splitlines`, it does not end a line at U+2028 and the like, which may stand inside a sentence.

    >>> lines_of("a\r\nb\u2028c\n")
    ['a', 'b\u2028c', '']
    """
    return [line.removesuffix("\r") for line in text.split("\n")]


# ---------------------------------------------------------------------- YAML


class YamlError(ValueError):
    """A YAML document that cannot be read, with the line of the mistake, from 1."""

    def __init__(self, line: int, problem: str):
        super().__init__(problem)
        self.line = line


def read_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Return a YAML document twice: as nodes, which know their lines, and as data.

    Raises:
        YamlError: it is not YAML, names a key twice in one mapping, is nested too deeply, or would be too large with
            its aliases written out.
    """
    try:
        _check_depth(text)
        loader = LOADER(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _measure(node, {})
            return node, loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        raise YamlError(mark.line + 1 if mark else 1, f"this is not valid YAML: {excerpt(problem)}") from error
    except YamlError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:  # a date such as 2019-99-99
        raise YamlError(1, f"a value cannot be read: {excerpt(error)}") from error


def _check_depth(text: str) -> None:
    """Make sure that a document is not nested too deeply; composing nodes recurses, in libyaml until it crashes.

    Raises:
        YamlError: it is.
        yaml.YAMLError: it is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > YAML_DEPTH:
            raise YamlError(event.start_mark.line + 1 if event.start_mark else 1, f"nested more than {YAML_DEPTH} deep")


def _measure(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of nodes below a node with every alias written out, itself included.

    Raises:
        YamlError: they are too many, or a key is named twice.
    """
    line = node.start_mark.line + 1
    if id(node) in known:
        if not known[id(node)]:
            raise YamlError(line, "an alias stands inside what it names")
        return known[id(node)]
    known[id(node)] = 0
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        keys: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise YamlError(key.start_mark.line + 1, f"{excerpt(key.value, 60)!r} is given twice")
                keys.add(key.value)
            below += [key, value]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    nodes = 1 + sum(_measure(part, known) for part in below)
    if nodes > YAML_NODES:
        raise YamlError(line, f"more than {YAML_NODES} values, with its aliases written out")
    known[id(node)] = nodes
    return nodes


# ---------------------------------------------------------------------- arrays


def read_npy(data: bytes) -> np.ndarray:
    """Return the numbers or texts of an .npy file; its header is checked before any memory is taken.

    Raises:
        ValueError: it is not an .npy file, holds objects (which would need a pickle), or has not as many values as its
            header says.
    """
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not read")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, kind = header(file)
    except Exception as error:  # numpy evaluates the header as Python: tokens, numbers and names fail in many ways
        raise ValueError(f"not an .npy file: {excerpt(error, 100)}") from error
    if kind.hasobject:
        raise ValueError("it holds Python objects, which are never read")
    if kind.kind not in "fiuU" or not kind.itemsize:
        raise ValueError(f"it holds values of type {kind}, where numbers were expected")
    place = file.tell()
    sane = all(0 <= length < 2**31 for length in shape)
    if not sane or math.prod(shape) * kind.itemsize != len(data) - place:
        raise ValueError(f"it has {len(data) - place} bytes of values, not those of the shape {excerpt(shape, 60)}")
    return np.frombuffer(data, dtype=kind, offset=place).reshape(shape, order="F" if by_columns else "C")
