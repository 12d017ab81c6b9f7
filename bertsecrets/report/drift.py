"""Comparisons in words: a table for the terminal, Markdown, HTML, and the message of a drifted measure."""

from collections.abc import Iterator

import numpy as np

from bertsecrets.claims.band import format_number
from bertsecrets.compare.comparison import Compared, Comparison, Difference
from bertsecrets.report.markdown import bounded, code, prose
from bertsecrets.report.tables import fold, table
from bertsecrets.report.text import task_title

HEADER = ("task", "measure", "quantity", "compared", "drifted", "shown the same", "largest difference", "verdict")
NAMED = 5  # cells of a quantity that a message names
BY = {"seeds": "sd", "examples": "se"}
IN_WORDS = {"seeds": "standard deviations of seeds", "examples": "standard errors over examples"}


def drift_table(comparison: Comparison) -> str:
    """Return a table of all quantities that were compared."""
    widths = (80, 18, 26, 80, 80, 80, 44, 30)
    cells = [[fold(cell, width, 0) for cell, width in zip(row, widths, strict=True)] for row in rows(comparison)]
    return table(HEADER, cells)


def rows(comparison: Comparison) -> list[list[str]]:
    """Return a row for every quantity, or for a measure that has none to compare."""
    found = []
    for one in comparison.measures:
        measure = str(one.wanted).partition(" on ")[0]
        task = task_title(one.wanted.task)
        verdict = f"{one.outcome}: {one.reason}" if one.reason else one.outcome
        if not one.differences:
            found.append([task, measure, "-", "-", "-", "-", "-", verdict])
        for place, difference in enumerate(one.differences):
            cells = str(len(difference.before)) if difference.shape else "1"
            counts = [cells, str(int(difference.drifted.sum())), str(int(difference.shown_same.sum()))]
            largest = "none" if one.equal else in_words(one, difference, difference.largest[0])
            shown = "same, exactly" if one.equal else verdict
            found.append([task, measure, difference.what, *counts, largest, shown if place == 0 else ""])
    return found


def in_words(one: Compared, difference: Difference, place: int) -> str:
    """Return one cell's difference: which head, from what to what, and by how many standard deviations."""
    name = cell_name(difference.shape, place)
    before, after = (format_number(float(cells[place])) for cells in (difference.before, difference.after))
    moved = float(difference.deviations[place])
    if not np.isfinite(moved):
        by = "where seeds do not differ" if np.isfinite(difference.after[place]) else "no number"
    else:
        by = f"{moved:+.1f} {BY[one.counted]}"
    return f"{name + ': ' if name else ''}{before} -> {after} ({by})"


def cell_name(shape: tuple[int, ...], place: int) -> str:
    """Return the name of a cell, counted from 1; nothing for the only one.

    >>> cell_name((6, 12), 17), cell_name((6,), 2), cell_name((), 0)
    ('2.6', 'layer 3', '')
    """
    if len(shape) == 2:
        layer, head = divmod(place, shape[1])
        return f"{layer + 1}.{head + 1}"
    return f"layer {place + 1}" if shape else ""


def drift_message(one: Compared) -> str:
    """Return what a measure that has drifted says: each quantity, its heads, and by how many standard deviations."""
    if one.reason:
        return f"{one.wanted} has drifted: {one.reason}"
    lines = [f"{one.wanted} has drifted ({one.basis}; {BY[one.counted]}: {IN_WORDS[one.counted]}):"]
    for difference in one.differences:
        if not difference.drifted.any():
            continue
        count = int(difference.drifted.sum())
        noun = {2: "heads", 1: "layers", 0: ""}[len(difference.shape)]
        of = f" in {count} of {len(difference.before)} {noun}" if noun else ""
        named = [in_words(one, difference, place) for place in difference.largest[:NAMED]]
        more = f"; and {count - NAMED} more" if count > NAMED else ""
        lines.append(f"  {difference.what}{of}: {'; '.join(named)}{more}")
    return "\n".join(lines)


def summary_lines(comparison: Comparison) -> Iterator[str]:
    """Yield what a comparison says in all: the drifted measures with their heads, and how much is shown the same."""
    for one in comparison.measures:
        if one.outcome == "drift":
            yield drift_message(one)
    left_out = {**comparison.before.left_out, **comparison.after.left_out}
    for name, why in left_out.items():
        yield f"left out: {name}: {why}"
    yield verdict_line(comparison)


def verdict_line(comparison: Comparison) -> str:
    """Return the outcome in a line."""
    compared = [one for one in comparison.measures if one.outcome != "not comparable"]
    drifted = [str(one.wanted) for one in compared if one.outcome == "drift"]
    held = f"at a false discovery rate of {100 * comparison.rate:.3g} % over all heads and measures"
    if drifted:
        alone = [one for one in compared if one.outcome == "drift" and one.counted == "examples" and one.differences]
        only = "; of these checkpoints alone: other seeds of the same model may differ as much" if alone else ""
        return f"drift: {len(drifted)} of {_measures(len(compared))} ({', '.join(drifted)}), {held}{only}"
    if all(one.equal for one in compared):
        return f"no drift: nothing differs at all, in {_measures(len(compared))}"
    cells = sum(one.cells for one in compared)
    same = sum(int(d.shown_same.sum()) for one in compared for d in one.differences)
    rest = "" if same == cells else "; the others differ no more than chance explains, and may differ"
    return (
        f"no drift in {_measures(len(compared))}, {held}; {same} of {cells} numbers are shown to be the same, up to "
        f"the smallest effects of interest{rest}"
    )


def _measures(count: int) -> str:
    return "1 measure" if count == 1 else f"{count} measures"


def headline(comparison: Comparison) -> tuple[str, str]:
    before, after = comparison.before, comparison.after
    return f"{before.name} ({before.kind})", f"{after.name} ({after.kind})"


def drift_text(comparison: Comparison) -> str:
    """Return the whole comparison for a terminal."""
    before, after = headline(comparison)
    return "\n".join([f"from {before} to {after}", "", drift_table(comparison), "", *summary_lines(comparison)])


def drift_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown, for a comment or `$GITHUB_STEP_SUMMARY`."""
    before, after = comparison.before, comparison.after
    title = f"## {'Drift' if comparison.drifted else 'No drift'}: {code(before.name)} to {code(after.name)}"
    kinds = f"From {prose(before.kind)} to {prose(after.kind)}."
    lines = [f"- {prose(line, 4000)}" for line in summary_lines(comparison)]
    shown = bounded(HEADER, ([prose(cell) for cell in row] for row in rows(comparison)), 900_000)
    return "\n\n".join([title, kinds, "\n".join(lines), shown]) + "\n"
