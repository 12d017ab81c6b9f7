"""The types that every module speaks: a subject, a measurement, and the one error a user should ever see.

Nothing here computes, reads or writes, and nothing here imports torch.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

Initialisation = Literal["pretrained", "random", "frozen", "untrained"]
INITIALISATIONS: tuple[str, ...] = get_args(Initialisation)


class UserError(Exception):
    """Something the user can put right: one line with what was found, what was expected, what to do next.

    The command line prints it and exits with 2; pytest stops the session with the same code.
    """


class MissingError(UserError):
    """Data or a tool that a measurement needs is not there; whoever asked for many measurements may skip this one."""


@dataclass(frozen=True)
class Subject:
    """What is measured: one model on one task, with its initialisation and seed (K19 section 3, table 1).

    `initialisation` is `pretrained` (pretrained and fine-tuned), `random` (normal weights and fine-tuned),
    `frozen` (pretrained encoder, only the classifier trained) or `untrained` (pretrained encoder under a
    fresh classifier, no step taken: the "pretrained" column of K19's table 1 as its code computes it).
    """

    model: str
    task: str
    initialisation: Initialisation = "pretrained"
    seed: int = 1

    def __str__(self) -> str:
        return f"{slug(self.model)}-{self.task}-{self.initialisation}-s{self.seed}"


@dataclass(frozen=True)
class Measurement:
    """The outcome of one measure on one subject: made once, stored, judged many times.

    `values` are the figures themselves (scalars, or arrays laid out [layer, head]); `samples` hold what
    resampling needs, one row per example (e.g. `cosine`: [example, layer, head]). `settings` come from `params.yaml`,
    `options` change what is measured (e.g. `padded_to`). Scores are fractions.
    """

    measure: str
    subject: Subject
    examples: int
    values: dict[str, Any]
    samples: dict[str, np.ndarray] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    reused: bool = False

    def as_json(self) -> dict[str, Any]:
        """The public JSON form; its first five names are fixed, because others script against them."""
        return {
            "measure": self.measure,
            "model": self.subject.model,
            "task": self.subject.task,
            "examples": self.examples,
            "values": {name: plain(value) for name, value in self.values.items()},
            "subject": asdict(self.subject),
            "settings": self.settings,
            "options": self.options,
            "provenance": self.provenance,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], samples: dict[str, np.ndarray]) -> "Measurement":
        """The inverse of `as_json`; nested lists become arrays again.

        Raises:
            KeyError, TypeError, ValueError: the data are no measurement's.
        """
        values = {k: _array(v) if isinstance(v, list) else v for k, v in dict(data["values"]).items()}
        return cls(
            measure=data["measure"],
            subject=Subject(**data["subject"]),
            examples=data["examples"],
            values=values,
            samples=samples,
            settings=dict(data["settings"]),
            options=dict(data["options"]),
            provenance=dict(data["provenance"]),
        )


def _array(value: list[Any]) -> Any:
    """Nested lists of numbers as an array; a list of names as it is."""
    return value if value and isinstance(value[0], str) else np.array(value, dtype=float)


def plain(value: Any) -> Any:
    """Arrays and numpy scalars as what JSON knows; anything else unchanged."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def slug(text: str) -> str:
    """A name for files: the last part of a path or hub name, with only letters, digits, `.`, `_`, `-`."""
    last = text.rstrip("/").rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in last) or "model"


def digest(data: Any) -> str:
    """A sha256, in hex, of anything JSON can hold; equal data give equal digests whatever the key order."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def first_line(error: BaseException) -> str:
    """The first line of another library's error, for a message of one line; its name, where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(":")


def near_matches(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names most like `name`, or all of them where few are known."""
    names = list(known)
    folded = {n.lower(): n for n in names}
    close = [folded[m] for m in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names[:20])}"
