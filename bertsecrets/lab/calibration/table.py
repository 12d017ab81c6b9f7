"""Tables of the rates by kind of claim and number of seeds; each row shows the worst cell."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bertsecrets.lab.calibration.kinds import kinds
from bertsecrets.lab.calibration.rates import COVERAGE, ENOUGH_EXAMPLES, MOST, POWER, Rates
from bertsecrets.report import tables
from bertsecrets.report.tables import Format

HEADER = (
    "kind of claim",
    "case",
    "seeds",
    "false deviates",
    "false reproduced",
    "coverage",
    "recognised",
    "width",
    "out of bounds",
)
LEGEND = (
    f"In percent of worlds; the worst cell with at least {ENOUGH_EXAMPLES} examples counts. Bounds: false verdicts at "
    f"most {MOST:.0%}; coverage of the printed interval {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%} (~: may be higher, as "
    f"no exact interval exists); effects of the published size recognised in {POWER:.0%} with five seeds (*: not "
    "required, since the task has too few examples). Width: median width of the printed interval, in the claim's unit."
)


def table(found: Sequence[Rates], form: Format = "text") -> str:
    """Return a table with one row for each kind and number of seeds, and a legend."""
    groups: dict[tuple[str, bool, int], list[Rates]] = {}
    for rates in found:
        world = rates.cell.world
        groups.setdefault((rates.cell.kind, world.known, world.seeds), []).append(rates)
    rows = [_row(*key, group) for key, group in groups.items()]
    return f"{tables.table(HEADER, rows, form)}\n\n{LEGEND}\n"


def wrong_lines(found: Sequence[Rates]) -> list[str]:
    """Return a line for each cell in which a rate is out of bounds."""
    lines = []
    for rates in filter(lambda rates: rates.wrong, found):
        world = rates.cell.world
        where = f"{world.examples} examples, {world.seeds} seeds, spread {world.ratio:g}, effect {rates.cell.effect}"
        lines.append(f"{rates.cell.kind} ({where}): {', '.join(rates.wrong)}")
    return lines


def as_data(rates: Rates) -> dict[str, Any]:
    """Return the rates of a cell as data."""
    found = asdict(rates)
    return {**found.pop("cell"), **found}


def _row(name: str, known: bool, seeds: int, group: Sequence[Rates]) -> list[str]:
    kind = kinds()[name]
    enough = [rates for rates in group if rates.cell.world.examples >= ENOUGH_EXAMPLES] or group
    covered = [rates.coverage for rates in enough if rates.coverage is not None]
    recognised = [rates.power for rates in enough if rates.power is not None]
    widths = [rates.width for rates in enough if rates.width is not None]
    return [
        name + ("" if known else ", spread unknown"),
        str(kind.case),
        "none" if kind.case.claim.seedless else str(seeds),
        _percent([rates.false_deviates for rates in enough]),
        _percent([rates.false_reproduced for rates in enough]),
        ("~" if kind.conservative else "") + _range(covered),
        ("" if kind.due else "*") + _range(recognised) if recognised else "-",
        f"{min(widths):.2g} to {max(widths):.2g}" if widths else "-",
        "; ".join(dict.fromkeys(text for rates in group for text in rates.wrong)),
    ]


def _percent(shares: Sequence[float | None]) -> str:
    known = [share for share in shares if share is not None]
    return f"{100 * max(known):.1f}" if known else "-"


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return "-"
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"
