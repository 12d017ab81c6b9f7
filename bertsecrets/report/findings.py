"""Comparisons as text, Markdown or an HTML page, all in the same form: a title, tables and lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from bertsecrets.claims.band import format_number, smallest
from bertsecrets.compare.changes import CHANGE_KINDS, Change, Changes
from bertsecrets.compare.comparison import CellDifferences, Compared, Comparison
from bertsecrets.errors import excerpt, one_line
from bertsecrets.formats import VerdictsFile
from bertsecrets.progress import counted
from bertsecrets.report.markdown import bounded, code, prose
from bertsecrets.report.tables import fold, table
from bertsecrets.report.text import observed_value, outcome_words, task_title

if TYPE_CHECKING:
    from bertsecrets.measures.base.figures import HeadMap  # needs torch

TABLE_BYTES = 40_000  # all tables in Markdown; GitHub limits comments to 65,536 characters
NAMED_CELLS = 5  # maximum number of cells that a message names per quantity
COLUMN_CHARACTERS = {"quantity": 26, "largest difference": 44, "verdict": 30}
CHANGE_CHARACTERS = {"statement": 0, "observed": 40, "why": 40}
REPLICATIONS = {"seeds": ("sd", "standard deviations over seeds"), "examples": ("se", "standard errors over examples")}


@dataclass(frozen=True)
class Table:
    """A plain-text table. In a terminal, `widths` limits the width of some columns; a width of 0 omits the column."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    widths: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the table as text for a terminal."""
        widths = {name: self.widths.get(name, 1000) for name in self.header}
        rows = [
            [fold(one_line(cell), width, 0) for cell, width in zip(row, widths.values(), strict=True) if width]
            for row in self.rows
        ]
        return table([name for name, width in widths.items() if width], rows)


@dataclass(frozen=True)
class Findings:
    """The results of a comparison as text."""

    title: str
    about: str
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()  # sentences, and lists with a heading in the first line and one item per further line
    figures: Sequence["HeadMap"] = ()

    def text(self) -> str:
        """Return the findings as text for a terminal."""
        tables = [f"\n{table.text()}" for table in self.tables]
        return "\n".join([self.title, self.about, *tables, "", *self.lines]).rstrip()

    def markdown(self) -> str:
        """Return the findings as Markdown that fits into a comment on GitHub. Names and values are escaped."""
        room = TABLE_BYTES // max(1, len(self.tables))
        tables = [
            bounded(table.header, [[code(cell, 240) for cell in row] for row in table.rows], room)
            for table in self.tables
        ]
        items = [
            f"{'  - ' if place else '- '}{prose(part, 4000)}"
            for line in self.lines
            for place, part in enumerate(line.splitlines())
        ]
        lines = "\n".join(items)
        return "\n\n".join(filter(None, [f"### {prose(self.title)}", code(self.about, 300), lines, *tables])) + "\n"


# ---------------------------------------------------------------------- two models


def drift_findings(comparison: Comparison) -> Findings:
    """Return the findings about drift from the first to the second side of a comparison."""
    before, after = comparison.before, comparison.after
    drifted = [measure for measure in comparison.measures if measure.outcome == "drift"]
    units = dict.fromkeys(difference.unit for measure in comparison.measures for difference in measure.differences)
    effects = "; ".join(f"{smallest(unit)[0]} {unit} ({smallest(unit)[1]})" for unit in units)
    left_out = {**before.left_out, **after.left_out}
    return Findings(
        title=f"drift in {len(drifted)} of {counted(len(comparison.measures), 'measure')}" if drifted else "no drift",
        about=f"from {before.name} ({before.kind}) to {after.name} ({after.kind})",
        tables=[drift_table(comparison)],
        lines=[
            *map(drift_message, drifted),
            *(f"left out: {name}: {why}" for name, why in left_out.items()),
            *([f"smallest effects of interest: {effects}"] if effects else []),
            comparison_line(comparison),
        ],
        figures=[
            _head_map(measure, difference)
            for measure in drifted
            for difference in measure.differences
            if any(difference.drifted_by_layer)
        ],
    )


def _head_map(measure: Compared, difference: CellDifferences) -> "HeadMap":
    """Return a heat map of the change in each head. Heads that have drifted are marked."""
    from bertsecrets.measures.base.figures import HeadMap

    change = (difference.after - difference.before).reshape(difference.shape)
    most = float(np.nanmax(abs(change), initial=0.0))
    caption = f"{measure.wanted}: change of {difference.what}; a dot marks a head that has drifted"
    drifted = difference.drifted.reshape(difference.shape)
    return HeadMap(caption, change, difference.unit, low=-most, high=most, signed=True, marked=drifted)


def drift_table(comparison: Comparison) -> Table:
    """Return a table with a row for each quantity. A measure that cannot be compared has a single row."""
    header = ("task", "measure", "quantity", "compared", "drifted", "same", "largest difference", "verdict")
    return Table(header, [row for measure in comparison.measures for row in _rows(measure)], COLUMN_CHARACTERS)


def _rows(measure: Compared) -> Iterator[list[str]]:
    about = [task_title(measure.wanted.task), str(measure.wanted).partition(" on ")[0]]
    verdict = ": ".join(filter(None, ("same, exactly" if measure.equal else measure.outcome, measure.reason)))
    if not measure.differences:
        yield [*about, "-", "-", "-", "-", "-", verdict]
    for difference in measure.differences:
        counts = [len(difference.before), difference.drifted.sum(), difference.shown_same.sum()]
        largest = "none" if measure.equal else cell_change(measure, difference, difference.largest[0])
        yield [*about, difference.what, *(str(int(count)) for count in counts), largest, verdict]


def cell_change(measure: Compared, difference: CellDifferences, place: int) -> str:
    """Return the change in one cell as text: head, old and new value, and difference in standard deviations."""
    name = cell_name(difference.shape, place)
    before, after = (format_number(float(cells[place])) for cells in (difference.before, difference.after))
    deviation = float(difference.deviations[place])
    if np.isfinite(deviation):
        by = f"{deviation:+.1f} {REPLICATIONS[measure.counted][0]}"
    else:
        by = f"no spread over {measure.counted}" if np.isfinite(difference.after[place]) else "no number"
    return f"{name + ': ' if name else ''}{before} -> {after} ({by})"


def cell_name(shape: tuple[int, ...], place: int) -> str:
    """Return a cell's layer, or its layer and head, as text (numbered from 1); empty for a scalar.

    >>> cell_name((6, 12), 17), cell_name((6,), 2), cell_name((), 0)
    ('2.6', 'layer 3', '')
    """
    if len(shape) == 2:
        layer, head = divmod(place, shape[1])
        return f"{layer + 1}.{head + 1}"
    return f"layer {place + 1}" if shape else ""


def drift_message(measure: Compared) -> str:
    """Return a description of a measure's drift: for each quantity, the drifted heads and their differences."""
    if measure.reason:
        return f"{measure.wanted} has drifted: {measure.reason}"
    lines = [f"{measure.wanted} has drifted ({measure.basis}; {': '.join(REPLICATIONS[measure.counted])}):"]
    for difference in measure.differences:
        count = int(difference.drifted.sum())
        if not count:
            continue
        cells = f" in {count} of {len(difference.before)} "
        by_layer = f" (by layer: {', '.join(map(str, difference.drifted_by_layer))})"
        where = ("", f"{cells}layers", f"{cells}heads{by_layer}")[len(difference.shape)]
        named = [cell_change(measure, difference, place) for place in difference.largest[:NAMED_CELLS]]
        more = f"; and {count - NAMED_CELLS} more" if count > NAMED_CELLS else ""
        lines.append(f"  {difference.what}{where}: {'; '.join(named)}{more}")
    return "\n".join(lines)


def comparison_line(comparison: Comparison) -> str:
    """Return the outcome of a comparison in one line."""
    left_out = sum(measure.outcome == "not comparable" for measure in comparison.measures)
    return _outcome_line(comparison) + (f"; not compared: {counted(left_out, 'measure')}" if left_out else "")


def _outcome_line(comparison: Comparison) -> str:
    compared = [measure for measure in comparison.measures if measure.outcome != "not comparable"]
    drifted = [measure for measure in compared if measure.outcome == "drift"]
    count = counted(len(compared), "measure")
    rate = f"false discovery rate {100 * comparison.rate:.3g}% over all heads and measures"
    if drifted:
        alone = any(measure.counted == "examples" and measure.differences for measure in drifted)
        only = "; each side is a single checkpoint, and two seeds of one model may differ as much" if alone else ""
        names = ", ".join(str(measure.wanted) for measure in drifted)
        return f"drift in {len(drifted)} of {count}: {names} ({rate}){only}"
    if all(measure.equal for measure in compared):
        return f"no drift: {count} exactly equal"
    shown = np.concatenate([difference.shown_same for measure in compared for difference in measure.differences])
    rest = "" if shown.all() else "; the other numbers show no significant difference, but may differ"
    return (
        f"no drift in {count} ({rate}); the differences in {shown.sum()} of {len(shown)} numbers are shown to be "
        f"smaller than the smallest effect of interest{rest}"
    )


# ---------------------------------------------------------------------- two runs


def change_findings(changes: Changes) -> Findings:
    """Return how the verdicts changed from one run to another."""
    counts = {kind: len(changes.of_kind(kind)) for kind in CHANGE_KINDS}
    counts_text = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    rows = [_change_row(change) for kind in CHANGE_KINDS for change in changes.of_kind(kind)]
    facts = [[excerpt(text, 80) for text in (of.name, of.before, of.after)] for of in changes.different_conditions]
    redefined = [excerpt(change.after.id, 60) for change in changes.by_definition if change.after]
    tables = [
        Table(("change", "claim", "was", "is", "observed", "why", "statement"), rows, CHANGE_CHARACTERS),
        Table(("condition", "was", "is"), facts, {"was": 50, "is": 50}),
    ]
    return Findings(
        title=f"K19 claims: {counts_text or 'no change in ' + counted(len(changes.after.verdicts), 'verdict')}",
        about=f"{excerpt(changes.after.model, 80)}, from {_run(changes.before)} to {_run(changes.after)}",
        tables=[table for table in tables if table.rows],
        lines=[
            *(["the runs differ in other ways too, which may explain the changes"] if facts and counts_text else []),
            *([f"changed only because a rule or definition changed: {', '.join(redefined)}"] if redefined else []),
        ],
    )


def _change_row(change: Change) -> list[str]:
    old, new = change.before, change.after
    known = new or old
    assert known is not None
    outcomes = ["-" if verdict is None else excerpt(outcome_words(verdict), 60) for verdict in (old, new)]
    observed = " -> ".join(observed_value(verdict) for verdict in (old, new) if verdict is not None)
    return [
        change.kind,
        excerpt(known.id, 60),
        *outcomes,
        excerpt(f"{observed} {known.unit}", 80),
        excerpt(known.reason, 200),
        excerpt(known.statement, 240),
    ]


def _run(run: VerdictsFile) -> str:
    commit = f"{run.commit[:12]}{', modified' if run.modified else ''}, " if run.commit else ""
    return excerpt(f"{commit}{run.made}", 80)


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds in compact form.

    >>> seed_ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    runs = [[seed for _, seed in run] for _, run in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "-"
