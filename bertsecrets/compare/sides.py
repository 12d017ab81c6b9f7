"""The two sides of a comparison. A side holds the measurements of one model, summarized across seeds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, InstanceOf, PlainSerializer, model_validator

from bertsecrets.claims.band import SMALLEST_EFFECTS
from bertsecrets.claims.bootstrap import column_means
from bertsecrets.compare.cell_values import CELL_READERS, COMPARED_MEASURES, CellValues
from bertsecrets.errors import MisreadError, NotGivenError, RunError, UserError, excerpt, near_matches, one_line
from bertsecrets.measures.registry import get_measure
from bertsecrets.progress import counted
from bertsecrets.settings import Section
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import InitialisationName, Measurement, Subject

DECIMALS = 6  # precision of compared and pinned numbers, much smaller than any effect of interest


def _array(numbers: Any) -> Float[np.ndarray, "..."]:
    """Convert nested lists of numbers, as stored in a pin, to an array. Null becomes NaN."""
    try:
        cells = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("expected numbers, with the same number of heads in every layer") from error
    if cells.ndim > 2 or np.isinf(cells).any():
        raise ValueError("expected finite numbers, nested by layer and head")
    return cells


def _numbers(cells: Float[np.ndarray, "..."]) -> Any:
    return np.where(np.isnan(cells), np.array(None), cells).tolist()


def _one_of(known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"{excerpt(name, 80)!r} is unknown: {near_matches(name, known)}")
        return name

    return AfterValidator(check)


Cells = Annotated[Float[np.ndarray, "..."], BeforeValidator(_array), PlainSerializer(_numbers)]


class Values(Section):
    """The mean and standard deviation of a quantity across seeds, for each cell (head, layer or model).

    Attributes:
        step: Smallest change that a single example can cause.
        mean: Mean across seeds: [layers, heads], [layers], or a scalar.
        std: Standard deviation across seeds, in the same shape; 0 for a single seed.
        by_seed: Values of each seed, which are not stored in pins.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    what: str
    unit: Annotated[str, _one_of(SMALLEST_EFFECTS)]
    step: Annotated[float, PlainSerializer(lambda step: round(step, DECIMALS))] = Field(default=0.0, ge=0)
    mean: Cells
    std: Cells
    by_seed: tuple[InstanceOf[CellValues], ...] = Field(default=(), exclude=True)

    @model_validator(mode="after")
    def _same_shape(self) -> "Values":
        if self.mean.shape != self.std.shape:
            raise ValueError("mean and std have different shapes")
        if (self.std < 0).any():
            raise ValueError("std contains a negative number")
        return self


@dataclass(frozen=True)
class MeasureOnTask:
    """A measure with its options, and a task on which to run it. The model and the seed are specified elsewhere."""

    measure: str
    task: str
    initialisation: InitialisationName = "pretrained"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """The key that two parts must have in common to be compared."""
        return (self.task, self.initialisation, self.measure, str(sorted(self.options.items())))

    def subject(self, model: str, seed: int) -> Subject:
        """Return the subject of a measurement with this model and this seed."""
        return Subject(model, self.task, self.initialisation, seed)

    def __str__(self) -> str:
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        initialisation = "" if self.initialisation == "pretrained" else f" ({self.initialisation})"
        return f"{self.measure}{options} on {TASKS[self.task].title}{initialisation}"


class Part(Section):
    """The results of one measure on one task, for one side of a comparison. Pins store such parts.

    Attributes:
        data: Digest of the texts of the examples.
        settings: Settings of the measure. Parts with different settings cannot be compared.
        errors: Standard errors over examples, by quantity. Only pins of a single checkpoint contain them.
        collapsed: Why the model counts as collapsed; "" if it did not collapse with any seed.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    measure: Annotated[str, _one_of(COMPARED_MEASURES)]
    task: Annotated[str, _one_of(TASKS)]
    initialisation: InitialisationName
    options: dict[str, Any] = Field(default_factory=dict)
    seeds: tuple[int, ...] = Field(min_length=1)
    examples: int = Field(ge=0)
    limit: int | None = None
    train_limit: int | None = None
    data: str
    settings: dict[str, Any]
    collapsed: str = ""
    quantities: dict[str, Values]
    errors: dict[str, Cells] = Field(default_factory=dict)
    measurements: tuple[InstanceOf[Measurement], ...] = Field(default=(), exclude=True)

    @model_validator(mode="after")
    def _sound_errors(self) -> "Part":
        for name, error in self.errors.items():
            if name not in self.quantities or error.shape != self.quantities[name].mean.shape or (error < 0).any():
                raise ValueError(f"the errors of {name} contain a negative number or differ in shape from its mean")
        return self

    @property
    def trained_on(self) -> str | None:
        """The training rows, as text; None if they are unknown because another program trained the model."""
        made = [of.provenance.checkpoint is None or of.provenance.checkpoint_made_by for of in self.measurements]
        return rows_of(self.train_limit) if all(made) else None

    @property
    def wanted(self) -> MeasureOnTask:
        """The measure and the task, without the model and the seeds."""
        return MeasureOnTask(self.measure, self.task, self.initialisation, self.options)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a model, a checkpoint, stored measurements or a pin."""

    name: str
    kind: str
    parts: tuple[Part, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)  # why measures are unavailable


def rows_of(limit: int | None) -> str:
    """Return the number of training rows as text: the limit, or "all rows" if unlimited."""
    return "all rows" if limit is None else str(limit)


def training_difference(one: str | None, other: str | None) -> str:
    """Return a message if two models are known to be trained on different numbers of rows, otherwise ""."""
    if None in (one, other) or one == other:
        return ""
    return f"trained on different numbers of rows ({one} and {other}): train both with the same --train-limit"


def examples_difference(one: tuple[str, int, int | None], other: tuple[str, int, int | None]) -> str:
    """Return a message if two sides have different examples, given as (digest, number, limit), otherwise ""."""
    if one[:2] == other[:2]:
        return ""
    limits = " and ".join("all rows" if limit is None else f"limit {limit}" for *_, limit in (one, other))
    examples = f"{one[1]} and {other[1]}; {limits}"
    if one[1:] == other[1:]:
        examples = f"{counted(one[1], 'example')} each, with other texts"
    return f"measured on different examples ({examples}): measure both sides on the same rows"


def part_of(wanted: MeasureOnTask, measurements: Sequence[Measurement]) -> Part:
    """Return the `Part` that summarizes the measurements of several seeds."""
    first = measurements[0]
    digests = {measurement.provenance.data_fingerprint or "" for measurement in measurements}
    if len(digests) > 1 or len({measurement.examples for measurement in measurements}) > 1:
        raise UserError(f"{wanted}: the seeds were measured on different examples: use the same limits for all seeds")
    by_seed = [{values.name: values for values in CELL_READERS[wanted.measure](each)} for each in measurements]
    collapsed = (get_measure(measurement.measure).degenerate(measurement) for measurement in measurements)
    return _part(
        wanted,
        [measurement.subject.seed for measurement in measurements],
        examples=first.examples,
        limit=first.provenance.limit,
        train_limit=first.provenance.train_limit,
        data=digests.pop(),
        settings=first.settings,
        collapsed=next(filter(None, collapsed), ""),
        quantities={name: _values([seed[name] for seed in by_seed]) for name in by_seed[0]},
        measurements=tuple(measurements),
    )


def _part(wanted: MeasureOnTask, seeds: Sequence[int], **results: Any) -> Part:
    empty: dict[str, Any] = {"examples": 0, "data": "", "settings": {}, "quantities": {}}
    return Part(
        measure=wanted.measure,
        task=wanted.task,
        initialisation=wanted.initialisation,
        options=dict(wanted.options),
        seeds=tuple(seeds),
        **{**empty, **results},
    )


def _values(by_seed: Sequence[CellValues]) -> Values:
    first = by_seed[0]
    cells = np.stack([np.asarray(seed.statistic(column_means(seed.block)))[0] for seed in by_seed])
    std = cells.std(0, ddof=1) if len(cells) > 1 else np.zeros(cells.shape[1])
    return Values(
        what=first.what,
        unit=first.unit,
        step=first.step,
        mean=cells.mean(0).round(DECIMALS).reshape(first.shape),
        std=std.round(DECIMALS).reshape(first.shape),
        by_seed=tuple(by_seed),
    )


def measured_side(
    name: str,
    kind: str,
    wanted: Sequence[MeasureOnTask],
    seeds: Sequence[int],
    measure: Callable[[MeasureOnTask, int], Measurement],
    *,
    stop_on_collapse: bool = False,
    required: bool = False,
) -> Side:
    """Measure one side of a comparison.

    Unavailable measures are skipped, and the reasons are recorded. A model whose attention maps fail validation counts
    as collapsed. If `stop_on_collapse` is True, the remaining measures are not run once the model has collapsed. If
    `required` is True, a measure that needs an option that was not given is not skipped: `UserError` is raised.
    """
    parts: list[Part] = []
    left_out: dict[str, UserError] = {}
    for request in wanted:
        try:
            parts.append(part_of(request, [measure(request, seed) for seed in seeds]))
        except RunError:
            raise
        except MisreadError as error:
            parts.append(_part(request, seeds, collapsed=one_line(error)))
        except UserError as error:
            if required and isinstance(error, NotGivenError):
                raise UserError(f"{request} {error}") from error
            left_out[str(request)] = error
        if stop_on_collapse and parts and parts[-1].collapsed:
            break
    if left_out and not parts:
        raise next(iter(left_out.values()))
    return Side(name, kind, tuple(parts), {name: one_line(error) for name, error in left_out.items()})
