"""Worlds whose truth is known: what several seeds would measure on the same examples.

An example has an effect of its own, a seed moves all examples, and a seed does something to single examples, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.quantity import Needed
from bertsecrets.types import InitialisationName, Measurement, Subject

OWN = 0.5  # what a seed does to single examples, in standard deviations of the examples
CHURN = (
    0.03  # the share of what decides an answer that is a seed's own; of two seeds, about 5 to 10 % of answers differ
)
MODEL = "made-up"


@dataclass(frozen=True)
class World:
    """The truth of a world.

    Args:
        examples: that are measured; `seeds` likewise.
        ratio: the spread over seeds, in units of a kind's own: standard deviations of its examples, or the spread that
            is cited for its scores.
        effect: how far the quantity lies beyond the claim's limit, in the claim's unit; of a figure, how far the model
            lies below the published one.
        known: whether the spread over seeds is known beforehand.
    """

    examples: int
    seeds: int
    ratio: float = 0.5
    effect: float = 0.0
    known: bool = True


@dataclass(frozen=True)
class Drawn:
    """What is measured in a world.

    Args:
        by_seed: per seed, what the claim's quantity needs.
        truth: the quantity, over all seeds and all examples that could have been drawn; None where it depends on what
            the quantity picks.
        cited: more seeds on the same examples, from which the spread is known; empty if it is from other tasks.
        paper: the run whose score is published.
    """

    by_seed: Sequence[Mapping[str, Needed]]
    truth: float | None
    cited: Sequence[Mapping[str, Needed]] = ()
    paper: Mapping[str, Needed] | None = None


def crossed(
    rng: np.random.Generator, world: World, columns: int = 1, *, common: bool = False, alike: float = 0.0
) -> Float[np.ndarray, "seeds examples columns"]:
    """Return a number around 0 for each seed, example and column, in standard deviations of the examples.

    Args:
        common: a seed moves all columns alike.
        alike: the share of an example's variance that all columns have in common.
    """
    shared = rng.normal(size=(1, world.examples, 1))
    of_example = np.sqrt(alike) * shared + np.sqrt(1 - alike) * rng.normal(size=(1, world.examples, columns))
    of_seed = world.ratio * rng.normal(size=(world.seeds, 1, 1 if common else columns))
    return of_example + of_seed + OWN * rng.normal(size=(world.seeds, world.examples, columns))


def measured(
    measure: str,
    task: str,
    seed: int,
    samples: dict[str, np.ndarray],
    initialisation: InitialisationName = "pretrained",
    values: Mapping[str, object] | None = None,
) -> Measurement:
    """Return a measurement of a made-up model; of a sample [example, layer, head], the mean is a value, too."""
    size = len(next(iter(samples.values())))
    means = {name: sample.mean(0) for name, sample in samples.items() if sample.ndim == 3}
    subject = Subject(MODEL, task, initialisation, seed)
    return Measurement(measure, subject, size, {**means, **(values or {})}, samples)


@dataclass(frozen=True)
class Exam:
    """Rows of a validation set that several models answer: how hard each is, and what is right."""

    hardness: Float[np.ndarray, " rows"]
    target: Int[np.ndarray, " rows"]

    @classmethod
    def drawn(cls, rng: np.random.Generator, rows: int, positive: float) -> "Exam":
        """Return an exam in which so many percent of the rows are of class 1."""
        target = (np.arange(rows) < round(rows * positive / 100)).astype(np.int64)
        return cls(rng.normal(size=rows), rng.permutation(target))

    def luck(self, rng: np.random.Generator, models: int) -> Float[np.ndarray, "models rows"]:
        """Return how hard each model finds each row: mostly as hard as the others do."""
        return mixed(self.hardness, rng.normal(size=(models, len(self.target))), CHURN)

    def answers(
        self, luck: Float[np.ndarray, "models rows"], shares: Float[np.ndarray, " models"]
    ) -> Int[np.ndarray, "models rows"]:
        """Return the classes that models predict which are right in so many percent of all rows there could be."""
        from scipy.special import ndtri

        right = luck < ndtri(np.clip(shares, 1, 99) / 100)[:, None]
        return np.where(right, self.target, 1 - self.target)


def mixed(
    one: Float[np.ndarray, "*shape"], other: Float[np.ndarray, "*more"], share: float
) -> Float[np.ndarray, "*more"]:
    """Return normal numbers of which a share of the variance is the other's."""
    return np.sqrt(1 - share) * one + np.sqrt(share) * other


def levels(rng: np.random.Generator, level: float, spread: float, count: int) -> Float[np.ndarray, " models"]:
    """Return the scores, in points, that so many seeds come to around a level."""
    return level + spread * rng.normal(size=count)
