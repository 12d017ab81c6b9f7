"""Pins: small files that summarize measurements of a model across seeds, or of one checkpoint, for later comparisons.

A pin contains means and standard deviations across seeds, or a checkpoint's standard errors over examples, but no
per-example data.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from bertsecrets.compare.sides import Part, Side
from bertsecrets.errors import UserError, excerpt
from bertsecrets.provenance import run_facts
from bertsecrets.reading import YamlError, read_text, read_yaml
from bertsecrets.settings import Section, first_problem
from bertsecrets.store.files import write_whole
from bertsecrets.types import slug

PINS_FOLDER = Path("expected") / "variants"
PIN_BYTES = 2**24  # maximum size of a pin in bytes
MIN_PIN_SEEDS = 2  # minimum number of seeds for a standard deviation
PIN_HEADER = "# Written by bertsecrets pin: means over seeds and their standard deviations, head by head.\n"


class Reason(Section):
    """When and why a model was pinned."""

    made: str
    reason: str = Field(min_length=1)


class Pin(Section):
    """The content of a pin.

    Attributes:
        reasons: When and why the model was pinned. The latest pin comes first.
        weights: Identity of the pretrained model's weights.
        tokenizer: Identity of the model's tokenizer files.
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
    measures: list[Part] = Field(min_length=1)

    @field_validator("measures")
    @classmethod
    def _several_seeds(cls, measures: list[Part]) -> list[Part]:
        for part in measures:
            of_checkpoint = len(part.seeds) == 1 and part.errors.keys() == part.quantities.keys()
            if not of_checkpoint and len(set(part.seeds)) < max(MIN_PIN_SEEDS, len(part.seeds)):
                raise ValueError(f"{part.measure} needs at least {MIN_PIN_SEEDS} different seeds")
        return measures


def default_place(model: str) -> Path:
    """Return the default file for a model's pin.

    >>> str(default_place("google-bert/bert-base-uncased"))
    'expected/variants/bert-base-uncased.yaml'
    """
    return PINS_FOLDER / f"{slug(model)}.yaml"


def check_reason(place: Path, reason: str) -> list[Reason]:
    """Check that a reason for pinning a model is new, and return the earlier reasons from the existing pin, if any."""
    if not reason.strip():
        raise UserError("--reason is empty: say why the model is pinned, or what has changed since the last pin")
    earlier = read_pin(place).reasons if place.exists() else []
    for previous in earlier:
        if _plain(previous.reason) == _plain(reason):
            raise UserError(
                f"{place} was pinned on {previous.made[:10]} for the same reason ({excerpt(reason, 80)}): "
                "say with --reason what has changed since then, or write to another file with --output"
            )
    return earlier


def _plain(reason: str) -> str:
    return " ".join(reason.casefold().split())


def pin_of(
    side: Side, model: str, reason: str, earlier: Sequence[Reason], *, weights: str | None, tokenizer: str | None
) -> Pin:
    """Return the pin of a measured side."""
    for part in side.parts:
        if part.collapsed:
            raise UserError(
                f"cannot pin a collapsed model ({part.wanted}: {part.collapsed}): "
                "train on more rows (leave out --train-limit), or raise finetune.epochs or learning_rate in params.yaml"
            )
    facts = run_facts()
    made = [measurement.provenance for part in side.parts for measurement in part.measurements]
    devices = {provenance.made_by.get("device") or "" for provenance in made}
    precisions = {provenance.precision or "" for provenance in made}
    return Pin(
        model=model,
        reasons=[Reason(made=facts["made"], reason=" ".join(reason.split())), *earlier],
        weights=weights,
        tokenizer=tokenizer,
        device="; ".join(sorted(filter(None, devices))),
        precision=", ".join(sorted(filter(None, precisions))),
        official_data=all(provenance.official_data for provenance in made),
        commit=facts["commit"],
        software=facts["software"],
        measures=list(side.parts),
    )


def write_pin(place: Path, pin: Pin) -> None:
    """Write a pin atomically."""
    data = {"format": pin.format, **pin.model_dump(mode="json", exclude_defaults=True)}
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=118, allow_unicode=True)
    write_whole(place, PIN_HEADER + text)


def read_pin(place: Path) -> Pin:
    """Read a pin."""
    try:
        return Pin.model_validate(read_yaml(read_text(place, PIN_BYTES, "cannot read the pin"))[1])
    except ValidationError as error:
        raise UserError(f"{place} is not a pin ({first_problem(error)}): create a pin with bertsecrets pin") from error
    except YamlError as error:
        raise UserError(f"{place}, line {error.line}: {error}: create the pin again with bertsecrets pin") from error


def side_of_pin(place: Path) -> Side:
    """Read a pin as one side of a comparison."""
    pin = read_pin(place)
    return Side(str(place), f"pin of {pin.model}, {pin.reasons[0].made[:10]}", tuple(pin.measures))
