"""The registry of measures. Names are listed without importing anything; a measure is imported on first use."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bertsecrets.errors import UserError, near_matches
from bertsecrets.types import ALL_TASKS, Request, Subject

if TYPE_CHECKING:
    from bertsecrets.measures.base.measure import Measure

M = TypeVar("M", bound="type[Measure]")
_REGISTERED: dict[str, "Measure"] = {}
# Those of the suite that no seed changes, known before they are imported.
SEEDLESS = ("example-sentence", "frame-heads", "pattern-quality", "published-figures", "word-baselines")


def measure(name: str, *, title: str, source: str, version: int = 1) -> Callable[[M], M]:
    """Register the class that it decorates as the measure called `name`.

    Args:
        title: the measured quantity, in a few words.
        source: where the definition comes from, such as `K19 4.3`.
        version: increased when the definition changes, so that results stored by the old one are not reused.

    Raises:
        ValueError: another class already has this name.
    """

    def register(cls: M) -> M:
        if name in _REGISTERED and type(_REGISTERED[name]).__qualname__ != cls.__qualname__:
            raise ValueError(
                f"two measures are called {name!r}: {type(_REGISTERED[name]).__qualname__} and {cls.__qualname__}"
            )
        cls.name, cls.title, cls.source, cls.version = name, title, source, version
        _REGISTERED[name] = cls()
        return cls

    return register


def measure_names() -> list[str]:
    """Return the names of all measures: those of the suite, and those registered by other code."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    own = [module.name.replace("_", "-") for module in modules if not module.ispkg and module.name != "registry"]
    return list(dict.fromkeys([*own, *_REGISTERED]))


def list_measures() -> dict[str, str]:
    """Return what each measure measures, by its name."""
    return {name: get_measure(name).title for name in measure_names()}


def get_measure(name: str) -> "Measure":
    """Return the measure called `name`.

    Raises:
        UserError: the measure does not exist.
    """
    if name not in _REGISTERED:
        if name not in measure_names():
            raise UserError(f"unknown measure {name!r}: {near_matches(name, measure_names())}")
        importlib.import_module(f"bertsecrets.measures.{name.replace('-', '_')}")
    return _REGISTERED[name]


def is_seedless(name: str) -> bool:
    """Return whether seeds do not affect a measure; the suite's own are not imported for this."""
    return _REGISTERED[name].seedless if name in _REGISTERED else name in SEEDLESS


def canonical(request: Request) -> Request:
    """Return the request without default options and without what cannot change its result.

    Raises:
        UserError: the measure or the option does not exist.
    """
    if request.measure is None:
        return request
    measure, subject = get_measure(request.measure), request.subject
    options = measure.check_options(dict(request.options)).given()
    if not measure.on_task:
        subject = Subject(subject.model, ALL_TASKS, "untrained", 1)
    return Request(request.measure, subject, tuple(sorted(options.items())))


def request(measure: str, subject: Subject, options: Mapping[str, Any]) -> Request:
    """Return the request for a measurement; requests that have the same result are equal (`canonical`)."""
    return canonical(Request(measure, subject, tuple(options.items())))
