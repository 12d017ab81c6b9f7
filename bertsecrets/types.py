"""Types that all modules share: subject, request, measurement and provenance."""

import functools
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from annotated_types import Ge, Lt  # read by pydantic, which is slow to import

from bertsecrets.errors import UserError
from bertsecrets.progress import counted

if TYPE_CHECKING:
    import pandas as pd

InitialisationName = Literal[
    "pretrained", "random", "frozen", "untrained", "last-two-new", "last-two-trained", "from-sep"
]
INITIALISATIONS: tuple[str, ...] = get_args(InitialisationName)
Precision = Literal["auto", "float32", "bfloat16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
Keep = Literal["none", "full"]  # whether weights stay in the store after all measurements
KEEPS: tuple[Keep, ...] = get_args(Keep)
AUTO = "auto"  # instead of a number of seeds: as many as it takes to reach a decision
ALL_TASKS = "all"  # the task name of subjects that do not belong to a single task
SEED_LIMIT = 2**32  # numpy's upper limit for seeds, exclusive
Span = tuple[int, int]  # start and end in a text, in characters, as in a slice


@dataclass(frozen=True)
class Subject:
    """The subject of a measurement: a model on a task, an initialisation (`models/initialisations.py`) and a seed."""

    model: str
    task: str
    initialisation: InitialisationName = "pretrained"
    seed: Annotated[int, Ge(0), Lt(SEED_LIMIT)] = 1

    def __str__(self) -> str:
        return f"{slug(self.model)}-{self.task}-{self.initialisation}-s{self.seed}"


@dataclass(frozen=True)
class Provenance:
    """The data, checkpoint, code and device behind a measurement. The JSON form has the same field names.

    `data` is the source of the rows. `limit` and `train_limit` are the numbers of rows that were used, or None if all
    rows were used. `weights` identifies the measured weights. `made_by` is the code, library versions and device that
    made the measurement, and `checkpoint_made_by` those that made the checkpoint.
    """

    data: str | None = None
    data_fingerprint: str | None = None
    official_data: bool = True
    made_up_data: bool = False
    limit: int | None = None
    train_limit: int | None = None
    architecture: str | None = None
    checkpoint: str | None = None
    checkpoint_made_by: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    weights: str | None = None
    made_by: dict[str, Any] = field(default_factory=dict)
    seconds: Annotated[float, Ge(0), Lt(math.inf)] = 0
    made: str = ""
    python: str = ""
    bertsecrets: str = ""

    @property
    def precision(self) -> str | None:
        """The training precision; None if it is unknown or if nothing was trained."""
        return (self.training or {}).get("precision")

    @property
    def limits(self) -> dict[str, int]:
        """The limits that were set, keyed by name: `limit`, `train_limit` or both."""
        given = {"limit": self.limit, "train_limit": self.train_limit}
        return {name: rows for name, rows in given.items() if rows}


@dataclass(frozen=True)
class Request:
    """A request for a measurement of a subject. If `measure` is None, the request is for the subject's checkpoint.

    `measures.registry.request` leaves out everything that does not affect the result, so requests for the same result
    are equal. `options` are sorted (name, value) pairs.
    """

    measure: str | None
    subject: Subject
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def on_task(self) -> bool:
        """Whether the subject belongs to a single task; False for the bare encoder."""
        return self.subject.task != ALL_TASKS

    @property
    def training(self) -> "Request | None":
        """For a measurement on a task, the request for the measured checkpoint; otherwise None."""
        return Request(None, self.subject) if self.measure is not None and self.on_task else None

    def __str__(self) -> str:
        if self.measure is None:
            what = "make" if self.subject.initialisation == "untrained" else "train"
        else:
            what = " ".join([f"measure {self.measure}", *(f"{name}={value}" for name, value in self.options)])
        if not self.on_task:
            return what
        return f"{what} {self.subject.task} {self.subject.initialisation} seed {self.subject.seed}"


@dataclass(frozen=True, repr=False)
class Measurement:
    """The result of one measure on one subject.

    `values` are the results (scalars, or arrays of shape [layers, heads]). Each array in `samples` has one row per
    example, so that examples can be resampled. For instance, `cosine` has the shape [examples, layers, heads].
    `settings` come from `params.yaml`, and `options` change what is measured (such as `padded_to`). Scores are
    fractions, not percentages. `origin` is the folder of a loaded measurement.
    """

    measure: str
    subject: Subject
    examples: int
    values: dict[str, Any]
    samples: dict[str, np.ndarray] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    reused: bool = False
    origin: str = ""

    def value(self, name: str) -> Any:
        """Return a value by name.

        Raises:
            UserError: If the value is missing, because the measurement is damaged or from another version.
        """
        return self._part(self.values, name)

    def sample(self, name: str) -> np.ndarray:
        """Return the sample with this name: an array with one row per example.

        Raises:
            UserError: If the sample is missing, because the measurement is damaged or from another version.
        """
        return self._part(self.samples, name)

    def _part(self, parts: dict[str, Any], name: str) -> Any:
        if name not in parts:
            place = self.origin or f"the measurement {self.measure} of {self.subject}"
            raise UserError(f"{place} is incomplete or from another version (no {name!r}): recreate it")
        return parts[name]

    def as_json(self) -> dict[str, Any]:
        """Return the public JSON form. Scripts rely on its first five keys."""
        return {
            "measure": self.measure,
            "model": self.subject.model,
            "task": self.subject.task,
            "examples": self.examples,
            "values": {name: plain(value) for name, value in self.values.items()},
            "subject": asdict(self.subject),
            "settings": self.settings,
            "options": self.options,
            "provenance": asdict(self.provenance),
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return the values as a table with a row for each combination of the measure's `axes`, such as layer and head.

        Layers and heads are counted from 1. Scalars are repeated in every row, and values with other axes are omitted.
        """
        return as_frame(self)

    def plot(self) -> Any:
        """Return the measurement's first chart, drawn by Altair.

        Raises:
            UserError: If the measure has no chart.
            MissingError: If the extra `report` is not installed.
        """
        return as_chart(self)

    def __repr__(self) -> str:
        shown = [
            f"{name} {list(np.shape(value))}" if np.ndim(value) else f"{name} {value:.4g}"
            for name, value in self.values.items()
            if np.ndim(value) or isinstance(value, int | float)
        ]
        more = f", ... ({len(shown)} values)" if len(shown) > 4 else ""
        what = f"{self.measure} of {self.subject}, {counted(self.examples, 'example')}"
        return f"<Measurement {what}: {', '.join(shown[:4])}{more}>"

    def _repr_html_(self) -> str | None:
        return as_html(self)


@functools.singledispatch
def as_chart(shown: object) -> Any:
    """Return an object's main chart. `report` registers a function for each type that has a chart."""
    raise TypeError(f"{type(shown).__name__} has no figure")


@functools.singledispatch
def as_frame(shown: object) -> "pd.DataFrame":
    """Return an object as a table. `measures.registry` registers the function that converts measurements."""
    raise TypeError(f"{type(shown).__name__} has no table")


@functools.singledispatch
def as_html(shown: object) -> str | None:
    """Return the HTML of an object for notebooks, or None if `report` has not registered the object's type."""
    return None


def plain(value: Any) -> Any:
    """Convert arrays and numpy scalars to plain Python values for JSON, and return other values unchanged.

    >>> plain(np.array([[1.0, 2.0]]))
    [[1.0, 2.0]]
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def slug(text: str) -> str:
    """Turn the last part of a path or hub name into a file name of letters, digits, `.`, `_` and `-`.

    >>> slug("google-bert/bert-base-uncased")
    'bert-base-uncased'
    >>> slug("runs/my model/")
    'my-model'
    """
    last = text.rstrip("/").rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in last) or "model"
