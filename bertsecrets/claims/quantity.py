"""Quantities: named functions from measurements to an estimand, registered where they are defined.

A claim names its quantity; the quantity names the measurements from which it is computed.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from bertsecrets.claims.estimand import Estimand
from bertsecrets.types import InitialisationName, Measurement

Needed = Measurement | tuple[Measurement, ...]  # what one need gets: a tuple if it names several tasks
Function = TypeVar("Function", bound=Callable[..., Estimand])

Ends = tuple[float, float]
ANY: Ends = (float("-inf"), float("inf"))

REGISTERED: dict[str, "Quantity"] = {}


@dataclass(frozen=True)
class Need:
    """A measurement that a quantity is computed from, on one task or several.

    Args:
        measure: its name.
        whose: the initialisation of the subject: the claim's `own`, the one it is compared with (`against`), or a
            fixed one.
        options: of the measure, in addition to those of the claim.
        task: the task; by default the claim's own.
        tasks: several tasks instead; all of them are needed.
        least: with `tasks`, how many of them are enough; those with data are then used.
    """

    measure: str
    whose: Literal["own", "against"] | InitialisationName = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    tasks: tuple[str, ...] = ()
    least: int = 0


@dataclass(frozen=True)
class Quantity:
    """A function that computes one estimand from the measurements it names; its other parameters are arguments.

    Args:
        within: the ends of the range that it cannot leave, on a task of this name.
    """

    name: str
    unit: str
    needs: Mapping[str, Need]
    function: Callable[..., Estimand]
    arguments: inspect.Signature
    within: Callable[[str], Ends]

    def read(self, measurements: Mapping[str, Needed], /, **arguments: Any) -> Estimand:
        """Return the estimand.

        Args:
            measurements: by the name of the need; a tuple, in the order of its tasks, where the need names `tasks`.
            arguments: the claim's.

        Raises:
            NotApplicableError: the model does not have this quantity.
            UserError: a measurement is incomplete.
        """
        return self.function(**measurements, **arguments)

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Make sure that the function takes a claim's arguments.

        Raises:
            TypeError: an argument is unknown, or one is missing.
        """
        self.arguments.bind(**arguments)


def all_of(needed: Mapping[str, Needed]) -> list[Measurement]:
    """Return all measurements of one seed, in the order of the needs and, of each, of its tasks."""
    return [
        measurement
        for of_need in needed.values()
        for measurement in (of_need if isinstance(of_need, tuple) else (of_need,))
    ]


def quantity(
    name: str, /, *, unit: str, within: Ends | Callable[[str], Ends] = ANY, **needs: Need
) -> Callable[[Function], Function]:
    """Register a function as the quantity of this name; each further keyword names a measurement that it takes.

        @quantity("growth", unit="attention", after=Need("special-tokens"), before=Need("special-tokens", "against"))
        def growth(after: Measurement, before: Measurement) -> Estimand: ...

    Args:
        unit: of the quantity.
        within: the ends of a range that it cannot leave, such as those of a share; or a function that gives them for a
            task. Intervals and bands are cut off there.

    Raises:
        TypeError: the function does not take a measurement by its need's name.
        ValueError: another quantity already has this name.
    """  # fmt: skip

    def register(function: Function) -> Function:
        signature = inspect.signature(function)
        unknown = [need for need in needs if need not in signature.parameters]
        if unknown:
            raise TypeError(f"quantity {name}: {function.__name__} takes no measurement named {unknown[0]!r}")
        if name in REGISTERED:
            raise ValueError(f"two quantities are named {name!r}")
        rest = [parameter for parameter in signature.parameters.values() if parameter.name not in needs]
        REGISTERED[name] = Quantity(
            name=name,
            unit=unit,
            needs=needs,
            function=function,
            arguments=inspect.Signature(rest),
            within=within if callable(within) else lambda task: within,
        )
        return function

    return register
