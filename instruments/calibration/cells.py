"""Cells. In each cell, the judge judges one case in many worlds of one kind. Finished blocks are saved."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.loading import cases, find_case, find_cases
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.requirements import measure_case, reads_model
from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.progress import log
from bertsecrets.settings import JudgeParams
from bertsecrets.store.code import code_digest
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task
from instruments.calibration.procedures import examples_interval, judged
from instruments.calibration.targets import find_setting, holds, true_value
from instruments.calibration.worlds import MODEL, Setting, SimulatedModel, World, find_world

FAMILIES = "ABCDEFG"
BLOCK = 20  # number of worlds that are counted together
RESAMPLES = 500
FEW_WORLDS, MANY_WORLDS = 40, 200  # worlds of a model as published, on most tasks and on `MANY_ON`
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


@dataclass(frozen=True)
class WorldVerdicts:
    """The verdicts on a case in one world.

    Args:
        truth: Noise-free value of the claim's quantity under the paper's reading, or None if it cannot be computed.
        outcomes: Outcome by procedure.
        seeds: Number of seeds of `auto`.
        examples: Number of rows of the case's task, or None for claims over several tasks.
        examples_interval: Interval due to examples alone (`procedures.examples_interval`), of orders in worlds as
            published.
        seen: Digest of the verdict of `auto`. If two cases of a task have the same digests, they are duplicates.
    """

    truth: float | None
    outcomes: dict[str, str]
    seeds: int
    examples: int | None
    examples_interval: Sequence[float] | None
    seen: str


@dataclass(frozen=True)
class Rates:
    """The verdicts in all worlds of a cell."""

    cell: Cell
    worlds: Sequence[WorldVerdicts]

    @property
    def truth(self) -> float | None:
        """The true value of the claim's quantity."""
        return self.worlds[0].truth

    @property
    def holds(self) -> bool | None:
        """Whether the claim is true for the true value of its quantity, or None if that value cannot be computed."""
        return holds(find_case(self.cell.case), self.truth)

    def number(self, outcomes: Sequence[str], procedure: str = "auto") -> int:
        """Return the number of worlds whose outcome is among `outcomes`."""
        return sum(world.outcomes[procedure] in outcomes for world in self.worlds)

    def share(self, outcome: str, procedure: str = "auto") -> float:
        """Return the fraction of worlds with an outcome."""
        return self.number([outcome], procedure) / self.cell.worlds

    @property
    def seeds(self) -> float:
        """The mean number of seeds of `auto`."""
        return round(sum(world.seeds for world in self.worlds) / self.cell.worlds, 3)

    @property
    def examples(self) -> int | None:
        """The number of rows of the case's task, or None for claims over several tasks."""
        return max((world.examples for world in self.worlds if world.examples), default=None)

    @property
    def examples_interval(self) -> list[float] | None:
        """The mean lower and upper ends of the intervals due to examples alone, or None if there are none."""
        intervals = [world.examples_interval for world in self.worlds if world.examples_interval]
        return [float(f"{sum(ends) / len(ends):.4g}") for ends in zip(*intervals, strict=True)] or None

    @property
    def digest(self) -> str:
        """A digest of all verdicts of `auto`."""
        return _digest([world.seen for world in self.worlds])


@cache
def _true_value(case: str, setting: Setting) -> float | None:
    return true_value(find_case(case), setting)


def count_blocks(blocks: Sequence[Block]) -> dict[Block, list[WorldVerdicts]]:
    """Return the verdicts on some cases of a task in the same worlds, so that the cases share measurements.

    A case is left out, with a warning, if a measurement that it needs is not simulated.
    """
    first = blocks[0]
    world = find_world(first.cell.world)
    settings = JudgeParams(confidence=first.cell.confidence, resamples=first.cell.resamples, seed=2019)
    asked = {block: (case := find_case(block.cell.case), find_setting(case, world)) for block in blocks}
    counted: dict[Block, list[WorldVerdicts]] = {block: [] for block in blocks}
    for place in range(first.first, first.first + first.cell.worlds):
        models: dict[Setting, SimulatedModel] = {}
        for block, (case, setting) in list(asked.items()):
            model = models.setdefault(setting, SimulatedModel(world, setting, first.cell.seed, place))
            try:
                counted[block].append(_verdicts(case, model, settings))
            except UserError as error:
                log.warning(f"{case} skipped: {error}")
                del asked[block], counted[block]
    return counted


def _verdicts(case: Case, model: SimulatedModel, settings: JudgeParams) -> WorldVerdicts:
    """Return the verdicts on a case in one world."""
    verdicts = judged(case, model, settings)
    auto = verdicts["auto"]
    examples = [own.examples for own in auto.measurements if case.task in TASKS and own.subject.task == case.task]
    ends = None
    if model.world.truth == "published" and isinstance(case.claim.expect, Order) and auto.observed is not None:
        ends = examples_interval(case, measure_case(model, case, MODEL, auto.seeds), settings)
    numbers = [number for number in (auto.observed, *(auto.interval or ())) if number is not None]
    return WorldVerdicts(
        truth=_true_value(str(case), model.setting),
        outcomes={name: verdict.status for name, verdict in verdicts.items()},
        seeds=len(auto.seeds) or 1,
        examples=max(examples, default=None),
        examples_interval=ends,
        seen=_digest([auto.status, *(f"{number:.6g}" for number in numbers)]),
    )


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


def stored_counts(file: Path) -> dict[Block, list[WorldVerdicts]]:
    """Return the finished blocks in a file that were made by the current code, skipping incomplete lines."""
    counted = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            data = json.loads(line)
            block = Block(Cell(**data["cell"]), data["first"])
            if data["code"] == code(block.cell.case):
                counted[block] = [WorldVerdicts(**world) for world in data["worlds"]]
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
            with file.open("a", encoding="utf-8") as appended:
                for block, worlds in finished.items():
                    data = {"code": code(block.cell.case), **asdict(block), "worlds": [vars(world) for world in worlds]}
                    appended.write(f"{json.dumps(data)}\n")
        advance(len(finished))
    complete = [cell for cell in cells if all(block in counted for block in cell.blocks)]
    return [Rates(cell, [world for block in cell.blocks for world in counted[block]]) for cell in complete]


def _together(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return the blocks, in order, in groups with the same worlds and task, which share measurements."""
    groups: dict[tuple, list[Block]] = {}
    for block in sorted(blocks, key=lambda block: block.first):
        key = (block.first, find_case(block.cell.case).task, replace(block.cell, case=""))
        groups.setdefault(key, []).append(block)
    return list(groups.values())


def _count_new(groups: Sequence[Sequence[Block]], jobs: int) -> Iterator[dict[Block, list[WorldVerdicts]]]:
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
