"""Pins: what a model's measures say over several seeds, kept in a small file that later models are compared with.

A pin keeps each number's mean over seeds and their standard deviation. That is all that a comparison needs, since the
seeds are its replications: what single examples say, and any text of a data set, stays out of the file.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import AfterValidator, Field, ValidationError

from bertsecrets.claims.units import SMALLEST
from bertsecrets.compare.readings import MEASURES
from bertsecrets.compare.sides import DECIMALS, Part, Side, Values, Wanted
from bertsecrets.errors import UserError, excerpt, near_matches
from bertsecrets.provenance import run_facts
from bertsecrets.reading import YamlError, read_text, read_yaml
from bertsecrets.settings import Section, in_words
from bertsecrets.store.files import write_whole
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Initialisation, slug

FOLDER = Path("expected") / "variants"
LIMIT = 2**24  # bytes of a pin
FEWEST = 2  # seeds; a single one has no spread
HEADER = "# Written by bertsecrets pin: means over seeds and their standard deviations, head by head.\n"
Number = float | None  # None where there is no number
Numbers = list[list[Number]] | list[Number] | Number


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    """Return a check that a name is one of those known."""

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"{excerpt(name, 80)!r} is unknown: {near_matches(name, known)}")
        return name

    return check


class PinnedQuantity(Section):
    """One quantity: the mean over seeds and their standard deviation, in the shape of layers and heads."""

    what: str
    unit: Annotated[str, AfterValidator(_one_of(SMALLEST))]
    step: float = Field(default=0.0, ge=0)
    mean: Numbers
    std: Numbers


class PinnedMeasure(Section):
    """What one measure says on one task; the fields are those of a `Part`."""

    measure: Annotated[str, AfterValidator(_one_of(MEASURES))]
    task: Annotated[str, AfterValidator(_one_of(TASKS))]
    initialisation: Initialisation
    options: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(min_length=FEWEST)
    examples: int = Field(ge=0)
    limit: int | None = None
    train_limit: int | None = None
    data: str
    settings: dict[str, Any]
    collapsed: str = ""
    quantities: dict[str, PinnedQuantity]


class Reason(Section):
    """Why a model was pinned, and when."""

    made: str
    reason: str = Field(min_length=1)


class Pin(Section):
    """The content of a pin.

    `reasons` are all that were given, the last first. `weights` and `tokenizer` identify what the seeds start from.
    """

    format: Literal[1] = 1
    model: str
    reasons: list[Reason] = Field(min_length=1)
    weights: str | None
    tokenizer: str | None
    device: str
    precision: str
    official_data: bool
    commit: str | None
    software: dict[str, str]
    measures: list[PinnedMeasure] = Field(min_length=1)


def default_place(model: str) -> Path:
    """Return the file of a model's pin where no other is named.

    >>> str(default_place("google-bert/bert-base-uncased"))
    'expected/variants/bert-base-uncased.yaml'
    """
    return FOLDER / f"{slug(model)}.yaml"


def check_reason(place: Path, reason: str) -> list[Reason]:
    """Return the reasons for which a model was pinned so far; none where there is no pin yet.

    Raises:
        UserError: no reason is given, or one that was given before; or the file is no pin.
    """
    if not reason.strip():
        raise UserError("--reason is empty: say why the model is pinned, or what has changed since it was")
    if not place.exists():
        return []
    earlier = read_pin(place).reasons
    for one in earlier:
        if _plain(one.reason) == _plain(reason):
            raise UserError(
                f"{place} was pinned on {one.made[:10]} for this very reason ({excerpt(reason, 80)}): "
                "give a new --reason, which says what has changed since, or another --output"
            )
    return earlier


def check_seeds(seeds: Sequence[int]) -> None:
    """Make sure that a pin rests on several seeds, whose spread says what is drift.

    Raises:
        UserError: it does not.
    """
    if len(seeds) < FEWEST:
        raise UserError(f"a pin needs the spread over seeds: give --seeds {FEWEST} or more, best 5")


def _plain(reason: str) -> str:
    return " ".join(reason.casefold().split())


def pin_of(
    side: Side, model: str, reason: str, earlier: Sequence[Reason], *, weights: str | None, tokenizer: str | None
) -> Pin:
    """Return the pin of a side that was measured now.

    Args:
        earlier: the reasons that were given before.

    Raises:
        UserError: a model has collapsed or was measured on too few seeds.
    """
    facts, measurements = run_facts(), [one for part in side.parts for one in part.measurements]
    collapsed = [f"{part.wanted}: {part.collapsed}" for part in side.parts if part.collapsed]
    if collapsed:
        raise UserError(f"nothing is pinned, since a model has collapsed ({collapsed[0]}): train it otherwise")
    for part in side.parts:
        check_seeds(part.seeds)
    devices = [one.provenance.made_by.get("device") for one in measurements]
    return Pin(
        model=model,
        reasons=[Reason(made=facts["made"], reason=" ".join(reason.split())), *earlier],
        weights=weights,
        tokenizer=tokenizer,
        device="; ".join(sorted({device for device in devices if device})),
        precision=", ".join(sorted({one.provenance.precision for one in measurements if one.provenance.precision})),
        official_data=all(one.provenance.official_data for one in measurements),
        commit=facts["commit"],
        software=facts["software"],
        measures=[_pinned(part) for part in side.parts],
    )


def _pinned(part: Part) -> PinnedMeasure:
    return PinnedMeasure(
        measure=part.wanted.measure,
        task=part.wanted.task,
        initialisation=part.wanted.initialisation,
        options=dict(part.wanted.options),
        seeds=list(part.seeds),
        examples=part.examples,
        limit=part.limit,
        train_limit=part.train_limit,
        data=part.data,
        settings=dict(part.settings),
        quantities={
            name: PinnedQuantity(
                what=values.what,
                unit=values.unit,
                step=round(values.step, DECIMALS),
                mean=_as_data(values.mean, values.shape),
                std=_as_data(values.std, values.shape),
            )
            for name, values in part.values.items()
        },
    )


def _as_data(cells: np.ndarray, shape: tuple[int, ...]) -> Numbers:
    """Return cells in the shape of layers and heads; None for NaN."""
    held = [None if np.isnan(cell) else float(cell) for cell in cells]
    if not shape:
        return held[0]
    return [held[start : start + shape[1]] for start in range(0, len(held), shape[1])] if len(shape) == 2 else held


def write_pin(place: Path, pin: Pin) -> None:
    """Write a pin, whole or not at all.

    Raises:
        UserError: the disk is full or the file cannot be written.
    """
    data = pin.model_dump(mode="json", exclude_defaults=True) | {"format": pin.format}
    ordered = {"format": data.pop("format"), **data}
    text = yaml.safe_dump(ordered, sort_keys=False, default_flow_style=None, width=118, allow_unicode=True)
    write_whole(place, HEADER + text)


def read_pin(place: Path) -> Pin:
    """Return the content of a pin.

    Raises:
        UserError: it cannot be read, or is not a pin.
    """
    try:
        _, data = read_yaml(read_text(place, LIMIT, "cannot read the pin"))
        pin = Pin.model_validate(data)
        _side(pin, place)
    except ValidationError as error:
        raise UserError(f"{place} is not a pin ({in_words(error)}): write one with bertsecrets pin") from error
    except YamlError as error:
        raise UserError(f"{place}, line {error.line}: {error}: write it anew with bertsecrets pin") from error
    except ValueError as error:
        raise UserError(f"{place} is not a whole pin ({error}): write it anew with bertsecrets pin") from error
    return pin


def side_of_pin(place: Path) -> Side:
    """Return the side of a comparison that a pin is.

    Raises:
        UserError: it cannot be read, or is not a pin.
    """
    return _side(read_pin(place), place)


def _side(pin: Pin, place: Path) -> Side:
    return Side(str(place), f"pin of {pin.model}, {pin.reasons[0].made[:10]}", tuple(map(_part, pin.measures)))


def _part(pinned: PinnedMeasure) -> Part:
    return Part(
        Wanted(pinned.measure, pinned.task, pinned.initialisation, pinned.options),
        seeds=tuple(pinned.seeds),
        examples=pinned.examples,
        data=pinned.data,
        settings=pinned.settings,
        values={name: _values(name, quantity) for name, quantity in pinned.quantities.items()},
        collapsed=pinned.collapsed,
        limit=pinned.limit,
        train_limit=pinned.train_limit,
    )


def _values(name: str, quantity: PinnedQuantity) -> Values:
    """Return a pinned quantity as arrays.

    Raises:
        ValueError: its rows differ in length, or mean and standard deviation have not the same shape.
    """
    try:
        mean, std = np.array(quantity.mean, dtype=np.float64), np.array(quantity.std, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{name}: its layers have not the same number of heads") from error
    if mean.shape != std.shape:
        raise ValueError(f"{name}: mean and std have not the same shape")
    return Values(quantity.what, quantity.unit, mean.shape, mean.reshape(-1), std.reshape(-1), quantity.step)
