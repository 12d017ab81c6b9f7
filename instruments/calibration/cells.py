"""Cells: one case in one kind of world, judged many times by the real judge. Finished cells are saved in a file."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.claims.bootstrap import column_means
from bertsecrets.claims.estimand import Estimand, with_same_selection
from bertsecrets.claims.estimate import estimate
from bertsecrets.claims.expectations import Figure, Order
from bertsecrets.claims.judge import judge, judge_in_sequence
from bertsecrets.claims.loading import cases, find_case, find_cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantities.likeness import with_ceiling
from bertsecrets.claims.quantity import STATE, Needed
from bertsecrets.claims.requirements import measure_case, reads_model
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import ANALYSES, MOST_REPLACED, interim_confidence, one_sided
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.formats import PASSES
from bertsecrets.progress import log
from bertsecrets.settings import JudgeParams
from bertsecrets.store.code import code_digest
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task
from instruments.calibration import answers, maps  # noqa: F401  # they register what they simulate
from instruments.calibration.truth import AGAINST
from instruments.calibration.worlds import MODEL, PAPER, Setting, SimulatedModel, find_world

PROCEDURES = ("auto", "1", "5")
FAMILIES = "ABCDEFG"
EXACT = 1e-3  # maximum distance of a truth that counts as on its threshold
CLOSE = 0.05  # the same, as a fraction of the effect


@dataclass(frozen=True)
class Cell:
    """The parameters of a cell.

    Args:
        world: Name of the type of world (`worlds.WORLDS`).
        worlds: Number of worlds.
    """

    case: str
    world: str
    worlds: int
    resamples: int
    seed: int = 1


@dataclass(frozen=True)
class Rates:
    """The verdicts of a cell.

    Args:
        truth: Noise-free value of the claim's quantity. None if it cannot be computed.
        holds: Whether the claim is true for this value.
        outcomes: Number of worlds with each outcome, by procedure.
        seeds: Mean number of seeds, by procedure.
        decided_by: Fraction of worlds that `auto` decides with at most 1, 2, ... seeds.
        examples: Number of simulated rows of the case's task. None for claims over several tasks.
        examples_interval: Mean ends of the interval that is due to examples (`examples_interval`), for an order in
            worlds as published; otherwise None.
    """

    cell: Cell
    truth: float | None
    holds: bool | None
    outcomes: dict[str, dict[str, int]]
    seeds: dict[str, float]
    decided_by: list[float]
    examples: int | None = None
    examples_interval: list[float] | None = None

    def share(self, outcome: str, procedure: str = "auto") -> float:
        """Return the fraction of worlds with an outcome."""
        return self.outcomes[procedure].get(outcome, 0) / self.cell.worlds

    def as_json(self) -> dict:
        """Return data for a line of the file."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict) -> "Rates":
        """Return the rates that `as_json` turned into data."""
        return cls(**{**data, "cell": Cell(**data["cell"])})


def count(cell: Cell, confidence: float) -> Rates:
    """Return the verdicts in a cell's worlds. Deterministic for a given cell."""
    case, world = find_case(cell.case), find_world(cell.world)
    setting = find_setting(case, world.truth)
    settings = JudgeParams(confidence=confidence, resamples=cell.resamples, seed=2019)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in PROCEDURES}
    seeds: dict[str, list[int]] = {name: [] for name in PROCEDURES}
    decided_with: list[int] = []
    order_as_published = world.truth == "published" and isinstance(case.claim.expect, Order)
    examples, intervals = set[int](), list[tuple[float, float]]()
    for place in range(cell.worlds):
        model = SimulatedModel(world, setting, cell.seed, place, several=case.task == ALL_TASKS)
        for name, verdict in judged(case, model, settings):
            outcomes[name][verdict.status] += 1
            seeds[name].append(len(verdict.seeds) or 1)
            if name == "auto" and verdict.outcome in (*PASSES, "deviates"):
                decided_with.append(seeds[name][-1])
            if name == "auto" and order_as_published and verdict.observed is not None:
                examples |= {own.examples for own in verdict.measurements if own.subject.task == case.task}
                intervals.append(examples_interval(case, measure_case(model, case, MODEL, verdict.seeds), settings))
    value = true_value(case, setting)
    return Rates(
        cell,
        value,
        holds(case, value),
        {name: dict(sorted(counts.items())) for name, counts in outcomes.items()},
        {name: round(float(np.mean(counts)), 3) for name, counts in seeds.items()},
        [round(sum(count <= most for count in decided_with) / cell.worlds, 4) for most in range(1, ANALYSES[-1] + 1)],
        max(examples, default=None) if case.task in TASKS else None,
        [float(f"{end:.4g}") for end in np.mean(intervals, axis=0)] if intervals else None,
    )


def examples_interval(
    case: Case, by_seed: Sequence[Mapping[str, Needed]], settings: JudgeParams
) -> tuple[float, float]:
    """Return the interval that is due to examples alone, at the confidence of `auto`.

    More examples make it narrower, unlike the parts due to seeds and to the pattern classifier's errors.
    """
    estimands = [without_annotated(_read(case, needed)) for needed in by_seed]
    within = QUANTITIES[case.claim.quantity].within(case.task)
    observed = estimate(with_ceiling(with_same_selection(estimands))[0], settings, seedless=True, within=within)
    level = one_sided(settings.confidence)
    return observed.interval(level if case.claim.seedless else interim_confidence(level))


def without_annotated(estimand: Estimand) -> Estimand:
    """Return the estimand with a fixed error of the pattern classifier: blocks of annotated heads become their mean."""
    if not estimand.drawn:
        return estimand
    blocks = zip(estimand.blocks, estimand.drawn, strict=True)
    fixed = tuple(block if drawn is None else column_means(block) for block, drawn in blocks)
    return replace(estimand, blocks=fixed, drawn=())


def judged(case: Case, model: SimulatedModel, settings: JudgeParams) -> Iterator[tuple[str, Verdict]]:
    """Yield each procedure's verdict on a case in one world."""
    by_seed = OnDemand(model, case)
    if model.world.truth == "one-more-run":
        case = with_paper(case, model)
    yield "auto", judge_in_sequence(case, by_seed, settings, details=False)
    yield "1", judge(case, by_seed[:1], settings, details=False)
    yield "5", judge(case, by_seed[: ANALYSES[-1]], settings, details=False)


class OnDemand(Sequence[Mapping[str, Needed]]):
    """The measurements of a case by seed, simulated lazily for the seeds that a procedure uses."""

    def __init__(self, model: SimulatedModel, case: Case):
        self.model, self.case = model, case

    def __len__(self) -> int:
        return 1 if self.case.claim.seedless else ANALYSES[-1] + MOST_REPLACED

    def __getitem__(self, place: Any) -> Any:
        seeds = range(1, len(self) + 1)[place]
        measured = measure_case(self.model, self.case, MODEL, seeds if isinstance(place, slice) else [seeds])
        if not self.model.world.collapsed:  # a truth without an effect says nothing about the scores
            measured = [{name: needed for name, needed in by_need.items() if name != STATE} for by_need in measured]
        return measured if isinstance(place, slice) else measured[0]


def with_paper(case: Case, model: SimulatedModel) -> Case:
    """Replace a case's published figure with a random one: another run of the procedure, or a draw from its doubt."""
    figure, expect = case.figure, case.claim.expect
    if figure.published is None or not isinstance(expect, Figure):
        return case
    if figure.doubt is None:
        whole = SimulatedModel(replace(model.world, examples=None, collapsed=0), model.setting, model.seed, model.place)
        published = _estimand(case, whole, PAPER).value
    else:
        published = figure.published + figure.doubt * float(model.rng("paper").standard_t(figure.doubt_degrees))
    tasks = {case.task: figure.model_copy(update={"published": published})}
    return Case(case.claim.model_copy(update={"tasks": tasks}), case.task)


def _estimand(case: Case, model: SimulatedModel, seed: int = 1) -> Estimand:
    return _read(case, measure_case(model, case, MODEL, [seed])[0])


def _read(case: Case, needed: Mapping[str, Needed]) -> Estimand:
    return QUANTITIES[case.claim.quantity].read(needed, **case.claim.arguments)


def true_value(case: Case, setting: Setting) -> float | None:
    """Return the noise-free value of a claim's quantity; None if it cannot be computed."""
    try:
        value = _estimand(case, SimulatedModel(find_world("as-published"), setting, 0, 0, noise=False)).value
    except NotApplicableError:
        return None
    return value if np.isfinite(value) else None


def holds(case: Case, value: float | None) -> bool | None:
    """Return whether a claim is true for a value. Published figures count as true."""
    expect = case.claim.expect
    if value is None or not isinstance(expect, Order):
        return None if value is None else True
    return expect.sign * value - expect.threshold(case) > EXACT


def least(case: Case) -> float:
    """Return the smallest value for which an order holds: the smallest effect of interest, or half the published."""
    expect = case.claim.expect
    assert isinstance(expect, Order)
    return expect.sign * max(expect.threshold(case), expect.half_of_published(case))


@cache
def _strength(name: str, target: float) -> float:
    case = find_case(name)
    against = AGAINST.get(case.claim.quantity, "nothing")

    def off(strength: float) -> float:
        value = true_value(case, Setting(strength, against))
        return np.nan if value is None else value - target

    ends = {strength: off(strength) for strength in (1.0, 0.0)}
    for one, other in ((1.0, 0.0), (1.0, 2.0), (2.0, 3.0), (0.0, -1.0)):
        ends |= {strength: off(strength) for strength in (one, other) if strength not in ends}
        if np.isfinite([ends[one], ends[other]]).all() and ends[one] * ends[other] <= 0 and ends[one] != ends[other]:
            high, low = (one, other) if ends[one] > ends[other] else (other, one)
            for _ in range(20):
                middle = (low + high) / 2
                low, high = (low, middle) if off(middle) > 0 else (middle, high)
            # a discontinuous quantity, such as a rank, never equals the threshold: use the truth without any effect
            return high if abs(off(high)) <= CLOSE * abs(ends[one] - ends[other]) else 0.0
    return 0.0


def find_setting(case: Case, truth: str) -> Setting:
    """Return the setting whose truth is the published value, the threshold, or the smallest sufficient effect."""
    expect = case.claim.expect
    if truth not in ("null", "least") or not isinstance(expect, Order):
        return Setting()
    target = expect.value if truth == "null" else least(case)
    return Setting(_strength(str(case), target), AGAINST.get(case.claim.quantity, "nothing"))


# ---------------------------------------------------------------------- many cells


def find_cells(
    claims: Sequence[str], tasks: Sequence[str], worlds: Sequence[str], count: int, resamples: int, seed: int
) -> list[Cell]:
    """Return the cells for the named claims and worlds, by default for claims A to G that are about a model.

    Raises:
        UserError: If a claim, task or world is unknown, or no cells are left.
    """
    every = [case for case in cases() if case.claim.family in FAMILIES and not case.claim.on_request]
    chosen = [case for name in claims for case in find_cases(name)] if claims else every
    only = [name if name == ALL_TASKS else task(name).name for name in tasks]
    names = [str(case) for case in chosen if reads_model(case) and (not only or case.task in only)]
    if not names:
        raise UserError("no claim about a model matches --claim and --task: bertsecrets claims lists them")
    for world in worlds:
        find_world(world)
    return [Cell(name, world, count, resamples, seed) for world in worlds for name in dict.fromkeys(names)]


def code(cell: Cell) -> str:
    """Return a digest of the code and the claim that a cell's rates depend on."""
    claim = find_case(cell.case).claim
    of_quantity = QUANTITIES[claim.quantity].function.__module__  # not among the imports of this module
    made_by = [code_digest(__name__), code_digest(of_quantity), claim.model_dump_json()]
    return hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:16]


def stored_rates(file: Path) -> dict[Cell, Rates]:
    """Return a file's finished cells that were made by the current code. Incomplete lines are skipped."""
    rates_by_cell = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            data = json.loads(line)
            made_by, rates = data.pop("code"), Rates.from_json(data)
            if made_by == code(rates.cell):
                rates_by_cell[rates.cell] = rates
        except (ValueError, TypeError, KeyError, UserError):  # incomplete, or from an earlier version
            continue
    return rates_by_cell


def count_all(cells: Sequence[Cell], confidence: float, jobs: int, file: Path | None = None) -> Iterator[Rates]:
    """Yield the verdicts of each finished cell, from a file or counted by several processes.

    Args:
        file: File of finished cells. New cells are appended, so that a killed run can be resumed.
    """
    done = stored_rates(file) if file else {}
    yield from (done[cell] for cell in cells if cell in done)
    for rates in _count_new([cell for cell in cells if cell not in done], confidence, jobs):
        if file:
            with file.open("a", encoding="utf-8") as lines:
                lines.write(f"{json.dumps({'code': code(rates.cell), **rates.as_json()})}\n")
        yield rates


def _count_new(cells: Sequence[Cell], confidence: float, jobs: int) -> Iterator[Rates]:
    if jobs == 1 or not cells:
        for cell in cells:
            yield from _unless_unknown(cell, partial(count, cell, confidence))
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # per process
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        submitted = {pool.submit(count, cell, confidence): cell for cell in cells}
        for done in as_completed(submitted):
            yield from _unless_unknown(submitted[done], done.result)


def _unless_unknown(cell: Cell, result: Callable[[], Rates]) -> Iterator[Rates]:
    """Yield a cell's rates, or warn if a measurement that the case needs is not simulated."""
    try:
        yield result()
    except UserError as error:
        log.warning(f"{cell.case} skipped: {error}")
