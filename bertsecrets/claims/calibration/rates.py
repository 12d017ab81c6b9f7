"""How often the judge is wrong, and how often it recognises what is there: rates over made-up worlds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bertsecrets.claims.calibration.kinds import RUNS, Kind
from bertsecrets.claims.calibration.worlds import Drawn, World
from bertsecrets.claims.judge import FEWEST, judge
from bertsecrets.claims.schema import Case
from bertsecrets.claims.spread import Spread, pooled
from bertsecrets.settings import JudgeParams

ON_RECORD = 3  # tasks whose seeds are on record, `RUNS` of each
MOST = 0.06  # of false alarms, and of what is falsely called reproduced
COVERAGE = (0.93, 0.97)
POWER = 0.8  # of recognising an effect of the published size
ENOUGH_EXAMPLES, ENOUGH_SEEDS = 100, 5  # from which on the bounds hold: for false alarms, and for power


@dataclass(frozen=True)
class Cell:
    """The worlds of one kind with one truth."""

    kind: str
    effect: str
    world: World


@dataclass(frozen=True)
class Rates:
    """What the judge says in the worlds of a cell.

    Args:
        outcomes: the share of each.
        coverage: the share of printed intervals that hold the truth; None where there is no single truth.
        power: the share of worlds in which an effect of the published size is recognised; None without an effect.
        width: of the printed interval, the median.
        wrong: what is out of bounds, in a few words each.
    """

    cell: Cell
    worlds: int
    outcomes: dict[str, float]
    coverage: float | None
    power: float | None
    width: float | None
    wrong: list[str] = field(default_factory=list)


def cells(
    kind: Kind, examples: Sequence[int], seeds: Sequence[int], ratios: Sequence[float] | None = None, known: bool = True
) -> Iterator[Cell]:
    """Yield the cells in which a kind is judged: every truth, with every number of examples and seeds, and spread."""
    for effect, size in kind.effects.items():
        for n in examples:
            for count in [1] if kind.case.claim.seedless else seeds:
                for ratio in kind.ratios:
                    if ratios is None or ratio in ratios:
                        yield Cell(kind.name, effect, World(n, count, ratio, float(size), known))


def rates(kind: Kind, cell: Cell, worlds: int, settings: JudgeParams, seed: int = 1) -> Rates:
    """Return what the judge says in so many worlds of a cell."""
    world = cell.world
    rng = np.random.default_rng([seed, *cell.kind.encode(), *cell.effect.encode()])
    outcomes: Counter[str] = Counter()
    held, widths = [], []
    for _ in range(worlds):
        drawn = kind.draw(world, rng)
        known = spread_beforehand(kind, drawn, world, rng) if world.known else None
        verdict = judge(_case(kind, drawn, world.known), drawn.by_seed, settings, known)
        outcomes[verdict.outcome] += 1
        if verdict.interval is not None:
            widths.append(verdict.interval[1] - verdict.interval[0])
            if drawn.truth is not None:
                held.append(verdict.interval[0] <= drawn.truth <= verdict.interval[1])
    shares = {name: count / worlds for name, count in outcomes.items()}
    found = Rates(
        cell,
        worlds,
        shares,
        coverage=float(np.mean(held)) if held else None,
        power=shares.get(kind.recognised, 0.0) if cell.effect not in ("none", "half") else None,
        width=float(np.median(widths)) if widths else None,
    )
    return replace(found, wrong=_wrong(kind, found))


def spread_beforehand(kind: Kind, drawn: Drawn, world: World, rng: np.random.Generator) -> Spread | None:
    """Return the spread over seeds as it is known: cited for the same examples, or from runs on other tasks."""
    if kind.case.claim.seedless:
        return None
    if drawn.cited:
        values = [kind.value(needed) for needed in drawn.cited]
        return Spread(float(np.std(values, ddof=1)), RUNS - 1, "five more seeds")
    spreads = []
    for _ in range(ON_RECORD):
        values = [kind.value(needed) for needed in kind.draw(replace(world, seeds=RUNS), rng).by_seed]
        spreads.append((float(np.std(values, ddof=1)), RUNS - 1))
    return pooled(spreads, "runs on record")


def _case(kind: Kind, drawn: Drawn, known: bool) -> Case:
    """Return the case of a kind: for a figure with the score that is published, and for one of which nothing is known
    under a name that no run on record has.
    """
    claim, figure = kind.case.claim, kind.case.figure
    if drawn.paper is not None:
        figure = figure.model_copy(update={"published": kind.value(drawn.paper)})
    if not known:
        figure = figure.model_copy(update={"seed_std": None})
        claim = claim.model_copy(update={"variant": "of-which-nothing-is-known"})
    return Case(claim.model_copy(update={"tasks": {kind.case.task: figure}}), kind.case.task)


def _wrong(kind: Kind, found: Rates) -> list[str]:
    """Return what is out of bounds by more than chance explains: two standard errors."""
    world, effect = found.cell.world, found.cell.effect
    wrong = []

    def above(name: str, most: float) -> None:
        share = found.outcomes.get(name, 0.0)
        if share > most + 2 * np.sqrt(most * (1 - most) / found.worlds):
            wrong.append(f"{share:.1%} {name}")

    alone = world.seeds == 1 and not world.known and not kind.case.claim.seedless
    if alone or world.examples < FEWEST:
        for name in ("deviates", "reproduced"):
            above(name, 0.0)
        return wrong
    if world.examples < ENOUGH_EXAMPLES:
        return wrong
    if effect in ("none", "half", "published"):
        above("deviates", MOST)
    if effect == ("nothing" if kind.around else "none"):
        above("reproduced", MOST)
    if found.coverage is not None:
        low, high = COVERAGE
        slack = 2 * np.sqrt(0.05 * 0.95 / found.worlds)
        if found.coverage < low - slack or (found.coverage > high + slack and not kind.conservative):
            wrong.append(f"coverage {found.coverage:.1%}")
    if kind.due and found.power is not None and world.seeds >= ENOUGH_SEEDS:
        slack = 2 * np.sqrt(POWER * (1 - POWER) / found.worlds)
        if found.power < POWER - slack:
            wrong.append(f"{found.power:.0%} recognised")
    return wrong
