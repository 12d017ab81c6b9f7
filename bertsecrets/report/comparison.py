"""The wording of comparisons, and their one form: a title, tables and lines, as text, Markdown or a page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bertsecrets.claims.band import format_number
from bertsecrets.claims.units import smallest
from bertsecrets.compare.comparison import Compared, Comparison, Difference
from bertsecrets.errors import one_line
from bertsecrets.report.markdown import bounded, code, prose
from bertsecrets.report.tables import fold, table
from bertsecrets.report.text import task_title

COMMENT = 40_000  # bytes of all tables in Markdown; a comment on GitHub has at most 65,536 characters
NAMED = 5  # cells of a quantity that a message names
WIDTHS = {"quantity": 26, "largest difference": 44, "verdict": 30}
REPLICATIONS = {"seeds": ("sd", "standard deviations over seeds"), "examples": ("se", "standard errors over examples")}


@dataclass(frozen=True)
class Table:
    """A table of plain text; in a terminal, `widths` bounds the columns that it names."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    widths: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the table for a terminal."""
        widths = [self.widths.get(name, 1000) for name in self.header]
        rows = [[fold(one_line(cell), width, 0) for cell, width in zip(row, widths, strict=True)] for row in self.rows]
        return table(self.header, rows)


@dataclass(frozen=True)
class Findings:
    """What a comparison found, as text; `about` says what was compared."""

    title: str
    about: str
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()

    def text(self) -> str:
        """Return the findings for a terminal."""
        tables = [f"\n{found.text()}" for found in self.tables]
        return "\n".join([self.title, self.about, *tables, "", *self.lines]).rstrip()

    def markdown(self) -> str:
        """Return the findings as Markdown that fits into a comment and shows all names and values literally."""
        tables = [
            bounded(
                found.header, [[code(cell, 240) for cell in row] for row in found.rows], COMMENT // len(self.tables)
            )
            for found in self.tables
        ]
        lines = "\n".join(f"- {prose(line, 4000)}" for line in self.lines)
        return "\n\n".join(filter(None, [f"### {prose(self.title)}", prose(self.about), lines, *tables])) + "\n"


# ---------------------------------------------------------------------- two models


def drift_findings(comparison: Comparison) -> Findings:
    """Return what the comparison of two sides found."""
    before, after = comparison.before, comparison.after
    drifted = [measure for measure in comparison.measures if measure.outcome == "drift"]
    units = dict.fromkeys(difference.unit for measure in comparison.measures for difference in measure.differences)
    effects = "; ".join(f"{smallest(unit)[0]} {unit} ({smallest(unit)[1]})" for unit in units)
    left_out = {**before.left_out, **after.left_out}
    return Findings(
        title=f"drift in {len(drifted)} of {len(comparison.measures)} measures" if drifted else "no drift",
        about=f"from {before.name} ({before.kind}) to {after.name} ({after.kind})",
        tables=[drift_table(comparison)],
        lines=[
            *map(drift_message, drifted),
            *(f"left out: {name}: {why}" for name, why in left_out.items()),
            *([f"smallest effects of interest: {effects}"] if effects else []),
            verdict_line(comparison),
        ],
    )


def drift_table(comparison: Comparison) -> Table:
    """Return a table with a row for every quantity, or for a measure that cannot be compared."""
    header = ("task", "measure", "quantity", "compared", "drifted", "same", "largest difference", "verdict")
    return Table(header, [row for measure in comparison.measures for row in _rows(measure)], WIDTHS)


def _rows(measure: Compared) -> Iterator[list[str]]:
    about = [task_title(measure.wanted.task), str(measure.wanted).partition(" on ")[0]]
    verdict = ": ".join(filter(None, ("same, exactly" if measure.equal else measure.outcome, measure.reason)))
    if not measure.differences:
        yield [*about, "-", "-", "-", "-", "-", verdict]
    for difference in measure.differences:
        counts = [len(difference.before), difference.drifted.sum(), difference.shown_same.sum()]
        largest = "none" if measure.equal else cell_change(measure, difference, difference.largest[0])
        yield [*about, difference.what, *(str(int(count)) for count in counts), largest, verdict]


def cell_change(measure: Compared, difference: Difference, place: int) -> str:
    """Return the difference of one cell: which head, from which value to which, by how many standard deviations."""
    name = cell_name(difference.shape, place)
    before, after = (format_number(float(cells[place])) for cells in (difference.before, difference.after))
    deviation = float(difference.deviations[place])
    if np.isfinite(deviation):
        by = f"{deviation:+.1f} {REPLICATIONS[measure.counted][0]}"
    else:
        by = "no spread over seeds" if np.isfinite(difference.after[place]) else "no number"
    return f"{name + ': ' if name else ''}{before} -> {after} ({by})"


def cell_name(shape: tuple[int, ...], place: int) -> str:
    """Return the name of a cell, counted from 1; "" for the only one.

    >>> cell_name((6, 12), 17), cell_name((6,), 2), cell_name((), 0)
    ('2.6', 'layer 3', '')
    """
    if len(shape) == 2:
        layer, head = divmod(place, shape[1])
        return f"{layer + 1}.{head + 1}"
    return f"layer {place + 1}" if shape else ""


def drift_message(measure: Compared) -> str:
    """Return how a measure has drifted: for each quantity its heads, with their differences."""
    if measure.reason:
        return f"{measure.wanted} has drifted: {measure.reason}"
    lines = [f"{measure.wanted} has drifted ({measure.basis}; {': '.join(REPLICATIONS[measure.counted])}):"]
    for difference in measure.differences:
        count = int(difference.drifted.sum())
        if not count:
            continue
        cells = (
            "",
            f" in {count} of {len(difference.before)} layers",
            f" in {count} of {len(difference.before)} heads",
        )
        named = [cell_change(measure, difference, place) for place in difference.largest[:NAMED]]
        more = f"; and {count - NAMED} more" if count > NAMED else ""
        lines.append(f"  {difference.what}{cells[len(difference.shape)]}: {'; '.join(named)}{more}")
    return "\n".join(lines)


def verdict_line(comparison: Comparison) -> str:
    """Return the outcome of a comparison in one line."""
    compared = [measure for measure in comparison.measures if measure.outcome != "not comparable"]
    drifted = [measure for measure in compared if measure.outcome == "drift"]
    count = f"{len(compared)} measure{'s' if len(compared) > 1 else ''}"
    rate = f"at a false discovery rate of {100 * comparison.rate:.3g} % over all heads and measures"
    if drifted:
        alone = any(measure.counted == "examples" and measure.differences for measure in drifted)
        only = "; about these checkpoints only: other seeds of the same model may differ as much" if alone else ""
        return f"drift: {len(drifted)} of {count} ({', '.join(str(of.wanted) for of in drifted)}), {rate}{only}"
    if all(measure.equal for measure in compared):
        return f"no drift: {count} exactly equal"
    shown = np.concatenate([difference.shown_same for measure in compared for difference in measure.differences])
    rest = "" if shown.all() else "; the others show no significant difference, but may differ"
    return (
        f"no drift in {count}, {rate}; {shown.sum()} of {len(shown)} numbers are shown to be the same, up to the "
        f"smallest effects of interest{rest}"
    )
