"""Simulated worlds whose truth is known: what several seeds would measure on the same examples.

Each example has a random effect, each seed shifts all examples, and each pair of example and seed has an effect of its
own (an interaction).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from bertsecrets.claims.quantity import Needed
from bertsecrets.types import InitialisationName, Measurement, Subject

OWN = 0.5  # standard deviation of the interaction, relative to that of the examples
CHURN = 0.03  # share of an answer's variance that is a seed's own: between two seeds 5 to 10 % of the answers differ
MODEL = "made-up"


@dataclass(frozen=True)
class World:
    """The truth of a world.

    Args:
        examples: the number of measured examples; `seeds` likewise.
        ratio: the standard deviation over seeds, relative to that of examples or to the spread cited for scores.
        effect: how far the quantity lies beyond the claim's threshold, in the claim's unit; for a figure, how far the
            model lies below the published one.
        known: whether the judge has prior knowledge of the spread over seeds.
    """

    examples: int
    seeds: int
    ratio: float = 0.5
    effect: float = 0.0
    known: bool = True


@dataclass(frozen=True)
class Drawn:
    """The measurements of a world.

    Args:
        by_seed: the inputs of the claim's quantity, per seed.
        truth: the quantity over all possible seeds and examples; None if it depends on what the quantity selects.
        cited: more seeds on the same examples, which give the prior spread; empty if other tasks give it.
        paper: the run whose score is published.
    """

    by_seed: Sequence[Mapping[str, Needed]]
    truth: float | None
    cited: Sequence[Mapping[str, Needed]] = ()
    paper: Mapping[str, Needed] | None = None


def crossed(
    rng: np.random.Generator, world: World, columns: int = 1, *, common: bool = False, correlation: float = 0.0
) -> Float[np.ndarray, "seeds examples columns"]:
    """Return a random effect for each seed, example and column, in standard deviations of the examples.

    Args:
        common: a seed shifts all columns equally.
        correlation: the share of an example's variance that all columns share.
    """
    shared = rng.normal(size=(1, world.examples, 1))
    of_example = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * rng.normal(
        size=(1, world.examples, columns)
    )
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
    """Return a measurement of a simulated model; the mean of a sample [example, layer, head] is a value, too."""
    size = len(next(iter(samples.values())))
    means = {name: sample.mean(0) for name, sample in samples.items() if sample.ndim == 3}
    subject = Subject(MODEL, task, initialisation, seed)
    return Measurement(measure, subject, size, {**means, **(values or {})}, samples)


@dataclass(frozen=True)
class Exam:
    """A validation set that several models answer: the difficulty and the right answer of each row."""

    hardness: Float[np.ndarray, " rows"]
    target: Int[np.ndarray, " rows"]

    @classmethod
    def drawn(cls, rng: np.random.Generator, rows: int, positive: float) -> "Exam":
        """Return an exam with this percentage of rows of class 1."""
        target = (np.arange(rows) < round(rows * positive / 100)).astype(np.int64)
        return cls(rng.normal(size=rows), rng.permutation(target))

    def luck(self, rng: np.random.Generator, models: int) -> Float[np.ndarray, "models rows"]:
        """Return the difficulty of each row for each model, which is mostly shared by all models."""
        return mixed(self.hardness, rng.normal(size=(models, len(self.target))), CHURN)

    def answers(
        self, luck: Float[np.ndarray, "models rows"], shares: Float[np.ndarray, " models"]
    ) -> Int[np.ndarray, "models rows"]:
        """Return the predictions of models with these expected accuracies, in percent."""
        from scipy.special import ndtri

        right = luck < ndtri(np.clip(shares, 1, 99) / 100)[:, None]
        return np.where(right, self.target, 1 - self.target)


def mixed(
    one: Float[np.ndarray, "*shape"], other: Float[np.ndarray, "*more"], share: float
) -> Float[np.ndarray, "*more"]:
    """Mix two standard normal samples; `share` is the other's share of the variance."""
    return np.sqrt(1 - share) * one + np.sqrt(share) * other


def levels(rng: np.random.Generator, level: float, spread: float, count: int) -> Float[np.ndarray, " models"]:
    """Return random scores of this many seeds around a level, in points."""
    return level + spread * rng.normal(size=count)
