"""Measurements made by hand, and claims' cases by their ids."""

import functools

import numpy as np

from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case, cases
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement, Subject

SETTINGS = JudgeParams(confidence=0.99, decided=0.95, resamples=500, seed=7)


def measured(measure="scores", values=None, samples=None, task_name="rte", **more) -> Measurement:
    """A measurement of model `m` with the given values and samples."""
    samples = {name: np.asarray(sample) for name, sample in (samples or {}).items()}
    size = len(next(iter(samples.values()), ()))
    return Measurement(measure, Subject("m", task_name, **more), size, values or {}, samples)


def scored(predicted, target, task_name="rte", **values) -> Measurement:
    """Scores from predicted and true classes."""
    return measured("scores", {"accuracy": 0.0, **values}, {"predicted": predicted, "target": target}, task_name)


def gridded(measure: str, task_name="rte", **samples) -> Measurement:
    """Samples [example, layer, head] with their means over the examples that have them as values."""
    arrays = {name: np.asarray(sample, dtype=np.float64) for name, sample in samples.items()}
    with np.errstate(invalid="ignore"):
        values = {name: np.ma.masked_invalid(a).mean(0).filled(np.nan) for name, a in arrays.items()}
    return measured(measure, values, arrays, task_name)


def of_id(name: str) -> Case:
    """The case with an id."""
    return _cases()[name]


@functools.cache
def _cases() -> dict[str, Case]:
    return {str(case): case for case in cases()}


def read(quantity: str, *found, task_name="rte", **arguments) -> float:
    """The quantity's value on the measurements as they are, without resampling."""
    return QUANTITIES[quantity].read(found, task_name, **arguments).value
