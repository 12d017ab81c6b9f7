"""How often the judge is wrong, and how often it recognises what is there: rates over made-up worlds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertsecrets.claims.calibration.worlds import Kind, World
from bertsecrets.claims.judge import judge
from bertsecrets.claims.schema import Case
from bertsecrets.claims.spread import Spread, pooled
from bertsecrets.settings import JudgeParams

ON_RECORD, RUNS = 3, 5  # tasks whose seeds are on record, and seeds of each
MOST = 0.06  # of false alarms, and of what is falsely called reproduced
COVERAGE = (0.93, 0.97)


@dataclass(frozen=True)
class Rates:
    """What the judge says in worlds of one kind: the share of each outcome, and of intervals that hold the truth."""

    kind: str
    world: World
    worlds: int
    outcomes: dict[str, float]
    coverage: float | None

    @property
    def wrong(self) -> list[str]:
        """What is out of bounds, in a few words each; chance alone explains two standard errors."""
        found = []
        slack = 2 * np.sqrt(MOST * (1 - MOST) / self.worlds)
        names = ("deviates", "reproduced") if self.world.effect == 0 else ("deviates",)
        names = ("reproduced",) if self.kind == "figure" and self.world.effect else names
        names = ("deviates",) if self.kind == "figure" and not self.world.effect else names
        found += [f"false {name} {self.outcomes.get(name, 0):.1%}" for name in names
                  if self.outcomes.get(name, 0) > MOST + slack]  # fmt: skip
        if self.coverage is not None:
            slack = 2 * np.sqrt(0.05 * 0.95 / self.worlds)
            if not COVERAGE[0] - slack <= self.coverage <= COVERAGE[1] + slack:
                found.append(f"coverage {self.coverage:.1%}")
        return found


def rates(kind: Kind, world: World, worlds: int, settings: JudgeParams, seed: int = 1) -> Rates:
    """Return what the judge says of a kind of claim in so many worlds of the same truth."""
    rng = np.random.default_rng([seed, *kind.name.encode()])
    outcomes: Counter[str] = Counter()
    held = 0
    for _ in range(worlds):
        known = spread_on_record(kind, world, rng)
        case = _published(kind, world, rng)
        verdict = judge(case, kind.draw(world, rng), settings, known)
        outcomes[verdict.outcome] += 1
        if kind.truth is not None and verdict.interval is not None:
            held += verdict.interval[0] <= kind.truth(world) <= verdict.interval[1]
    shares = {name: count / worlds for name, count in outcomes.items()}
    return Rates(kind.name, world, worlds, shares, held / worlds if kind.truth is not None else None)


def spread_on_record(kind: Kind, world: World, rng: np.random.Generator) -> Spread | None:
    """Return the spread over seeds that runs of other tasks, drawn from the same truth, give beforehand."""
    std = kind.spread(world)
    drawn = [(float(std * rng.normal(size=RUNS).std(ddof=1)), RUNS - 1) for _ in range(ON_RECORD)]
    return pooled(drawn, "runs on record") or Spread(1e-9, 8, "runs on record")


def _published(kind: Kind, world: World, rng: np.random.Generator) -> Case:
    """Return the case of a kind; for a figure, with the score of one more run as the published one."""
    if kind.case.claim.expect is None or kind.case.claim.expect.kind != "around":
        return kind.case
    [paper] = kind.draw(replace(world, effect=0.0, seeds=1), rng)
    scores = paper["scores"]
    assert not isinstance(scores, tuple)
    published = 100 * float((scores.sample("predicted") == scores.sample("target")).mean())
    figure = kind.case.figure.model_copy(update={"published": published, "constant_answer": False})
    claim = kind.case.claim.model_copy(update={"tasks": {kind.case.task: figure}})
    return Case(claim, kind.case.task)


def cells(examples: Sequence[int], seeds: Sequence[int], ratios: Sequence[float], kind: Kind) -> Iterator[World]:
    """Yield the worlds in which a kind is judged: without an effect, and with its own."""
    in_points = kind.name not in ("attention", "layers")
    for n in examples:
        for count in seeds:
            for ratio in ratios:
                own = 3 * ratio if in_points else ratio
                yield World(n, count, own, 0.0)
                yield World(n, count, own, kind.size)
