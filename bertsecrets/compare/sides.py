"""The two sides of a comparison: a model's numbers by measure and task, over its seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from bertsecrets.bootstrap import column_means
from bertsecrets.compare.readings import Reading, readings
from bertsecrets.errors import MisreadError, RunError, UserError, one_line
from bertsecrets.measures.registry import get_measure
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Initialisation, Measurement, Subject

DECIMALS = 6  # to which numbers are kept and compared; far below any effect of interest


@dataclass(frozen=True)
class Values:
    """One quantity of a side: the mean over its seeds and their standard deviation, cell by cell.

    Args:
        shape: of the cells: [layers, heads], [layers], or nothing for one number of the model.
        std: over seeds; 0 for a single one.
        step: the smallest change that one example can make.
        by_seed: what the values were read off, where that is at hand; a pin does not keep it.
    """

    what: str
    unit: str
    shape: tuple[int, ...]
    mean: Float[np.ndarray, " cells"]
    std: Float[np.ndarray, " cells"]
    step: float = 0.0
    by_seed: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """One measure on one task, as it is to be measured."""

    measure: str
    task: str
    initialisation: Initialisation = "pretrained"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What the two sides' parts have in common."""
        return (self.task, self.initialisation, self.measure, str(sorted(self.options.items())))

    def __str__(self) -> str:
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        initialisation = "" if self.initialisation == "pretrained" else f" ({self.initialisation})"
        return f"{self.measure}{options} on {TASKS[self.task].title}{initialisation}"


@dataclass(frozen=True)
class Part:
    """What one measure says of one side on one task.

    Args:
        seeds: that were measured; their numbers are replications.
        data: a digest of the examples' texts.
        settings: of the measure; parts with other settings are not compared.
        collapsed: why a seed's model has collapsed or cannot be measured at all; empty where none has.
    """

    wanted: Wanted
    seeds: tuple[int, ...]
    examples: int
    data: str
    settings: Mapping[str, Any]
    values: Mapping[str, Values]
    collapsed: str = ""
    limit: int | None = None
    train_limit: int | None = None
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True)
class Side:
    """A model, a checkpoint, kept measurements or a pin.

    Args:
        kind: what it is, in words.
        left_out: the measures that could not be had, with the reason.
    """

    name: str
    kind: str
    parts: tuple[Part, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def part(self, wanted: Wanted) -> Part | None:
        """Return the part for a measure on a task; None if this side has none."""
        return next((part for part in self.parts if part.wanted.key == wanted.key), None)


def part_of(wanted: Wanted, measurements: Sequence[Measurement]) -> Part:
    """Return what measurements, one for each seed, say of one measure on one task.

    Raises:
        UserError: a measurement is incomplete, or the seeds have not seen the same examples.
    """
    first = measurements[0]
    prints = {one.provenance.data_fingerprint or "" for one in measurements}
    if len(prints) > 1 or len({one.examples for one in measurements}) > 1:
        raise UserError(f"{wanted}: the seeds were measured on different examples: measure them with the same limits")
    by_seed = [{reading.name: reading for reading in readings(one)} for one in measurements]
    collapsed = [problem for one in measurements if (problem := get_measure(one.measure).degenerate(one))]
    return Part(
        wanted,
        seeds=tuple(one.subject.seed for one in measurements),
        examples=first.examples,
        data=prints.pop(),
        settings=first.settings,
        values={name: _values([seed[name] for seed in by_seed]) for name in by_seed[0]},
        collapsed=collapsed[0] if collapsed else "",
        limit=first.provenance.limit,
        train_limit=first.provenance.train_limit,
        measurements=tuple(measurements),
    )


def _values(by_seed: Sequence[Reading]) -> Values:
    first = by_seed[0]
    cells = np.stack([np.asarray(one.statistic(column_means(one.block)))[0] for one in by_seed])
    std = cells.std(0, ddof=1) if len(cells) > 1 else np.zeros(cells.shape[1])
    return Values(
        first.what,
        first.unit,
        first.shape,
        mean=cells.mean(0).round(DECIMALS),
        std=std.round(DECIMALS),
        step=first.step,
        by_seed=tuple(by_seed),
    )


def measured_side(
    name: str,
    kind: str,
    wanted: Sequence[Wanted],
    seeds: Sequence[int],
    measure: Callable[[Wanted, Subject], Measurement],
    model: str,
) -> Side:
    """Return a side whose measurements are made now, unless they are in a store.

    A measure that cannot be had is left out, with its reason. Where a check finds that the model computes something
    else than what is seen of it, the model counts as collapsed.

    Args:
        measure: makes or finds one measurement.

    Raises:
        UserError: nothing can be measured.
    """
    parts, left_out = [], {}
    problem: UserError | None = None
    for one in wanted:
        subjects = [Subject(model, one.task, one.initialisation, seed) for seed in seeds]
        try:
            parts.append(part_of(one, [measure(one, subject) for subject in subjects]))
        except RunError:
            raise
        except MisreadError as error:
            parts.append(Part(one, tuple(seeds), 0, "", {}, {}, collapsed=one_line(error)))
        except UserError as error:
            problem = problem or error
            left_out[str(one)] = one_line(error)
    if not parts and problem is not None:
        raise problem
    return Side(name, kind, tuple(parts), left_out)
