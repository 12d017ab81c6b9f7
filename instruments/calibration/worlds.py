"""Simulated worlds, in which a model with known ground truth is measured on simulated examples with simulated seeds.

`SimulatedModel` implements `Bench`: it returns measurements like a session, so quantities are computed and claims are
judged as for a real model. All seeds of a world share the same examples. Examples, seeds (on layers and heads), and
each combination of seed and example (an interaction) have random effects.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsecrets.claims.estimand import Estimand
from bertsecrets.errors import UserError, near_matches
from bertsecrets.measures.registry import get_measure
from bertsecrets.texts.tasks import TASKS
from bertsecrets.types import Measurement, Provenance, Subject

MODEL = "simulated-bert-base"
SETTINGS = {"annotated_models": ["other encoders"]}  # settings of `patterns`; no map of the model was annotated
PAPER = 1000  # seeds with this number or a higher one are the paper's runs
MAP_ROWS = 1000  # maximum number of rows of attention maps, as in params.yaml
# Numbers of simulated rows that represent all rows of the larger tasks. All numbers differ, so that a block's number of
# rows identifies the task that it represents.
REPRESENTATIVES = {"qqp": 4000, "qnli": 4001, "mnli": 4002}
INTERACTION = 0.5  # standard deviation of the interaction, relative to the example effect
TAIL = 0.05  # fraction of examples that carry the effect in heavy-tailed worlds
HEAVY_DEGREES = 3  # degrees of freedom of Student's t, if seeds have heavy tails


@dataclass(frozen=True)
class World:
    """The ground truth of a world, and the variance of its measurements.

    Args:
        truth: `published`: the model is exactly as published. `null`: the claim's quantity is on the deciding value,
            which is the limit or the smallest effect of interest. `least`: like `null`, or on half of the published
            effect if that is larger. `one-more-run`: as published, and the published value is that of one more run.
            `value`: the quantity is `value`.
        spread: Standard deviation over seeds, relative to the assumed value, which the judge may use as a prior.
        paper_spread: Standard deviation over the paper's runs, relative to the same value. Defaults to `spread`.
        bad: Fraction of seeds in the worse of two modes. If 0, there is a single mode.
        of_modes: Fraction of the variance over seeds that is due to two modes. The fraction .8 puts equally frequent
            modes 4 standard deviations apart, and .95 puts them 9 apart.
        coherent: Whether a mode shifts all heads in the same direction, rather than each in a different direction.
        heavy: Whether the effects of seeds have heavy tails.
        correlated: Correlation between seeds, the fraction of the variance over seeds that all seeds of a model share.
        collapsed: Fraction of fine-tuned models that have learned nothing.
        exact: Whether collapsed models give the same answer to every row. If False, a few rows get other answers.
        tails: Sign of the effect if only a few examples have it, or 0 for normally distributed effects.
        examples: Number of rows, or None for the task's own number.
        copies: How often each row occurs. Rows with the same text are in one cluster, as in the suite's measurements.
        mislabelled: Fraction of rows with a wrong label.
        worse: Points by which the fine-tuned model scores below the published score. If infinite, the model has learned
            nothing, and scores vary around the score of the most frequent class.
        score: Score of both the fine-tuned and the paper's model, in points, or None for the published score.
        value: Value of the claim's quantity, if `truth` is `value`.
        exempt: Whether false verdicts may exceed the bound, because five seeds cannot show what makes the world
            difficult.
    """

    truth: str = "published"
    spread: float = 1.0
    paper_spread: float | None = None
    bad: float = 0.0
    of_modes: float = 0.8
    coherent: bool = False
    heavy: bool = False
    correlated: float = 0.0
    collapsed: float = 0.0
    exact: bool = True
    tails: int = 0
    examples: int | None = None
    copies: int = 1
    mislabelled: float = 0.0
    worse: float = 0.0
    score: float | None = None
    value: float = 0.0
    exempt: bool = False


WORLDS: Mapping[str, World] = {
    "as-published": World(),
    "one-more-run": World("one-more-run"),
    "null": World("null"),
    "least": World("least"),
    "spread-3": World(spread=3.0),
    "spread-third": World(spread=1 / 3),
    "own-spread-3": World(spread=3.0, paper_spread=1.0),
    "own-spread-third": World(spread=1 / 3, paper_spread=1.0),
    "bimodal": World(bad=0.5),
    "heavy-seeds": World(heavy=True),
    "far-modes": World(bad=0.5, of_modes=0.95, coherent=True, exempt=True),
    "rare-bad": World(bad=0.1, of_modes=0.95, coherent=True, exempt=True),
    "correlated": World(correlated=0.5, exempt=True),
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
    "rows-thrice": World(copies=3),
    "mislabelled": World(mislabelled=0.15),
    "near-100": World("one-more-run", score=99.3, spread=0.1),
    "learned-nothing": World("one-more-run", worse=float("inf")),
}
NUMBERED = {"worse": "one-more-run", "value": "value", "spread": "published"}  # such as worse=6, and its `truth`


def find_world(name: str) -> World:
    """Return the world with a given name, or a combination of worlds such as `null+spread-3` or `worse=6+tails`.

    Raises:
        UserError: If a part is unknown.
    """
    parts = [vars(_part(part)) for part in name.split("+")]
    return World(**{key: value for part in parts for key, value in part.items() if value != getattr(World, key)})


def _part(name: str) -> World:
    if name in WORLDS:
        return WORLDS[name]
    key, _, number = name.partition("=")
    try:
        changed: dict[str, Any] = {key: float(number)}
        return World(NUMBERED[key], **changed)
    except (KeyError, ValueError):
        names = [*WORLDS, *(f"{key}=NUMBER" for key in NUMBERED)]
        raise UserError(f"unknown world {name!r}: {near_matches(name, names)} (join several with +)") from None


@dataclass(frozen=True)
class Setting:
    """The position of the truth between a counterpart (0) and the published values (1), and the counterpart's name."""

    strength: float = 1.0
    against: str = "nothing"

    def mix(self, pair: tuple[Any, Any]) -> Any:
        """Return the truth between a published value and its counterpart."""
        published, counterpart = pair
        return self.strength * published + (1 - self.strength) * counterpart


Made = tuple[dict[str, Any], dict[str, np.ndarray], int]  # values, samples and the number of rows
Options = Mapping[str, Any]
Maker = Callable[["SimulatedModel", Subject, Options], Made]
MAKERS: dict[str, Maker] = {}  # keyed by the name of the simulated measure


def simulates(measure: str) -> Callable[[Maker], Maker]:
    """Register a function that simulates a measure. It returns values, samples and the number of examples."""

    def register(maker: Maker) -> Maker:
        MAKERS[measure] = maker
        return maker

    return register


class SimulatedModel:
    """A model with BERT-base's shape and simulated measurements.

    Args:
        world: Kind of world. `seed` and `place` identify the world, so that it is reproducible.
        noise: Whether measurements vary over examples and seeds. If False, measurements are the exact truth.
    """

    def __init__(self, world: World, setting: Setting, seed: int, place: int, *, noise: bool = True):
        self.world, self.setting, self.seed, self.place = world, setting, seed, place
        self.noise = noise
        self.random_rows = noise and world.truth != "published"  # if False, scores are exact on K19's rows
        self._made: dict[tuple, Measurement] = {}
        self._shared: dict[tuple, Any] = {}

    def rng(self, *names: object) -> np.random.Generator:
        """Return a random generator seeded by the world and these names, so that calls are reproducible."""
        return np.random.default_rng([self.seed, self.place, *(zlib.crc32(str(name).encode()) for name in names)])

    def shared(self, make: Callable[..., Any], *names: Any) -> Any:
        """Return what all seeds of the world share, made once by `make(*names)`."""
        key = (make, names)
        if key not in self._shared:
            self._shared[key] = make(*names)
        return self._shared[key]

    # ------------------------------------------------------------------ Bench

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return a subject's measurement, which is simulated on the first call."""
        key = (measure, subject, tuple(sorted(options.items())))
        if key not in self._made:
            values, samples, count = self._measure(measure, subject, options)
            if count == REPRESENTATIVES.get(subject.task):
                count = TASKS[subject.task].dev_rows
            provenance = Provenance(architecture="bert")
            self._made[key] = Measurement(measure, subject, count, values, samples, SETTINGS, options, provenance)
        return self._made[key]

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return None, because nothing is missing in a simulation."""
        return None

    def _measure(self, measure: str, subject: Subject, options: Options) -> Made:
        if measure in MAKERS:
            return repeated(*MAKERS[measure](self, subject, options), self.world.copies)
        if get_measure(measure).reads_model:
            raise UserError(f"the measure {measure} is not simulated")
        results, count = get_measure(measure).run(None)  # type: ignore[arg-type]  # the suite's own data, no run needed
        return *results[measure], count

    # ------------------------------------------------------------------ effects

    def map_rows(self, task: str) -> int:
        """Return the number of simulated rows of a task's attention maps."""
        return self._rows(task, min(TASKS[task].dev_rows, MAP_ROWS))

    def answer_rows(self, task: str) -> int:
        """Return the number of simulated rows of a task's answers.

        On K19's own rows, where scores are exact, a few thousand evenly spread rows represent all rows, and are
        resampled in the number that they represent (see `represented`).
        """
        own = TASKS[task].dev_rows
        return self._rows(task, own if self.random_rows else REPRESENTATIVES.get(task, own))

    def _rows(self, task: str, most: int) -> int:
        return min(most, self.world.examples or most) // self.world.copies

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
        """Return the effect of a subject's seed as an array of the given size, which is 0 for an untrained encoder."""
        if not self.noise or subject.initialisation == "untrained":
            return np.zeros(size)
        return np.asarray(scale) * self.seed_effect(name, subject, size)

    def seed_effect(self, name: str, subject: Subject, size: tuple[int, ...] = ()) -> np.ndarray:
        """Return the effect of a subject's seed in assumed standard deviations, as an array of the given size."""
        world = self.world
        spread = world.spread if subject.seed < PAPER or world.paper_spread is None else world.paper_spread
        rng = self.rng(name, subject.task, subject.initialisation, subject.seed)
        own = rng.standard_t(HEAVY_DEGREES, size) / np.sqrt(HEAVY_DEGREES) if world.heavy else rng.normal(size=size)
        if world.bad:
            is_bad = self.rng("mode", subject.task, subject.initialisation, subject.seed).random() < world.bad
            mode = (world.bad - is_bad) / np.sqrt(world.bad * (1 - world.bad))
            if size and not world.coherent:
                mode = mode * self.rng("direction", name, subject.task).normal(size=size)
            own = np.sqrt(world.of_modes) * mode + np.sqrt(1 - world.of_modes) * own
        if world.correlated:
            shared = self.rng(name, subject.task, subject.initialisation, subject.seed >= PAPER).normal(size=size)
            own = np.sqrt(world.correlated) * shared + np.sqrt(1 - world.correlated) * own
        return spread * own

    def sampled(
        self, name: str, subject: Subject, level: np.ndarray, scale: float, correlation: float = 0.5
    ) -> np.ndarray:
        """Return samples [rows, *level.shape] that vary around a level."""
        count = self.map_rows(subject.task)
        effects = self.shared(self.examples, name, subject.task, count, level.size, correlation)
        if self.noise and not self.world.tails and subject.initialisation != "untrained":
            rng = self.rng(name, subject.task, subject.initialisation, subject.seed, "interaction")
            effects = effects + INTERACTION * rng.standard_normal(effects.shape)
        return level + scale * effects.reshape(-1, *level.shape)

    def collapsed(self, subject: Subject) -> bool:
        """Return whether a fine-tuned subject has learned nothing."""
        if subject.initialisation != "pretrained" or not self.noise or subject.seed >= PAPER:
            return False
        return bool(self.rng("collapse", subject.task, subject.seed).random() < self.world.collapsed)


def repeated(values: dict[str, Any], samples: dict[str, np.ndarray], count: int, copies: int) -> Made:
    """Return a measurement in which each row occurs several times."""
    if copies == 1:
        return values, samples, count
    axes = {name: sample.shape.index(count) for name, sample in samples.items() if count in sample.shape}
    more = {name: np.repeat(samples[name], copies, axis) for name, axis in axes.items()}
    more |= {"cluster": np.repeat(np.arange(count), copies)} if axes else {}
    return values, {**samples, **more}, copies * count


def represented(estimand: Estimand) -> Estimand:
    """Return the estimand such that each resample has as many rows as the simulated answers represent."""
    rows = {few: TASKS[task].dev_rows for task, few in REPRESENTATIVES.items()}
    of_blocks = [rows.get(len(block)) for block in estimand.blocks]
    if not any(of_blocks):
        return estimand
    drawn = estimand.drawn or (None,) * len(of_blocks)
    return replace(estimand, drawn=tuple(every or few for every, few in zip(of_blocks, drawn, strict=True)))
