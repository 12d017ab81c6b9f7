"""The parts of a run on a GPU, read from `parts.toml`."""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertsecrets.errors import UserError

LIST = Path(__file__).with_name("parts.toml")
LEAST = 30  # seconds


@dataclass(frozen=True)
class Part:
    """One command, whose result is kept in a file of its own."""

    name: str
    command: str
    model: str | None = None
    task: str | None = None
    least: float = LEAST
    codes: tuple[int, ...] = (0,)

    def words(self, places: Mapping[str, object]) -> list[str]:
        """Return the words of the command, with the names in braces filled in.

        >>> Part("a", "echo {task} {glue}", task="rte").words({"glue": "my data"})
        ['echo', 'rte', 'my data']
        """
        return [word.format_map({"task": self.task, **places}) for word in shlex.split(self.command)]


def read_parts(file: Path) -> list[Part]:
    """Return the parts that a file lists, in order.

    Raises:
        UserError: it cannot be read, or a part is described wrongly.
    """
    try:
        return [part for table in tomllib.loads(file.read_text(encoding="utf-8"))["part"] for part in _parts(table)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read the list of parts {file}: {error}") from error


def _parts(table: dict) -> list[Part]:
    rest = {name: value for name, value in table.items() if name not in ("name", "models", "tasks", "codes")}
    codes = tuple(table.get("codes", (0,)))
    return [
        Part(table["name"].format(model=model, task=task), model=model, task=task, codes=codes, **rest)
        for model in table.get("models", [None])
        for task in table.get("tasks", [None])
    ]
