"""The registry of measures. Built-in measures are imported on first use, so listing their names imports nothing."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bertsecrets.errors import UserError, near_matches
from bertsecrets.types import ALL_TASKS, Measurement, Request, Subject, as_frame

if TYPE_CHECKING:
    import pandas as pd

    from bertsecrets.measures.base.measure import Measure

M = TypeVar("M", bound="type[Measure]")
_MEASURES: dict[str, "Measure"] = {}
COUNTED_FROM_0 = ("state",)  # state 0 holds the embeddings, and state 1 the output of layer 1
# Built-in measures that do not depend on a seed, listed here to avoid importing them.
SEEDLESS_MEASURES = ("example-sentence", "frame-heads", "pattern-quality", "published-figures")


def measure(name: str, *, title: str, source: str, version: int = 1) -> Callable[[M], M]:
    """Return a decorator that registers a class as the measure `name`.

    Args:
        title: Short description of what is measured.
        source: Publication and section that define the measure, such as `K19 4.3`.
        version: Version of the definition. Increase it when the definition changes, to invalidate stored results.

    Raises:
        ValueError: another class is already registered under this name.
    """

    def register(cls: M) -> M:
        earlier = type(_MEASURES[name]).__qualname__ if name in _MEASURES else cls.__qualname__
        if earlier != cls.__qualname__:
            raise ValueError(f"two measures are called {name!r}: {earlier} and {cls.__qualname__}")
        cls.name, cls.title, cls.source, cls.version = name, title, source, version
        _MEASURES[name] = cls()
        return cls

    return register


def measure_names() -> list[str]:
    """Return the names of all measures, including those registered by other packages."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    own = [module.name.replace("_", "-") for module in modules if not module.ispkg and module.name != "registry"]
    return list(dict.fromkeys([*own, *_MEASURES]))


def list_measures() -> dict[str, str]:
    """Return a mapping from the names of all measures to their titles."""
    return {name: get_measure(name).title for name in measure_names()}


def get_measure(name: str) -> "Measure":
    """Return the measure called `name`."""
    if name not in _MEASURES:
        if name not in measure_names():
            raise UserError(f"unknown measure {name!r}: {near_matches(name, measure_names())}")
        importlib.import_module(f"bertsecrets.measures.{name.replace('-', '_')}")
    return _MEASURES[name]


def is_seedless(name: str) -> bool:
    """Return whether a measure is independent of seeds. Built-in measures are not imported."""
    return _MEASURES[name].seedless if name in _MEASURES else name in SEEDLESS_MEASURES


def canonical(request: Request) -> Request:
    """Return a request stripped of details that cannot affect the result, such as options set to their defaults."""
    if request.measure is None:
        return request
    measure, subject = get_measure(request.measure), request.subject
    options = measure.check_options(dict(request.options)).given()
    if not measure.on_task:
        subject = Subject(subject.model, ALL_TASKS, "untrained", 1)
    return Request(request.measure, subject, tuple(sorted(options.items())))


@as_frame.register(Measurement)
def _(measurement: Measurement) -> "pd.DataFrame":
    import pandas as pd  # takes a third of a second to import

    measure = get_measure(measurement.measure)
    axes = measure.axes_of(measurement.options)
    values = {
        name: np.asarray(value)
        for name, value in measurement.values.items()
        if np.ndim(value) == 0 or measure.other_axes.get(name, axes) == axes
    }
    shape = next((value.shape for value in values.values() if value.ndim), (1,))
    columns: dict[str, Any] = {
        axis: place.ravel() + (axis not in COUNTED_FROM_0) for axis, place in zip(axes, np.indices(shape), strict=False)
    }
    columns |= {name: np.broadcast_to(value, shape).ravel() for name, value in values.items()}
    return pd.DataFrame(columns)


def request(measure: str, subject: Subject, options: Mapping[str, Any]) -> Request:
    """Return a request for a measurement in canonical form. Requests for the same result are equal in this form."""
    return canonical(Request(measure, subject, tuple(options.items())))
