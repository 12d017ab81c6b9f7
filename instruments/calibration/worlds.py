"""Simulated worlds: a model with known ground truth, measured on simulated examples with simulated seeds.

`SimulatedModel` implements `Bench`: it returns measurements like a session, so quantities and claims are computed as
for a real model. All seeds of a world share the same examples. There are random effects of examples, of seeds on layers
and heads, and of each combination of seed and example (an interaction).
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
SETTINGS = {"annotated_models": ["other encoders"]}  # of `patterns`; no map of the model was annotated
PAPER = 1000  # seeds from here on are the paper's runs
ROWS, SCORE_ROWS = 1000, 4000  # maximum numbers of simulated rows
OF_SEVERAL = (300, 1000)  # maximum rows per task, for claims over several tasks: for maps, and for answers
INTERACTION = 0.5  # standard deviation of the interaction, relative to that of the example effect
TAIL = 0.05  # fraction of examples that carry the effect in heavy-tailed worlds


@dataclass(frozen=True)
class World:
    """The ground truth of a world, and the variance of its measurements.

    Args:
        truth: `published`: the model is exactly as published. `null`: the claim's quantity is at its threshold.
            `least`: the effect is the smallest of interest, or half of the published one. `one-more-run`: as published,
            and the published figure is one more run of the same procedure.
        spread: Standard deviation over seeds, relative to the assumed one, which the judge may use as a prior.
        collapsed: Fraction of fine-tuned models that have learned nothing.
        exact: Whether collapsed models give a constant answer. Otherwise they deviate from it on a few rows.
        tails: Sign of the effect if it is carried by a few examples. 0 for normally distributed effects.
        examples: Number of rows. None for the task's number.
        worse: Points by which the fine-tuned model scores below the published score. If infinite, the model has learned
            nothing, and scores vary around that of the most frequent class.
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
    """Return the world with a given name, or a combination of worlds such as `null+spread-3`.

    Raises:
        UserError: If a part is unknown.
    """
    world = World()
    for part in name.split("+"):
        if part not in WORLDS:
            raise UserError(f"unknown world {part!r}: {near_matches(part, list(WORLDS))} (join several with +)")
        changed = {key: value for key, value in vars(WORLDS[part]).items() if value != getattr(World(), key)}
        world = replace(world, **changed)
    return world


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
MAKERS: dict[str, Maker] = {}  # by the name of the simulated measure


def simulates(measure: str) -> Callable[[Maker], Maker]:
    """Register a function that simulates a measure and returns values, samples and the number of examples."""

    def register(maker: Maker) -> Maker:
        MAKERS[measure] = maker
        return maker

    return register


class SimulatedModel:
    """A model with BERT-base's shape and simulated measurements.

    Args:
        world: Kind of world. `seed` and `place` identify the world, so that it can be reproduced.
        noise: False for the exact truth, without variance over examples and seeds.
        several: Whether the claim is about several tasks together, for which fewer rows are simulated.
    """

    def __init__(
        self, world: World, setting: Setting, seed: int, place: int, *, noise: bool = True, several: bool = False
    ):
        self.world, self.setting, self.seed, self.place = world, setting, seed, place
        self.noise, self.several = noise, several
        self.random_rows = noise and world.truth != "published"  # otherwise K19's rows, on which its scores are exact
        self._made: dict[tuple, Measurement] = {}

    def rng(self, *names: object) -> np.random.Generator:
        """Return a random generator seeded by the world and these names, the same in every call."""
        return np.random.default_rng([self.seed, self.place, *(zlib.crc32(str(name).encode()) for name in names)])

    # ------------------------------------------------------------------ Bench

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return a subject's measurement, simulated once."""
        key = (measure, subject, tuple(sorted(options.items())))
        if key not in self._made:
            values, samples, count = self._measure(measure, subject, options)
            provenance = Provenance(architecture="bert")
            self._made[key] = Measurement(measure, subject, count, values, samples, SETTINGS, options, provenance)
        return self._made[key]

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return None: everything can be simulated."""
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
            correlation: Fraction of the variance that all columns share.
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
        """Return the effect of a subject's seed, an array of the given size. It is 0 for an untrained encoder."""
        if not self.noise or subject.initialisation == "untrained":
            return np.zeros(size)
        rng = self.rng(name, subject.task, subject.initialisation, subject.seed)
        return self.world.spread * np.asarray(scale) * rng.normal(size=size)

    def sampled(
        self, name: str, subject: Subject, level: np.ndarray, scale: float, correlation: float = 0.5
    ) -> np.ndarray:
        """Return samples [rows, *level.shape] around a level."""
        count = self.rows(subject.task)
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
