"""The registry of quantities, which are named functions that turn measurements into an estimand.

A claim names its quantity, and the quantity declares the measurements it needs.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from bertsecrets.claims.estimand import Estimand
from bertsecrets.measures.registry import is_seedless
from bertsecrets.types import InitialisationName, Measurement

Needed = Measurement | tuple[Measurement, ...]  # the measurement for a need, or a tuple if the need has several tasks
OfSeed = Mapping[str, Needed]  # a seed's measurements, by the name of the need
Item = TypeVar("Item")


def _distinct(items: Sequence[Item]) -> Sequence[Item]:
    if twice := [item for place, item in enumerate(items) if item in items[:place]]:
        raise ValueError(f"{twice[0]} occurs twice")
    return items


OneOrMore = Annotated[Sequence[Item], Field(min_length=1), AfterValidator(_distinct)]
Function = TypeVar("Function", bound=Callable[..., Estimand])

Ends = tuple[float, float]
ANY_VALUE: Ends = (float("-inf"), float("inf"))
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

REGISTERED_QUANTITIES: dict[str, "Quantity"] = {}
STATE = "state of the checkpoint"  # key of the scores that show whether a checkpoint collapsed


@dataclass(frozen=True)
class Need:
    """A measurement that a quantity needs, on one or more tasks.

    Args:
        whose: Initialisation of the subject to measure. `own` is the claim's initialisation, and `against` is the one
            that the claim compares it with. Any other value is the name of an initialisation.
        options: Options for the measure, in addition to those of the claim.
        task: Task to measure. Defaults to the case's task.
        tasks: Tasks to measure instead of the single task `task`. Data are required for all of them, unless `least` is
            set.
        least: Minimum number of `tasks` that must have data. If it is set, tasks without data are skipped.
    """

    measure: str
    whose: Literal["own", "against"] | InitialisationName = "own"
    options: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    tasks: tuple[str, ...] = ()
    least: int = 0


@dataclass(frozen=True)
class Quantity:
    """A registered function that computes an estimand from measurements and the arguments of a claim.

    `arguments` is a model of the function's parameters, except its measurements. A claim gives their values, which must
    match the annotations. The other fields are as in `quantity`.
    """

    name: str
    unit: str
    needs: Mapping[str, Need]
    function: Callable[..., Estimand]
    arguments: type[BaseModel]
    within: Callable[[str], Ends]
    inherits: bool = True
    published: bool = False

    def read(self, measurements: Mapping[str, Needed], /, **arguments: Any) -> Estimand:
        """Compute the estimand from a claim's arguments and from the measurements, keyed by the name of the need."""
        return self.function(**{name: measurements[name] for name in self.needs}, **arguments)


def all_of(needed: OfSeed, *, states: bool = False) -> list[Measurement]:
    """Return one seed's measurements for all needs and tasks. If `states` is True, include those of `states_of`."""
    by_need = [of_need for name, of_need in needed.items() if states or name != STATE]
    return [each for of_need in by_need for each in (of_need if isinstance(of_need, tuple) else (of_need,))]


def seeds_of(measurements: Sequence[Measurement]) -> tuple[int, ...]:
    """Return the seeds of the measurements, in order. Seedless measures count only if there are no others."""
    seeded = [measurement for measurement in measurements if not is_seedless(measurement.measure)]
    return tuple(dict.fromkeys(measurement.subject.seed for measurement in seeded or measurements))


def states_of(needed: OfSeed) -> tuple[Measurement, ...]:
    """Return the scores that show whether a seed's checkpoints collapsed; empty if the quantity does not need them."""
    states = needed.get(STATE, ())
    return states if isinstance(states, tuple) else (states,)


def quantity(
    name: str,
    about: Literal["measured", "published"] = "measured",
    /,
    *,
    unit: str,
    within: Ends | Callable[[str], Ends] = ANY_VALUE,
    inherits: bool = True,
    **needs: Need,
) -> Callable[[Function], Function]:
    """Register a function as the quantity of this name. Keywords declare the measurements that the function takes.

        @quantity("growth", unit="attention", after=Need("special-tokens"), before=Need("special-tokens", "against"))
        def growth(after: Measurement, before: Measurement) -> Estimand: ...

    Args:
        about: Set to `published` if the function also uses published figures, which the user's own tasks do not have.
        within: Range of possible values, or a function that takes the name of a task and returns the range. Intervals
            and bands are clipped to this range.
        inherits: Whether the quantity is meaningless for a checkpoint whose scores show that it collapsed. False if the
            quantity's own measurements already show a collapse, or if nothing is fine-tuned.
        **needs: The measurements that the function needs. Each keyword is the name of a parameter of the function.

    Raises:
        TypeError: If one of `needs` is not the name of a parameter of the function.
        ValueError: If another quantity already has this name.
    """  # fmt: skip

    def register(function: Function) -> Function:
        signature = inspect.signature(function)
        unknown = [need for need in needs if need not in signature.parameters]
        if unknown:
            raise TypeError(f"quantity {name}: {function.__name__} takes no measurement named {unknown[0]!r}")
        if name in REGISTERED_QUANTITIES:
            raise ValueError(f"two quantities are named {name!r}")
        hints = get_type_hints(function, include_extras=True)
        rest: dict[str, Any] = {
            name: (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in signature.parameters.items()
            if name not in needs
        }
        REGISTERED_QUANTITIES[name] = Quantity(
            name=name,
            unit=unit,
            needs=needs,
            function=function,
            arguments=create_model(name, __config__=STRICT, **rest),
            within=within if callable(within) else lambda task: within,
            inherits=inherits,
            published=about == "published",
        )
        return function

    return register
