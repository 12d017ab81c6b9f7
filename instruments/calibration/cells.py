"""Cells: in each, the real judge judges one case in many worlds of one kind. Finished blocks are saved."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.loading import cases, find_case, find_cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.requirements import measure_case, reads_model
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.progress import log
from bertsecrets.settings import JudgeParams
from bertsecrets.store.code import code_digest
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task
from instruments.calibration.procedures import PROCEDURES, examples_interval, judged
from instruments.calibration.targets import find_setting, holds, true_value
from instruments.calibration.worlds import MODEL, Setting, SimulatedModel, World, find_world

FAMILIES = "ABCDEFG"
BLOCK = 20  # number of worlds that are counted together
RESAMPLES = 500
FEW_WORLDS, MANY_WORLDS = 40, 200  # worlds of a model as published; many on the tasks `MANY_ON`
MANY_ON = ("rte", "mrpc")
ERROR_WORLDS = 1000  # number of worlds of all other kinds


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
    resamples: int = RESAMPLES
    seed: int = 1
    confidence: float = 0.95

    @property
    def blocks(self) -> list["Block"]:
        """The blocks of worlds, which are counted separately and do not depend on the number of worlds."""
        firsts = range(0, self.worlds, BLOCK)
        return [Block(replace(self, worlds=min(BLOCK, self.worlds - first)), first) for first in firsts]


@dataclass(frozen=True)
class Block:
    """Consecutive worlds of a cell, starting with the world `first`."""

    cell: Cell
    first: int


@dataclass
class Counts:
    """The verdicts in some worlds of a cell.

    Args:
        outcomes: Number of worlds with each outcome, by procedure.
        seeds: Number of seeds in all worlds, by procedure.
        examples_intervals: Number of intervals due to examples alone (`examples_interval`), and the sums of their lower
            and upper ends. Such intervals are only counted for orders in worlds as published.
        examples: Number of rows of the case's task, or None for claims over several tasks.
        seen: Digests of the verdicts of `auto`. If two cases of a task have the same digests, they are duplicates.
        truth: Noise-free value of the claim's quantity under the paper's reading, or None if it cannot be computed.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in PROCEDURES})
    seeds: Counter[str] = field(default_factory=Counter)
    examples_intervals: tuple[int, float, float] = (0, 0.0, 0.0)
    examples: int | None = None
    seen: tuple[str, ...] = ()
    truth: float | None = None

    def __add__(self, other: "Counts") -> "Counts":
        sums = zip(self.examples_intervals, other.examples_intervals, strict=True)
        number, low, high = (own + more for own, more in sums)
        return Counts(
            {name: self.outcomes[name] + other.outcomes[name] for name in PROCEDURES},
            self.seeds + other.seeds,
            (int(number), low, high),
            max(filter(None, (self.examples, other.examples)), default=None),
            self.seen + other.seen,
            self.truth if other.truth is None else other.truth,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Counts":
        """Return the counts in a line of the file."""
        outcomes = {name: Counter(data["outcomes"][name]) for name in PROCEDURES}
        number, low, high = data["examples_intervals"]
        return cls(
            outcomes, Counter(data["seeds"]), (number, low, high), data["examples"], tuple(data["seen"]), data["truth"]
        )


@dataclass(frozen=True)
class Rates:
    """The verdicts of a cell.

    Args:
        holds: Whether the claim is true for the true value of its quantity, or None if that value cannot be computed.
    """

    cell: Cell
    holds: bool | None
    counts: Counts

    @property
    def truth(self) -> float | None:
        """The true value of the claim's quantity."""
        return self.counts.truth

    def number(self, outcomes: Sequence[str], procedure: str = "auto") -> int:
        """Return the number of worlds whose outcome is among `outcomes`."""
        return sum(self.counts.outcomes[procedure][outcome] for outcome in outcomes)

    def share(self, outcome: str, procedure: str = "auto") -> float:
        """Return the fraction of worlds with an outcome."""
        return self.number([outcome], procedure) / self.cell.worlds

    @property
    def seeds(self) -> float:
        """The mean number of seeds of `auto`."""
        return round(self.counts.seeds["auto"] / self.cell.worlds, 3)

    @property
    def examples_interval(self) -> list[float] | None:
        """The mean lower and upper ends of the intervals due to examples alone, or None if none were counted."""
        number, *ends = self.counts.examples_intervals
        return [float(f"{end / number:.4g}") for end in ends] if number else None

    @property
    def digest(self) -> str:
        """A digest of all verdicts of `auto`."""
        return _digest(self.counts.seen)


@cache
def _true_value(case: str, setting: Setting) -> float | None:
    return true_value(find_case(case), setting)


def count_blocks(blocks: Sequence[Block]) -> dict[Block, Counts]:
    """Return the verdicts on some cases of a task in the same worlds, so that the cases share measurements.

    A case is left out, with a warning, if a measurement that it needs is not simulated.
    """
    first = blocks[0]
    world = find_world(first.cell.world)
    settings = JudgeParams(confidence=first.cell.confidence, resamples=first.cell.resamples, seed=2019)
    asked = {block: (case := find_case(block.cell.case), find_setting(case, world)) for block in blocks}
    counted = {block: Counts(truth=_true_value(str(case), setting)) for block, (case, setting) in asked.items()}
    for place in range(first.first, first.first + first.cell.worlds):
        models: dict[Setting, SimulatedModel] = {}
        for block, (case, setting) in list(asked.items()):
            model = models.setdefault(setting, SimulatedModel(world, setting, first.cell.seed, place))
            try:
                counted[block] += _count_one(case, model, settings)
            except UserError as error:
                log.warning(f"{case} skipped: {error}")
                del asked[block], counted[block]
    return counted


def _count_one(case: Case, model: SimulatedModel, settings: JudgeParams) -> Counts:
    """Return the verdicts on a case in one world."""
    verdicts = judged(case, model, settings)
    counts = Counts({name: Counter([verdict.status]) for name, verdict in verdicts.items()})
    counts.seeds = Counter({name: len(verdict.seeds) or 1 for name, verdict in verdicts.items()})
    auto = verdicts["auto"]
    if case.task in TASKS:
        counts.examples = max(
            (own.examples for own in auto.measurements if own.subject.task == case.task), default=None
        )
    if model.world.truth == "published" and isinstance(case.claim.expect, Order) and auto.observed is not None:
        ends = examples_interval(case, measure_case(model, case, MODEL, auto.seeds), settings)
        counts.examples_intervals = (1, *ends)
    counts.seen = (_digest((auto.status, *_numbers(auto))),)
    return counts


def _numbers(verdict: Verdict) -> list[str]:
    return [f"{number:.6g}" for number in (verdict.observed, *(verdict.interval or ())) if number is not None]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


# ---------------------------------------------------------------------- many cells


def find_cells(
    claims: Sequence[str], tasks: Sequence[str], worlds: Sequence[str], given: Mapping[str, Any]
) -> list[Cell]:
    """Return the cells for the named claims and worlds. By default, these are the claims in A to G about a model.

    Args:
        given: Other parameters of the cells. By default, the number of worlds depends on the task (`number_of_worlds`).

    Raises:
        UserError: If a claim, task or world is unknown, or no cells are left.
    """
    every = [case for case in cases() if case.claim.family in FAMILIES and not case.claim.on_request]
    chosen = [case for name in claims for case in find_cases(name)] if claims else every
    only = [name if name == ALL_TASKS else task(name).name for name in tasks]
    own = {str(case): case for case in chosen if reads_model(case) and (not only or case.task in only)}
    if not own:
        raise UserError("no claim about a model matches --claim and --task: bertsecrets claims lists them")
    kinds = {name: find_world(name) for name in worlds}
    return [
        Cell(case, name, **{"worlds": number_of_worlds(world, of.task), **given})
        for name, world in kinds.items()
        for case, of in own.items()
    ]


def number_of_worlds(world: World, task_name: str) -> int:
    """Return how many worlds are simulated by default."""
    if world != find_world("as-published"):
        return ERROR_WORLDS
    return MANY_WORLDS if task_name in MANY_ON else FEW_WORLDS


@cache
def code(case: str) -> str:
    """Return a digest of the code and the claim on which the verdicts on a simulated case depend."""
    claim = find_case(case).claim
    of_quantity = QUANTITIES[claim.quantity].function.__module__  # separate, because this module does not import it
    made_by = [code_digest(__name__), code_digest(of_quantity), claim.model_dump_json()]
    return hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:16]


def stored_counts(file: Path) -> dict[Block, Counts]:
    """Return the finished blocks in a file that were made by the current code, skipping incomplete lines."""
    counted = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            data = json.loads(line)
            block = Block(Cell(**data["cell"]), data["first"])
            if data["code"] == code(block.cell.case):
                counted[block] = Counts.from_json(data)
        except (ValueError, TypeError, KeyError, UserError):  # the line is incomplete, or from an earlier version
            continue
    return counted


def count_all(
    cells: Sequence[Cell], jobs: int, file: Path | None = None, advance: Callable[[int], Any] = lambda blocks: None
) -> list[Rates]:
    """Return the rates of all cells, either read from a file or counted by several processes.

    Args:
        file: File of finished blocks. New blocks are appended, so that a killed run can be resumed, and a longer run
            counts only additional worlds.
        advance: Progress callback, called with the number of blocks that were finished.
    """
    counted = stored_counts(file) if file else {}
    missing = [block for cell in cells for block in cell.blocks if block not in counted]
    advance(sum(len(cell.blocks) for cell in cells) - len(missing))
    for finished in _count_new(_together(missing), jobs):
        counted |= finished
        if file:
            lines = (_line(block, counts) for block, counts in finished.items())
            with file.open("a", encoding="utf-8") as appended:
                appended.write("".join(lines))
        advance(len(finished))
    complete = [cell for cell in cells if all(block in counted for block in cell.blocks)]
    sums = [sum((counted[block] for block in cell.blocks), Counts()) for cell in complete]
    return [
        Rates(cell, holds(find_case(cell.case), counts.truth), counts)
        for cell, counts in zip(complete, sums, strict=True)
    ]


def _line(block: Block, counts: Counts) -> str:
    data = {"code": code(block.cell.case), **asdict(block), **vars(counts)}
    return f"{json.dumps(data)}\n"


def _together(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return the blocks, in order, in groups with the same worlds and task, which share measurements."""
    groups: dict[tuple, list[Block]] = {}
    for block in sorted(blocks, key=lambda block: block.first):
        key = (block.first, find_case(block.cell.case).task, replace(block.cell, case=""))
        groups.setdefault(key, []).append(block)
    return list(groups.values())


def _count_new(groups: Sequence[Sequence[Block]], jobs: int) -> Iterator[dict[Block, Counts]]:
    if jobs == 1 or not groups:
        yield from map(count_blocks, groups)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # one thread per process
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(count_blocks, group) for group in groups]):
            yield done.result()
