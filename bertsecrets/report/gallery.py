"""The gallery: one page of claims by models, from the verdicts and runs on record, and of the pins.

`expected/evidence/verdicts-*.json` are files of `report --json`, with verdicts; `seeds-*.json` are runs on record:
what every seed gave, without a verdict. They fill the cells that have none. `expected/variants/*.yaml` are pins.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.estimand import decisive
from bertsecrets.claims.record import Runs, runs_on_record
from bertsecrets.claims.schema import Case, cases
from bertsecrets.compare.pins import PinnedQuantity, read_pin
from bertsecrets.errors import UserError
from bertsecrets.extras import from_extra
from bertsecrets.formats import ReadingData, VerdictData, VerdictsFile
from bertsecrets.report.changes import read_verdicts_file
from bertsecrets.report.outcomes import counted
from bertsecrets.report.text import outcome_in_words, task_title
from bertsecrets.types import slug

with from_extra("jinja2"):
    from jinja2 import Environment, PackageLoader, select_autoescape

RECORD = "no verdict"  # of what is on record by seed alone
VERDICTS, PINS = "evidence/verdicts-*.json", "variants/*.yaml"


@dataclass(frozen=True)
class Cell:
    """What is known of one claim by one model: an outcome, the observed value with its interval, and why.

    Of a claim that hangs on how a word is read, `observed` has a line for each reading.
    """

    outcome: str
    said: str
    observed: tuple[str, ...]
    seeds: int
    reason: str


@dataclass(frozen=True)
class Grid:
    """What is known of claims by models.

    Attributes:
        runs: the files of verdicts.
        cells: by model, and then by the name of a case.
    """

    runs: list[VerdictsFile]
    cells: dict[str, dict[str, Cell]]

    @classmethod
    def of(cls, folder: Path, files: Sequence[Path] = (), *, confidence: float) -> "Grid":
        """Return what is on record in a folder such as `expected/` and in more files of verdicts.

        Args:
            confidence: of the intervals of runs on record.

        Raises:
            UserError: a file is not what it should be.
        """
        runs = [read_verdicts_file(file) for file in (*sorted(folder.glob(VERDICTS)), *files)]
        cells = _recorded(runs_on_record(), confidence)
        for run in sorted(runs, key=lambda run: run.made):  # the newest verdict on a case stays
            for verdict in run.verdicts:
                cells.setdefault(run.model, {})[verdict.id] = _cell(verdict)
        return cls(runs, cells)

    @property
    def rows(self) -> list[tuple[Case, list[Cell | None]]]:
        """The cases of which something is known, each with a cell for every model that has one."""
        rows = [(case, [cells.get(str(case)) for cells in self.cells.values()]) for case in cases()]
        return [(case, cells) for case, cells in rows if any(cells)]


def page(folder: Path, files: Sequence[Path] = (), *, confidence: float) -> str:
    """Return the page.

    Args:
        folder: `expected/`, with `evidence` and `variants`.
        files: more files of verdicts, which `report --json` wrote.
        confidence: of the intervals of runs on record.

    Raises:
        UserError: a file is not what it should be, or there is nothing to show.
    """
    grid = Grid.of(folder, files, confidence=confidence)
    pins = [(file.stem, read_pin(file)) for file in sorted(folder.glob(PINS))]
    if not any(grid.cells.values()) and not pins:
        raise UserError(f"nothing to show: {folder} has no evidence and no pins, and no file of verdicts is named")
    environment = Environment(loader=PackageLoader("bertsecrets.report"), autoescape=select_autoescape(default=True))
    return environment.get_template("gallery.html").render(
        models=list(grid.cells),
        counts={model: _count(cells.values()) for model, cells in grid.cells.items()},
        rows=grid.rows,
        pins=pins,
        shown=_shown,
        sources=_sources(grid.runs),
        confidence=f"{100 * confidence:g}",
        task_title=task_title,
        claim_name=_name,
        slug=slug,
    )


def _recorded(found: Iterable[tuple[str, Runs]], confidence: float) -> dict[str, dict[str, Cell]]:
    """Return the cells of runs on record, by model and case."""
    from scipy.stats import t as student  # takes most of a second to import

    named = {(case.claim.name, case.task): str(case) for case in cases()}
    grid: dict[str, dict[str, Cell]] = {}
    for model, runs in found:
        name = named.get((runs.claim, runs.task))
        if name is None:  # of a claim that is gone
            continue
        part = decisive(np.mean(runs.values, axis=0), runs.extreme)
        by_seed = np.array([parts[part] for parts in runs.values])
        reach = student.ppf((1 + confidence) / 2, len(by_seed) - 1) * by_seed.std(ddof=1) / math.sqrt(len(by_seed))
        mean = float(by_seed.mean())
        shown = f"{runs.reading} {format_number(mean)} {format_interval((mean - reach, mean + reach))}".lstrip()
        known = grid.setdefault(model, {}).get(name)
        why = "on record by seed; the interval is that of the seeds alone, so it decides nothing"
        before = () if known is None else known.observed
        grid[model][name] = Cell(RECORD, RECORD, (*before, shown), len(by_seed), why)
    return grid


def _cell(verdict: VerdictData) -> Cell:
    if verdict.readings:
        observed = tuple(f"{name} {_observed(one)}" for name, one in verdict.readings.items())
    else:
        observed = () if verdict.observed is None else (_observed(verdict),)
    why = "; ".join([verdict.reason, *verdict.remarks])
    said = outcome_in_words(verdict.verdict, verdict.against)
    return Cell(verdict.verdict, said, observed, len(verdict.seeds), why)


def _observed(found: VerdictData | ReadingData) -> str:
    interval = None
    if found.interval is not None:
        low, high = found.interval
        interval = (-math.inf if low is None else low, math.inf if high is None else high)
    return f"{format_number(found.observed)} {format_interval(interval)}"


def _count(cells: Iterable[Cell]) -> str:
    outcomes = [cell.outcome for cell in cells if cell.outcome != RECORD]
    return counted(outcomes) if outcomes else RECORD


def _name(case: Case) -> str:
    return case.claim.name


def _sources(runs: Sequence[VerdictsFile]) -> list[str]:
    """Return, for each file of verdicts, who made it and when, in words."""
    return [
        f"{run.model}: {run.made}, commit {(run.commit or 'unknown')[:12]}, "
        f"bertsecrets {run.software.get('bertsecrets')}"
        for run in runs
    ]


def _shown(quantity: PinnedQuantity) -> str:
    """Return a pinned quantity's mean over heads, with the spread over seeds."""
    mean, std = (np.nanmean(np.asarray(part, dtype=np.float64)) for part in (quantity.mean, quantity.std))
    return f"{format_number(float(mean))} ± {format_number(float(std))}"
