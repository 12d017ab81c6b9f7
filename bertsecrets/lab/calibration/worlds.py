"""Simulated worlds: a model whose truth is known, measured on simulated examples with simulated seeds.

`SimulatedModel` is a `Bench`: it returns measurements like a session, so every quantity and claim is read from it as
from a real model. All seeds of a world see the same examples. Each example has a random effect, each seed shifts layers
and heads, and each pair of seed and example has an effect of its own (an interaction).
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsecrets.errors import UserError, near_matches
from bertsecrets.measures.registry import get_measure
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement, Provenance, Subject

MODEL = "simulated-bert-base"
PAPER = 1000  # seeds from here on are the paper's own runs
ROWS, SCORE_ROWS = 1000, 4000  # the largest numbers of simulated rows
OF_SEVERAL = (300, 1000)  # of each of several tasks: of maps, and of answers
INTERACTION = 0.5  # standard deviation of the interaction, relative to that of the examples
TAIL = 0.05  # share of the examples that carry everything in worlds with heavy tails


@dataclass(frozen=True)
class World:
    """What is true of a world, and how its measurements vary.

    Args:
        truth: `published`: the model is exactly as published. `null`: the claim's quantity lies on its threshold.
            `least`: the effect is the smallest of interest, or half of the published one. `one-more-run`: as published,
            and the published figure is one more run of the same procedure.
        spread: the seeds' standard deviation relative to the assumed one, which the judge may have as a prior.
        collapsed: the share of fine-tuned models that have learned nothing; `exact` ones give a constant answer, others
            deviate from it on a few rows.
        tails: the sign of the effect that a few examples carry; 0 for normal examples.
        examples: the number of rows; None for a task's own.
        worse: by how many points the fine-tuned model's score is below the published one; infinite where it has learned
            nothing, so that its scores vary around that of the most frequent class.
    """

    truth: str = "published"
    spread: float = 1.0
    collapsed: float = 0.0
    exact: bool = True
    tails: int = 0
    examples: int | None = None
    worse: float = 0.0


WORLDS: Mapping[str, World] = {
    "as-published": World(),
    "one-more-run": World("one-more-run"),
    "null": World("null"),
    "least": World("least"),
    "spread-3": World(spread=3.0),
    "spread-third": World(spread=1 / 3),
    "collapsed-10": World(collapsed=0.1),
    "collapsed-30": World(collapsed=0.3),
    "nearly-collapsed-10": World(collapsed=0.1, exact=False),
    "nearly-collapsed-30": World(collapsed=0.3, exact=False),
    "collapsed": World(collapsed=1.0),
    "nearly-collapsed": World(collapsed=1.0, exact=False),
    "tails": World(tails=1),
    "tails-down": World(tails=-1),
    "examples-30": World(examples=30),
    "examples-60": World(examples=60),
    "examples-100": World(examples=100),
    "worse-6": World("one-more-run", worse=6.0),
    "learned-nothing": World("one-more-run", worse=float("inf")),
}


def find_world(name: str) -> World:
    """Return the world of a name, or of several joined with `+`, such as `null+spread-3`.

    Raises:
        UserError: a part is unknown.
    """
    found = World()
    for part in name.split("+"):
        if part not in WORLDS:
            raise UserError(f"unknown world {part!r}: {near_matches(part, list(WORLDS))} (join several with +)")
        changed = {key: value for key, value in vars(WORLDS[part]).items() if value != getattr(World(), key)}
        found = replace(found, **changed)
    return found


@dataclass(frozen=True)
class Setting:
    """The position of the truth between a counterpart (0) and the published figures (1), and the counterpart."""

    strength: float = 1.0
    against: str = "nothing"

    def mix(self, pair: tuple[Any, Any]) -> Any:
        """Return the truth between a published value and its counterpart."""
        published, counterpart = pair
        return self.strength * published + (1 - self.strength) * counterpart


Maker = Callable[["SimulatedModel", Subject, Mapping[str, Any]], tuple[dict[str, Any], dict[str, np.ndarray], int]]
MAKERS: dict[str, Maker] = {}  # by the name of the measure that each simulates


def simulates(measure: str) -> Callable[[Maker], Maker]:
    """Register the function that simulates a measure: it returns values, samples and the number of examples."""

    def register(maker: Maker) -> Maker:
        MAKERS[measure] = maker
        return maker

    return register


class SimulatedModel:
    """A model of BERT-base's shape whose measurements are drawn.

    Args:
        world: `seed` and `place` number the world, so that it can be drawn again.
        noise: False for the truth itself: one example and one seed without any deviation.
        several: the claim is about several tasks at once, of which fewer rows are simulated.
    """

    def __init__(
        self, world: World, setting: Setting, seed: int, place: int, *, noise: bool = True, several: bool = False
    ):
        self.world, self.setting, self.seed, self.place = world, setting, seed, place
        self.noise, self.several = noise, several
        self.random_rows = noise and world.truth != "published"  # else K19's own rows, on which its scores are exact
        self._made: dict[tuple, Measurement] = {}

    def rng(self, *names: object) -> np.random.Generator:
        """Return the generator of what these names stand for, the same in every call."""
        return np.random.default_rng([self.seed, self.place, *(zlib.crc32(str(name).encode()) for name in names)])

    # ------------------------------------------------------------------ Bench

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return a subject's measurement, drawn once."""
        key = (measure, subject, tuple(sorted(options.items())))
        if key not in self._made:
            values, samples, count = self._measure(measure, subject, options)
            provenance = Provenance(architecture="bert")
            self._made[key] = Measurement(measure, subject, count, values, samples, {}, options, provenance)
        return self._made[key]

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return None: everything can be simulated."""
        return None

    def shape(self, model: str) -> tuple[int, int] | None:
        """Return BERT-base's 12 layers of 12 heads."""
        return 12, 12

    def weights(self, model: str) -> str | None:
        """Return None: claims about BERT-base's own weights are simulated too."""
        return None

    def _measure(self, measure: str, subject: Subject, options: Mapping[str, Any]) -> tuple[dict, dict, int]:
        if measure in MAKERS:
            return MAKERS[measure](self, subject, options)
        if get_measure(measure).reads_model:
            raise UserError(f"the measure {measure} is not simulated")
        results, count = get_measure(measure).run(None)  # type: ignore[arg-type]  # the suite's own data, no run needed
        return *results[measure], count

    # ------------------------------------------------------------------ effects

    def rows(self, task: str, most: int = ROWS, *, answers: bool = False) -> int:
        """Return the number of simulated rows of a task."""
        own = TASKS[task].dev_rows
        most = OF_SEVERAL[answers] if self.several else most
        return min(own, most, self.world.examples or own)

    def examples(self, name: str, task: str, count: int, columns: int, correlation: float = 0.5) -> np.ndarray:
        """Return the effect of each example on each column, [rows, columns], in standard deviations.

        Args:
            correlation: the share of the variance that all columns have in common.
        """
        rng = self.rng(name, task)
        if not self.noise:
            return np.zeros((count, columns))
        if self.world.tails:
            carries = rng.random((count, 1)) < TAIL
            common = self.world.tails * (carries - TAIL) / np.sqrt(TAIL * (1 - TAIL)) * np.ones((1, columns))
            return np.sqrt(0.9) * common + np.sqrt(0.1) * rng.normal(size=(count, columns))
        shared = np.sqrt(correlation) * rng.normal(size=(count, 1))
        return shared + np.sqrt(1 - correlation) * rng.normal(size=(count, columns))

    def of_seed(self, name: str, subject: Subject, size: tuple[int, ...], scale: Any) -> np.ndarray:
        """Return what a seed adds to a truth of some size: nothing for an untrained encoder."""
        if not self.noise or subject.initialisation == "untrained":
            return np.zeros(size)
        rng = self.rng(name, subject.task, subject.initialisation, subject.seed)
        return self.world.spread * np.asarray(scale) * rng.normal(size=size)

    def sampled(
        self, name: str, subject: Subject, level: np.ndarray, scale: float, most: int = ROWS, correlation: float = 0.5
    ) -> np.ndarray:
        """Return samples [rows, *level.shape] around a level."""
        count = self.rows(subject.task, most)
        effects = self.examples(name, subject.task, count, level.size, correlation)
        if self.noise and not self.world.tails and subject.initialisation != "untrained":
            rng = self.rng(name, subject.task, subject.initialisation, subject.seed, "interaction")
            effects = effects + INTERACTION * rng.normal(size=effects.shape)
        return level + scale * effects.reshape(-1, *level.shape)

    def collapsed(self, subject: Subject) -> bool:
        """Return whether a fine-tuned subject has learned nothing."""
        if subject.initialisation != "pretrained" or not self.noise or subject.seed >= PAPER:
            return False
        return bool(self.rng("collapse", subject.task, subject.seed).random() < self.world.collapsed)
