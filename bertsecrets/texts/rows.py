"""The rows of GLUE tasks that a session trains and measures on, limited to the number that it asks for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsecrets.texts.glue import Source, Split
from bertsecrets.texts.tasks import ALL_TASKS, task


@dataclass(frozen=True)
class TaskRows:
    """The source of rows, and how many of them are read.

    `limit` keeps the first validation rows, `train_limit` the first training rows, both in file order; `grid_limit`
    keeps fewer validation rows where every head or layer is disabled in turn. A split is read once, so that all of a
    session's results rest on the same rows; another session reads it again.
    """

    source: Source
    limit: int | None = None
    train_limit: int | None = None
    grid_limit: int | None = None
    _read: dict[tuple[str, str], Split] = field(default_factory=dict, init=False, repr=False, compare=False)
    _cut: dict[tuple[str, str], Split] = field(default_factory=dict, init=False, repr=False, compare=False)

    def split(self, task_name: str, name: str) -> Split:
        """Return a checked split (`train` or `dev`), limited to the rows that are read.

        Raises:
            UserError: the data are missing, malformed or unofficial.
        """
        if (task_name, name) not in self._cut:
            self._cut[task_name, name] = self.whole(task_name, name).head(self._limit(name))
        return self._cut[task_name, name]

    def whole(self, task_name: str, name: str) -> Split:
        """Return a checked split with all its rows.

        Raises:
            UserError: as `split`.
        """
        if (task_name, name) not in self._read:
            self._read[task_name, name] = self.source.split(task(task_name), name)
        return self._read[task_name, name]

    def _limit(self, name: str) -> int | None:
        return self.train_limit if name == "train" else self.limit

    def cut(self, task_name: str, name: str) -> int | None:
        """Return the limit on a split if it leaves rows out, else None."""
        limit = self._limit(name)
        return limit if limit is not None and limit < len(self.whole(task_name, name)) else None

    def missing(self, task_name: str) -> str | None:
        """Return why a task's rows are not available; None where they are, and for `all` tasks together."""
        return None if task_name == ALL_TASKS else self.source.missing(task(task_name))

    def facts(self, task_name: str, names: tuple[str, ...]) -> dict[str, Any]:
        """Return origin and size of a task's splits, which a checkpoint's manifest records."""
        splits = {name: self.split(task_name, name) for name in names}
        return {
            "origin": {name: public_origin(split) for name, split in splits.items()},
            "rows": {name: len(split) for name, split in splits.items()},
            "official": all(split.official for split in splits.values()),
        }


def public_origin(split: Split) -> str:
    """Return a split's origin without the folders of this machine, which mean nothing to others."""
    return "/".join(Path(split.origin).parts[-2:]) if Path(split.origin).is_file() else split.origin
