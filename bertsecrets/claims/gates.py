"""What keeps measurements from speaking for or against any claim: a collapsed model, or seeds that are none."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from bertsecrets.claims.quantity import Needed, all_of
from bertsecrets.measures.registry import get_measure
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.types import Measurement

GIVEN = ("target", "errors", "cluster")  # samples that do not come from the subject
MANY = 100  # examples on which two different models never agree throughout


def degenerate(by_seed: Sequence[Mapping[str, Needed]]) -> str | None:
    """Return why measurements decide nothing, whatever the claim; None if they can.

    Args:
        by_seed: per seed, what the claim's quantity needs, by name.
    """
    for needed in by_seed:
        for measurement in all_of(needed):
            problem = get_measure(measurement.measure).degenerate(measurement)
            if problem:
                return f"{measurement.subject}: {problem}"
    for one, other in combinations(by_seed, 2):
        for first, second in zip(all_of(one), all_of(other), strict=True):
            if first.examples != second.examples:
                return f"{first.subject} and {second.subject} have {first.examples} and {second.examples} examples"
            if get_initialisation(first.subject.initialisation).trains and _identical(first, second):
                return f"{first.subject} and {second.subject} give the same numbers: the seed changes nothing"
    return None


def _identical(one: Measurement, other: Measurement) -> bool:
    """Return whether two trained subjects have the very same numbers.

    Equal classes say so only of many examples, and not if every example has the same class: two seeds may well end in
    the same constant answer.
    """
    if one.subject == other.subject:
        return False
    names = [name for name in one.samples if name not in GIVEN and name in other.samples]
    equal = [name for name in names if np.array_equal(one.samples[name], other.samples[name], equal_nan=True)]
    real = [name for name in names if one.samples[name].dtype.kind == "f"]
    if real:
        return all(name in equal for name in real)
    varied = any(np.ptp(one.samples[name]) > 0 for name in names)
    return bool(names) and equal == names and varied and one.examples >= MANY
