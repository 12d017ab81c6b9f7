"""Functions that read the class names in the `config.json` of a fine-tuned checkpoint."""

import json
import re
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError, excerpt
from bertsecrets.texts.tasks import Task

NUMBERED_NAME = re.compile(r"(?:label|class)?[ _-]?([0-9]{1,9})", re.IGNORECASE)


def classes_in_order(folder: Path, task: Task) -> list[str] | None:
    """Return the task's class for each output of a checkpoint, or None if the outputs are numbered instead of named.

    Names are read from both `id2label` and `label2id`, because some checkpoints record names in only one of them. A
    number counts as a name if the task has a class of this name.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    pairs = _pairs(config.get("id2label")) + [(number, name) for name, number in _pairs(config.get("label2id"))]
    names: list[set[str]] = [set() for _ in range(task.outputs)]
    is_named = False
    for number, name in pairs:
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) >= task.outputs:
            raise _misnamed(folder, task, f"gives the class {excerpt(name, 60)!r} the number {excerpt(number, 20)}")
        in_name = NUMBERED_NAME.fullmatch(name.strip())
        if name in task.labels or in_name is None or int(in_name[1]) != int(number):
            is_named = True
            names[int(number)] |= {name} - {""}
    if not is_named:
        return None
    classes: list[str] = []
    for index, given in enumerate(names):
        known = {task.class_named(name) for name in given}
        if len(known) != 1 or None in known or known <= set(classes):
            called = f"gives output {index} the name {excerpt(' and '.join(sorted(given)), 60)!r}"
            raise _misnamed(folder, task, called if given else f"has no name for output {index}")
        classes += [label for label in known if label is not None]
    return classes


def _pairs(names: Any) -> list[tuple[str, str]]:
    """Return the entries of a map as text. A missing value becomes an empty text, since a class may be called None."""
    pairs = names.items() if isinstance(names, dict) else ()
    return [(str(key), "" if value is None else str(value)) for key, value in pairs]


def _misnamed(folder: Path, task: Task, problem: str) -> UserError:
    outputs = ", ".join(f'"{index}": "{label}"' for index, label in enumerate(task.labels))
    return UserError(
        f"checkpoint {folder}: config.json {problem}, so the outputs cannot be matched with the classes of "
        f"{task.title}; if the checkpoint was trained on {task.title}, give the class of each output in id2label, such "
        f"as {{{outputs}}}"
    )
