"""Worlds whose truth is known, one kind for each kind of claim: measurements of several seeds drawn from it.

In every world the same examples are seen by all seeds. An example has an effect of its own, a seed moves all examples,
and a seed does something to single examples, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case, find_case
from bertsecrets.types import Initialisation, Measurement, Subject

Draw = Callable[["World", np.random.Generator], list[Mapping[str, Needed]]]
OWN = 0.5  # of the examples' standard deviation: what a seed does to single examples


@dataclass(frozen=True)
class World:
    """The truth of a world: an effect over the claim's limit, and how far examples and seeds spread.

    Args:
        effect: in standard deviations of the examples, or in points for scores.
        ratio: the spread of seeds, in standard deviations of the examples, or in points for scores.
    """

    examples: int
    seeds: int
    ratio: float
    effect: float = 0.0

    def numbers(self, rng: np.random.Generator, columns: int = 1) -> Float[np.ndarray, "seeds examples columns"]:
        """Return one number for each seed, example and column, around 0."""
        of_example = rng.normal(size=(1, self.examples, columns))
        of_seed = self.ratio * rng.normal(size=(self.seeds, 1, columns))
        return of_example + of_seed + OWN * rng.normal(size=(self.seeds, self.examples, columns))


@dataclass(frozen=True)
class Kind:
    """A kind of claim, with a case of it and the worlds that it is judged in.

    Args:
        size: of the effect in worlds where the claim holds; like `World.effect`.
        truth: the quantity in a world of some effect, in the claim's unit; None where the interval is not of the truth.
        spread: the seeds' standard deviation of the quantity in a world, in the claim's unit.
    """

    name: str
    case: Case
    draw: Draw
    size: float
    truth: Callable[[World], float] | None
    spread: Callable[[World], float]


def measured(
    measure: str,
    seed: int,
    samples: dict[str, np.ndarray],
    initialisation: Initialisation = "pretrained",
    **values: object,
) -> Measurement:
    """Return a measurement of a made-up model on RTE."""
    size = len(next(iter(samples.values())))
    return Measurement(measure, Subject("made-up", "rte", initialisation, seed), size, dict(values), samples)


def _layers(numbers: Float[np.ndarray, "examples layers"]) -> Float[np.ndarray, "examples layers heads"]:
    return numbers[:, :, None]


def growth(world: World, rng: np.random.Generator) -> list[Mapping[str, Needed]]:
    """Attention that grows: [SEP] in two layers, after fine-tuning and before."""
    nothing = np.zeros((world.examples, 2))
    drawn = 0.1 * (world.effect + world.numbers(rng))
    return [
        {
            "after": _special(seed, 0.5 + np.repeat(of_seed, 2, axis=1)),
            "before": _special(seed, 0.5 + nothing, "untrained"),
        }
        for seed, of_seed in enumerate(drawn, start=1)
    ]


def _special(seed: int, sep: np.ndarray, initialisation: Initialisation = "pretrained") -> Measurement:
    return measured("special-tokens", seed, {"sep": _layers(sep)}, initialisation, sep=sep.mean(0)[:, None])


def change(world: World, rng: np.random.Generator) -> list[Mapping[str, Needed]]:
    """Layers that change: six of them, of which the last two change more by the effect."""
    drawn = 0.1 * world.numbers(rng, 6)
    drawn[:, :, -2:] -= 0.1 * world.effect
    return [
        {"change": measured("attention-change", seed, {"cosine": _layers(0.5 + one)}, cosine=one.mean(0)[:, None])}
        for seed, one in enumerate(drawn, start=1)
    ]


def answers(
    world: World, rng: np.random.Generator, score: float, count: int | None = None
) -> tuple[Float[np.ndarray, "seeds examples"], np.ndarray]:
    """Return predictions of several seeds that are right in a share of the examples, and the labels.

    Half of what decides an example is its own, half the seed's; a seed's share differs by `ratio` points.
    """
    from scipy.special import ndtri

    seeds = count or world.seeds
    target = (np.arange(world.examples) % 2).astype(np.int64)
    shares = np.clip(score + world.ratio * rng.normal(size=(seeds, 1)), 1, 99) / 100
    own, seen = rng.normal(size=(seeds, world.examples)), rng.normal(size=(1, world.examples))
    right = (own + seen) / np.sqrt(2) < ndtri(shares)
    return np.where(right, target, 1 - target), target


def score_gap(world: World, rng: np.random.Generator) -> list[Mapping[str, Needed]]:
    """Scores that differ: pretrained against random weights, both around 60 points."""
    ours, target = answers(world, rng, 60 + world.effect)
    theirs, _ = answers(world, rng, 60)
    return [
        {
            "own": measured("scores", seed, {"predicted": a, "target": target}, accuracy=0.0),
            "other": measured("scores", seed, {"predicted": b, "target": target}, "random", accuracy=0.0),
        }
        for seed, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1)
    ]


def figure(world: World, rng: np.random.Generator) -> list[Mapping[str, Needed]]:
    """A published score: the first run is the paper's (`published_of`), the others are off it by the effect."""
    drawn, target = answers(world, rng, 64 - world.effect)
    return [
        {"scores": measured("scores", seed, {"predicted": one, "target": target}, accuracy=0.0)}
        for seed, one in enumerate(drawn, start=1)
    ]


HEADS = 24


def _grid(world: World, rng: np.random.Generator, gains: np.ndarray) -> list[Measurement]:
    """Return ablations of a model with so many heads, each of which moves a twentieth of the predictions."""
    found = []
    baseline, target = answers(world, rng, 64)
    for seed, before in enumerate(baseline, start=1):
        right = before == target
        predicted = np.repeat(right[None], len(gains), axis=0)
        for head, gain in enumerate(gains + world.ratio * rng.normal(size=len(gains))):
            lost = 0.05 - gain / 100 * 0.5  # of all examples become wrong
            won = 0.05 + gain / 100 * 0.5
            flips = rng.random(world.examples)
            predicted[head] = np.where(
                right, flips >= lost / max(right.mean(), 1e-9), flips < won / max(1 - right.mean(), 1e-9)
            )
        samples = {
            "predicted": np.where(predicted, target, 1 - target),
            "baseline_predicted": before,
            "target": target,
        }
        of_heads = np.asarray(predicted.mean(1)).reshape(2, -1)
        subject = Subject("made-up", "rte", "pretrained", seed)
        found.append(
            Measurement(
                "head-ablation", subject, world.examples, {"score": of_heads, "baseline": right.mean()}, samples
            )
        )
    return found


def best_head(world: World, rng: np.random.Generator) -> list[Mapping[str, Needed]]:
    """Heads to lose, of which one gains by the effect and the others nothing."""
    gains = np.zeros(HEADS)
    gains[7] = world.effect
    return [{"ablation": one} for one in _grid(world, rng, gains)]


def mean_head(world: World, rng: np.random.Generator) -> list[Mapping[str, Needed]]:
    """Heads to lose, each of which loses the effect."""
    return [{"ablation": one} for one in _grid(world, rng, np.full(HEADS, -world.effect))]


def kinds() -> list[Kind]:
    """Return the kinds of claims, each with a case on RTE."""
    tenth = 0.1
    return [
        Kind("attention", find_case("C3", "rte"), growth, 1.0, lambda w: tenth * w.effect, lambda w: tenth * w.ratio),
        Kind(
            "layers",
            find_case("C1", "rte"),
            change,
            2.0,
            lambda w: -tenth * w.effect,
            lambda w: tenth * w.ratio * 2**0.5,
        ),
        Kind("scores", find_case("D3", "rte"), score_gap, 11.9, lambda w: w.effect, lambda w: w.ratio * 2**0.5),
        Kind("figure", find_case("D1-pretrained", "rte"), figure, 12.0, None, lambda w: w.ratio),
        Kind("best of heads", find_case("G1", "rte"), best_head, 4.0, None, lambda w: w.ratio),
        Kind(
            "mean of heads", find_case("G2", "rte"), mean_head, 1.0, lambda w: -w.effect, lambda w: w.ratio / HEADS**0.5
        ),
    ]
