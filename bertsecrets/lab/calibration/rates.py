"""The judge's error rates, coverage and power over simulated worlds."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bertsecrets.claims.estimate import Spread, estimate, pooled
from bertsecrets.claims.judge import FEWEST, judge
from bertsecrets.claims.record import std_of_seeds
from bertsecrets.claims.schema import Case
from bertsecrets.lab.calibration.kinds import RUNS, Kind, kinds
from bertsecrets.lab.calibration.worlds import Drawn, World
from bertsecrets.settings import JudgeParams

ON_RECORD = 3  # tasks whose seeds are on record, `RUNS` of each
MOST = 0.06  # largest share of false alarms, and of false reproductions
COVERAGE = (0.93, 0.97)
STANDARD_ERRORS = 2.5  # larger deviations from a bound are not chance
POWER = 0.8  # least share of worlds in which an effect of the published size is recognised
ROUGHLY = JudgeParams(confidence=0.95, resamples=200, seed=1)  # to estimate how similar runs on record are
ENOUGH_EXAMPLES, ENOUGH_SEEDS = 100, 5  # the bounds on false verdicts, and on power, hold from these numbers on


@dataclass(frozen=True)
class Cell:
    """The worlds of one kind with the same truth."""

    kind: str
    effect: str
    world: World


@dataclass(frozen=True)
class Rates:
    """The judge's verdicts in the worlds of a cell.

    Args:
        outcomes: the share of each.
        false_deviates: the share of worlds judged "deviates" if that is false; None if it is true.
        false_reproduced: likewise for "reproduced", if the threshold is the truth or the model has learned nothing.
        coverage: the share of printed intervals that contain the truth; None if there is no single truth.
        power: the share of worlds in which an effect of the published size is recognised; None without an effect.
        width: the median width of the printed interval.
        wrong: the rates that are out of bounds.
    """

    cell: Cell
    worlds: int
    outcomes: dict[str, float]
    false_deviates: float | None
    false_reproduced: float | None
    coverage: float | None
    power: float | None
    width: float | None
    wrong: list[str] = field(default_factory=list)


def cells(
    kind: Kind, examples: Sequence[int], seeds: Sequence[int], ratios: Sequence[float] | None = None, known: bool = True
) -> Iterator[Cell]:
    """Yield the cells of a kind: every effect with every number of examples and seeds, and every spread."""
    for effect, size in kind.effects.items():
        for n in examples:
            for count in [1] if kind.case.claim.seedless else seeds:
                for ratio in kind.ratios:
                    if ratios is None or ratio in ratios:
                        yield Cell(kind.name, effect, World(n, count, ratio, float(size), known))


def rates(cell: Cell, worlds: int, settings: JudgeParams, seed: int = 1) -> Rates:
    """Return the judge's rates in a number of worlds of a cell."""
    kind, world = kinds()[cell.kind], cell.world
    rng = np.random.default_rng([seed, *cell.kind.encode(), *cell.effect.encode()])
    outcomes: Counter[str] = Counter()
    held, widths = [], []
    for _ in range(worlds):
        drawn = kind.draw(world, rng)
        known = spread_beforehand(kind, drawn, world, rng) if world.known else None
        verdict = judge(_case(kind, drawn, world.known), drawn.by_seed, settings, known, look_up=False)
        outcomes[verdict.status] += 1
        if verdict.interval is not None:
            widths.append(verdict.interval[1] - verdict.interval[0])
            if drawn.truth is not None:
                held.append(verdict.interval[0] <= drawn.truth <= verdict.interval[1])
    shares = {name: count / worlds for name, count in outcomes.items()}
    alone = world.seeds == 1 and not world.known and not kind.case.claim.seedless
    few = alone or world.examples < FEWEST  # nothing can be decided
    counted = Rates(
        cell,
        worlds,
        shares,
        false_deviates=shares.get("deviates", 0.0) if few or cell.effect in ("none", "half", "published") else None,
        false_reproduced=shares.get("reproduced", 0.0) if few or cell.effect == kind.nothing else None,
        coverage=float(np.mean(held)) if held else None,
        power=shares.get(kind.recognised, 0.0) if cell.effect not in ("none", "half") else None,
        width=float(np.median(widths)) if widths else None,
    )
    return replace(counted, wrong=_wrong(kind, counted, decidable=not few))


def spread_beforehand(kind: Kind, drawn: Drawn, world: World, rng: np.random.Generator) -> Spread | None:
    """Return the prior spread over seeds: cited for the same examples, or from runs on other tasks."""
    if kind.case.claim.seedless:
        return None
    several = [drawn.cited] if drawn.cited else [
        kind.draw(replace(world, seeds=RUNS), rng).by_seed for _ in range(ON_RECORD)
    ]  # fmt: skip
    spreads, shared = [], []
    for by_seed in several:
        estimands = [kind.read(needed) for needed in by_seed]
        std = std_of_seeds([estimand.parts.tolist() for estimand in estimands], estimands[0].extreme)
        spreads.append((std, RUNS - 1))
        seen = estimate(estimands, ROUGHLY).alike if world.seeds == 1 else None
        shared.append(1.0 if seen is None else seen)
    if drawn.cited:
        return Spread(*spreads[0], "five more seeds", float(np.mean(shared)))
    return pooled(spreads, "runs on record", float(np.mean(shared)))


def _case(kind: Kind, drawn: Drawn, known: bool) -> Case:
    """Return the case to judge: a figure gets this world's published score; without prior knowledge of the spread, the
    claim gets a name that has no runs on record.
    """
    claim, figure = kind.case.claim, kind.case.figure
    if drawn.paper is not None:
        figure = figure.model_copy(update={"published": kind.read(drawn.paper).value})
    if not known:
        figure = figure.model_copy(update={"seed_std": None})
        claim = claim.model_copy(update={"variant": "without-runs-on-record"})
    return Case(claim.model_copy(update={"tasks": {kind.case.task: figure}}), kind.case.task)


def _wrong(kind: Kind, rates: Rates, decidable: bool) -> list[str]:
    """Return the rates that are out of bounds by more than chance explains.

    Args:
        decidable: if False, every decision is false.
    """
    world, wrong = rates.cell.world, []
    most = MOST if decidable else 0.0
    for name, share in (("deviates", rates.false_deviates), ("reproduced", rates.false_reproduced)):
        if share is not None and share > most + _chance(most, rates.worlds):
            wrong.append(f"{share:.1%} {name}")
    if not decidable or world.examples < ENOUGH_EXAMPLES:
        return [] if decidable else wrong
    if rates.coverage is not None:
        low, high = COVERAGE[0] - _chance(COVERAGE[0], rates.worlds), COVERAGE[1] + _chance(COVERAGE[1], rates.worlds)
        if rates.coverage < low or (rates.coverage > high and not kind.conservative):
            wrong.append(f"{rates.coverage:.1%} covered")
    due = kind.due and world.seeds >= ENOUGH_SEEDS
    if due and rates.power is not None and rates.power < POWER - _chance(POWER, rates.worlds):
        wrong.append(f"{rates.power:.0%} recognised")
    return wrong


def _chance(share: float, worlds: int) -> float:
    """Return the largest deviation of a share over this many worlds that chance explains."""
    return float(STANDARD_ERRORS * np.sqrt(share * (1 - share) / worlds))
