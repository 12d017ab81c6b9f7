"""Quantities: named functions from measurements to an estimand, registered where they are defined.

A claim names the quantity that it is about; the quantity names the measurements that it is read off.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from bertsecrets.claims.estimand import Estimand
from bertsecrets.types import Initialisation, Measurement

Needed = Measurement | tuple[Measurement, ...]  # what is handed over for one need: several where it names tasks
Function = TypeVar("Function", bound=Callable[..., Estimand])

REGISTERED: dict[str, "Quantity"] = {}


@dataclass(frozen=True)
class Need:
    """A measurement that a quantity is read off, on one task or several.

    `whose` is the initialisation: the claim's `own`, the one it is held `against`, or a fixed one. `options` are the
    measure's, besides those of the claim. The task is the claim's own, or the one named by `task`; with `tasks`, it is
    each of these; with `least` too, those of them whose data are there, if they are at least so many.
    """

    measure: str
    whose: Literal["own", "against"] | Initialisation = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    tasks: tuple[str, ...] = ()
    least: int = 0


@dataclass(frozen=True)
class Quantity:
    """A function that reads one scalar off the measurements that it names; its other parameters are arguments."""

    name: str
    unit: str
    needs: Mapping[str, Need]
    function: Callable[..., Estimand]
    arguments: inspect.Signature

    def read(self, measurements: Mapping[str, Needed], /, **arguments: Any) -> Estimand:
        """Return the estimand.

        Args:
            measurements: by the name of the need; a tuple, in the order of its tasks, where the need names `tasks`.
            arguments: the claim's.

        Raises:
            NotApplicableError: the model cannot have this quantity.
            UserError: a measurement lacks what is read off it.
        """
        return self.function(**measurements, **arguments)

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Make sure that the function takes a claim's arguments.

        Raises:
            TypeError: it takes others, or one is missing.
        """
        self.arguments.bind(**arguments)


def quantity(name: str, /, *, unit: str, **needs: Need) -> Callable[[Function], Function]:
    """Register a function as the quantity of this name; each further keyword names a measurement that it takes.

        @quantity("growth", unit="attention", after=Need("special-tokens"), before=Need("special-tokens", "against"))
        def growth(after: Measurement, before: Measurement) -> Estimand: ...

    Raises:
        TypeError: the function does not take a measurement by its need's name.
        ValueError: another quantity has the name.
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
            name=name, unit=unit, needs=needs, function=function, arguments=inspect.Signature(rest)
        )
        return function

    return register
