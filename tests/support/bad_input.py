"""Bad inputs as data, and a runner that passes each to the command line as a user would.

Each row defines how to corrupt the input, which command reads it, and the expected error. The runner asserts that the
command exits with code 2, prints exactly one line and no traceback, and leaves the user's files unchanged.
"""

import contextlib
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calls import PROGRAMS, command

SHOWN_WHILE_WORKING = ("fine-tuning", "attention of", "disabling", "scoring", "waiting for")


@dataclass
class Room:
    """The files for one bad input: its own folder, and a model and a GLUE folder, which are copied before any change.

    All rows share the store, so that only the first one initialises a model's weights.
    """

    folder: Path
    model: Path
    glue: Path
    store: Path

    def own_model(self) -> Path:
        self.model = Path(shutil.copytree(self.model, self.folder / "model"))
        return self.model

    def own_glue(self) -> Path:
        self.glue = Path(shutil.copytree(self.glue, self.folder / "glue"))
        return self.glue

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path


@dataclass(frozen=True)
class BadInput:
    """One bad input.

    Args:
        name: What is wrong. It is also the test id.
        command: Words of the command, as for `calls.command`. {room}, {model}, {glue} and {store} are placeholders for
            the room's paths. COMMON contains the options that most commands share.
        says: Expected part of the error, or several parts that it must all contain.
        make: Function that corrupts the room before the command runs.
        environment: Environment variables, with the same placeholders.
        before_measuring: Whether the error must come before anything is trained or measured.
    """

    name: str
    command: Sequence[str]
    says: str | Sequence[str]
    make: Callable[[Room], Any] = lambda room: None
    environment: tuple[tuple[str, str], ...] = ()
    before_measuring: bool = False

    def __str__(self) -> str:
        return self.name


COMMON = (
    *("--model", "{model}", "--glue", "{glue}", "--store", "{store}", "--device", "cpu"),
    *("--offline", "--allow-unofficial-data"),
)


def told(bad: BadInput, room: Room, monkeypatch) -> str:
    bad.make(room)
    monkeypatch.chdir(room.folder)
    places = {"room": room.folder, "model": room.model, "glue": room.glue, "store": room.store}
    for name, value in bad.environment:
        monkeypatch.setenv(name, _filled(value, places))
    before = written_files(room)
    code, printed, errors = outcome([_filled(word, places) for word in bad.command])
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith(SHOWN_WHILE_WORKING)]
    assert "Traceback" not in errors, errors
    assert code == 2, (code, errors)
    assert len(lines) == 1, errors
    assert printed == ""  # the error comes before any result or note
    assert lines[0].startswith(PROGRAMS), errors
    for part in (bad.says,) if isinstance(bad.says, str) else bad.says:
        assert _filled(part, places) in lines[0]
    assert written_files(room) == before
    return lines[0]


def outcome(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process, and return its exit code, standard output and standard error."""
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(printed):
        try:
            code = command(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return code, printed.getvalue(), errors.getvalue()


def written_files(room: Room) -> dict[Path, tuple[int, int]]:
    """Return the size and modification time of each of the user's files and folders. Any write changes the time."""
    paths = (path for folder in (room.folder, room.model, room.glue) for path in folder.rglob("*"))
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


def _filled(word: str, places: dict[str, Path]) -> str:
    for name, path in places.items():
        word = word.replace(f"{{{name}}}", str(path))
    return word
