"""Bad inputs as data, and the runner that shows each to the command line as a user would.

A row says how to spoil the input, which command reads it, and what the one line must say. The runner asserts that the
command ends with exit code 2 and exactly one line, shows no traceback, and changes no file of the user's.
"""

import contextlib
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.cli.main import main

SHOWN_WHILE_WORKING = ("fine-tuning", "attention of", "disabling", "scoring", "waiting for")


@dataclass(frozen=True)
class Room:
    """A folder of its own for one bad input: `model`, `glue` and `store` below it, all of which a row may spoil."""

    folder: Path
    model: Path
    glue: Path
    store: Path

    def file(self, name: str, content: str | bytes) -> Path:
        """Write a file of the room, and return it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path


@dataclass(frozen=True)
class BadInput:
    """One bad input.

    Args:
        name: what is wrong, as the test's id.
        command: the words of the command; {room}, {model}, {glue}, {store} stand for the paths of the room, and
            COMMON for the options that most commands share.
        says: a part of the line; of several parts, each must be in it.
        make: spoils the room before the command runs.
        environment: variables of the environment, with the same names of paths.
    """

    name: str
    command: Sequence[str]
    says: str | Sequence[str]
    make: Callable[[Room], Any] = lambda room: None
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name


COMMON = (
    *("--model", "{model}", "--glue", "{glue}", "--store", "{store}", "--device", "cpu"),
    *("--offline", "--allow-unofficial-data"),
)


def told(bad: BadInput, room: Room, monkeypatch) -> str:
    """Run a row's command in its room, and return the one line that it wrote."""
    bad.make(room)
    monkeypatch.chdir(room.folder)
    places = {"room": room.folder, "model": room.model, "glue": room.glue, "store": room.store}
    for name, value in bad.environment:
        monkeypatch.setenv(name, _filled(value, places))
    before = contents(room)
    code, errors = outcome([_filled(word, places) for word in bad.command])
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith(SHOWN_WHILE_WORKING)]
    lines = [line for line in lines if " to train, " not in line]  # the disk that a run takes, which comes first
    assert "Traceback" not in errors, errors
    assert code == 2, (code, errors)
    assert len(lines) == 1, errors
    assert lines[0].startswith("bertsecrets"), errors
    for part in (bad.says,) if isinstance(bad.says, str) else bad.says:
        assert _filled(part, places) in lines[0]
    assert contents(room) == before
    return lines[0]


def outcome(words: Sequence[str]) -> tuple[int, str]:
    """Return the exit code of a command run in this process, and what it wrote to standard error."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return code, errors.getvalue()


def contents(room: Room) -> dict[str, str]:
    """Return a digest of every file of the room outside the store, by name."""
    files = (path for path in room.folder.rglob("*") if path.is_file() and not path.is_relative_to(room.store))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _filled(word: str, places: dict[str, Path]) -> str:
    for name, path in places.items():
        word = word.replace(f"{{{name}}}", str(path))
    return word
