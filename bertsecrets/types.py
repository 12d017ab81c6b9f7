"""The types that every module shares: a subject, a measurement, a span of characters.

Nothing here computes, reads or writes, and nothing here imports torch.
"""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from bertsecrets.errors import UserError

Initialisation = Literal["pretrained", "random", "frozen", "untrained"]
INITIALISATIONS: tuple[str, ...] = get_args(Initialisation)
SEEDS = 2**32  # numpy takes none from here on
Span = tuple[int, int]  # characters of a text, from the first to behind the last


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
    `options` change what is measured (e.g. `padded_to`). Scores are fractions. `origin` names the folder that it was
    loaded from, for messages.
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
    origin: str = ""

    def value(self, name: str) -> Any:
        """Return one of the values.

        Raises:
            UserError: the measurement lacks it, because it is damaged or was made by another version.
        """
        if name not in self.values:
            raise self._incomplete(name)
        return self.values[name]

    def sample(self, name: str) -> np.ndarray:
        """Return one of the samples.

        Raises:
            UserError: the measurement lacks it, because it is damaged or was made by another version.
        """
        if name not in self.samples:
            raise self._incomplete(name)
        return self.samples[name]

    def _incomplete(self, name: str) -> UserError:
        where = self.origin or f"the measurement {self.measure} of {self.subject}"
        return UserError(f"{where} is incomplete or from another version (no {name!r}): make it again")

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

    def _repr_html_(self) -> str | None:
        """In a notebook: values, provenance and figures."""
        return as_html(self)

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


@functools.singledispatch
def as_html(shown: object) -> str | None:
    """Return what a notebook shows of an object: nothing of its own, until the report says how it is drawn."""
    return None


def plain(value: Any) -> Any:
    """Arrays and numpy scalars as what JSON knows; anything else unchanged."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def slug(text: str) -> str:
    """A name for files: the last part of a path or hub name, with only letters, digits, `.`, `_`, `-`."""
    last = text.rstrip("/").rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in last) or "model"
