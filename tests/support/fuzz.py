"""Fuzz tests of readers: inputs that are corrupted at random, and a check of what a reader makes of them.

hypothesis changes and deletes bytes, truncates files, and inserts tokens that parsers often fail on. The only allowed
results are success and a `UserError` with one short line.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bertsecrets.errors import UserError

TOKENS = [
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\t", b" ", b"\xe2\x80\xa8"),
    *(b"\xed\xa0\x80", b"\xd9\xa3", b"\x7f", b"\x80", b"\xff" * 8, b"\0" * 512, b"PK\x03\x04", b"\x93NUMPY"),
    *(b"-1", b"0", b"1e999", b"1_0", b"9" * 30, b"9" * 5000, b"NaN", b".nan", b".inf", b"null", b"true", b"yes"),
    *(b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b"/", b"../", b":", b": ", b"- ", b"&a ", b"*a", b"<<: *a", b"!!int "),
    *(b"<", b">", b"&a;", b"&#0;", b"<!DOCTYPE a>", b"]]>", b"<!--", b"(", b")", b"=", b"|", b"[" * 300, b"(" * 300),
]  # fmt: skip


@st.composite
def changed(draw, good: bytes) -> bytes:
    """Good bytes with one to three changes, or occasionally random bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        stop = place + draw(st.integers(1, 12))
        match draw(st.sampled_from(("byte", "insert", "replace", "remove", "cut"))):
            case "byte":
                data[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "insert":
                data[place:place] = draw(st.sampled_from(TOKENS))
            case "replace":
                data[place:stop] = draw(st.sampled_from(TOKENS))
            case "remove":
                del data[place:stop]
            case "cut":
                del data[place:]
    return bytes(data)


JSON_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**6, 10**12, -(10**9), 1e30, 0.5, -1.5]),
    st.sampled_from(["", "x", "3", "gelu", "bert", "[UNK]"]),
    st.sampled_from([[], {}, [1], ["a"], {"a": 1}, [[1, 2], [3]]]),
)


def places(data: Any, at: tuple = ()) -> list[tuple]:
    """Return the path of every value in JSON data, to a depth of four."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    below = [path for name, value in list(inner)[:60] if len(at) < 4 for path in places(value, (*at, name))]
    return [at, *below] if at else below


@st.composite
def changed_json(draw, good: bytes) -> bytes:
    """Good JSON with one to three values replaced or removed, and occasionally truncated."""
    data = json.loads(good)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(data) or [("new",)]))
        inside = data
        for step in way:
            inside = inside[step]
        if draw(st.booleans()) or not isinstance(inside, dict):
            inside[last] = copy.deepcopy(draw(JSON_VALUES))
        else:
            del inside[last]
    text = json.dumps(data).encode()
    return text if draw(st.integers(0, 9)) else text[: draw(st.integers(0, len(text)))]


@dataclass(frozen=True)
class Reader:
    """A reader of files, and the files that it reads.

    Attributes:
        place: Path of the corrupted file, relative to the folder that is passed to `read`.
        good: Undamaged content. If empty, it is taken from the file that `others` writes.
        others: Writes the other files.
        pack: Wraps the corrupted content before it is written.
        change: Strategy that corrupts the content.
    """

    place: str
    good: bytes
    read: Callable[[Path], Any]
    others: Callable[[Path], Any] = lambda folder: None
    pack: Callable[[bytes], bytes] = lambda data: data
    change: Callable[[bytes], st.SearchStrategy[bytes]] = changed


def files(*named: tuple[str, bytes]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, content in named:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    return write


def check_corrupted(reader: Reader, folder: Path, data: st.DataObject) -> None:
    """Corrupt the file of a reader, and check that it is read or refused in one short line."""
    if not folder.exists():
        folder.mkdir()
        reader.others(folder)
    path = folder / reader.place
    good = reader.good or original(folder, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(reader.pack(data.draw(reader.change(good))))
    said = refusal(reader, folder)
    assert said is None or (len(said.splitlines()) == 1 and len(said) < 1500)


def refusal(reader: Reader, folder: Path) -> str | None:
    try:
        reader.read(folder)
    except UserError as error:
        return str(error)
    return None


def original(folder: Path, path: Path) -> bytes:
    backup = folder.parent / f"{folder.name} {path.name}"
    if not backup.exists():
        backup.write_bytes(path.read_bytes())
    return backup.read_bytes()


def check_good(reader: Reader, folder: Path) -> None:
    """Check that a reader reads its undamaged file."""
    reader.others(folder)
    path = folder / reader.place
    path.parent.mkdir(parents=True, exist_ok=True)
    if reader.good:
        path.write_bytes(reader.pack(reader.good))
    assert reader.read(folder) is not None
