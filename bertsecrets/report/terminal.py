"""Verdicts on a terminal or in a log: a table that fits 80 columns, its notes below it, details on request."""

import io
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from bertsecrets.claims.band import format_number
from bertsecrets.claims.schema import Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.text import (
    MARKS,
    cite,
    claim_name,
    count_line,
    describe,
    grid_rows,
    last_ones,
    observed_lines,
    section_title,
    shows,
    status,
    task_title,
)
from bertsecrets.texts.tasks import TASKS

HEADER = ("id", "task", "published", "observed", "verdict")
GAP = 2  # between columns
TASKS_WIDTH = 16  # of the column of a claim's tasks, at most
NARROWEST = 80  # columns; also those of a file or a pipe
SIGNS = {  # before the outcome's word, so that a column of them is read at a glance
    "reproduced": "+",
    "deviates": "-",
    "negligible": "~",
    "inconclusive": "?",
    "degenerate": "x",
    "not measured": "!",
    "not applicable": ".",
}
STYLES = {
    "reproduced": "green",
    "deviates": "red",
    "negligible": "yellow",
    "inconclusive": "cyan",
    "degenerate": "bold red",
    "not measured": "magenta",
    "not applicable": "dim",
}
LETTERS = [*ascii_lowercase, *map("".join, product(ascii_lowercase, repeat=2))]  # of the notes
UNITS = {"percent": "%"}  # shorter


@dataclass(frozen=True)
class Screen:
    """What a table is shown on: its columns, and whether it has colours."""

    width: int = NARROWEST
    colour: bool = False

    @classmethod
    def of(cls, stream: Any) -> "Screen":
        """Return what a stream shows: a terminal its own width and, unless NO_COLOR is set, colours; a file neither."""
        console = Console(file=stream)
        if not console.is_terminal:
            return cls()
        return cls(max(NARROWEST, console.width), console.color_system is not None and not console.no_color)


def verdict_table(verdicts: Sequence[Verdict], screen: Screen | None = None, *, verbose: bool = False) -> str:
    """Return verdicts as a table, by section of the paper; below it its notes, tasks side by side if there are several,
    and a count of the outcomes.

    Args:
        verbose: all that is known of each verdict comes first.
    """
    screen = screen or Screen()
    verdicts = sorted(verdicts, key=lambda verdict: verdict.case.claim.family)
    everywhere, notes = _notes(verdicts)
    parts = [fold(describe(verdict), screen.width, 12) for verdict in verdicts] if verbose else []
    parts += [_table(verdicts, notes, screen), "\n".join(_legend(everywhere, notes, screen))]
    parts += [task_grid(verdicts, screen), fold(count_line(verdicts), screen.width)]
    return "\n\n".join(filter(None, parts))


def claim_table(
    claims: Sequence[Claim],
    screen: Screen | None = None,
    *,
    model: str | None = None,
    kept: Sequence[Sequence[dict[str, Any]]] = (),
    verbose: bool = False,
) -> str:
    """Return a table of claims, by section of the paper: tasks, statement and what is known of each.

    Args:
        model: only its known outcomes are shown.
        kept: for each claim, its verdicts in a store (`store.verdicts`).
        verbose: also say of each claim its source, what measures it, and that nothing is known; name all tasks.
    """
    screen = screen or Screen()
    sections: dict[str, list[list[Text]]] = {}
    for claim, of_claim in zip(claims, kept or [[]] * len(claims), strict=True):
        cells = _claim_cells(claim, model, of_claim, verbose=verbose)
        sections.setdefault(section_title(claim), []).append(cells)
    rows = [cells for part in sections.values() for cells in part]
    names, tasks = (max(len(cells[place].plain) for cells in rows) for place in (0, 1))
    tasks = min(tasks, TASKS_WIDTH)
    widths = [names, tasks, screen.width - names - tasks - 2 * GAP]
    shown: list[RenderableType] = [_rows([("id", "tasks", "claim")], widths, GAP, style="bold"), "─" * screen.width]
    for title, of_section in sections.items():
        shown += [Text(title, style="bold"), _rows(of_section, widths, GAP), ""]
    return _rendered(shown, screen)


def _claim_cells(claim: Claim, model: str | None, kept: Sequence[dict[str, Any]], *, verbose: bool) -> list[Text]:
    """Return one claim as the cells of a table."""
    tasks = ", ".join(task_title(name) for name in claim.tasks)
    known = status(claim, model)
    more = [f"{cite(claim.source)}; {claim.measure}, {claim.quantity}"] if verbose and claim.implemented else []
    more += [known] if verbose or known != "unknown" else []
    more += [line] if (line := last_ones(kept)) else []
    return [
        Text(claim_name(claim)),
        Text(tasks if verbose or len(claim.tasks) < len(TASKS) else f"each of {len(TASKS)}"),
        Text(claim.statement).append("".join(f"\n{one}" for one in more), style="dim"),
    ]


def verdict_line(verdict: Verdict) -> str:
    """Return a verdict in one line."""
    parts = [f"{verdict.case}: {SIGNS[verdict.outcome]} {verdict.outcome}"]
    if verdict.observed is not None:
        parts.append(f"{', '.join(observed_lines(verdict))} {UNITS.get(verdict.unit, verdict.unit)}")
        parts.append(f"{len(verdict.seeds)} seed{'s' if len(verdict.seeds) > 1 else ''}")
    return ", ".join(parts)


def task_grid(verdicts: Sequence[Verdict], screen: Screen | None = None) -> str:
    """Return a table of claims by tasks, with outcome and observed value; empty if there is only one task.

    Claims that do not apply or were not measured are left out, and so are those of all tasks together.
    """
    header, *rows = grid_rows(verdicts, MARKS)
    if len(header) < 3:
        return ""
    styles = {mark: STYLES[outcome] for outcome, mark in MARKS.items()}
    cells = [[Text(name), *(Text(cell, style=styles.get(cell[:1], "")) for cell in row)] for name, *row in rows]
    widths = [max(len(line[column].plain) for line in [[*map(Text, header)], *cells]) for column in range(len(header))]
    marks = ", ".join(f"{mark} {outcome}" for outcome, mark in MARKS.items())
    screen = screen or Screen()
    gap = GAP if sum(widths) + GAP * (len(widths) - 1) <= screen.width else 1
    rule = "─" * (sum(widths) + gap * (len(widths) - 1))
    shown = (_rows([header], widths, gap, style="bold"), rule, _rows(cells, widths, gap))
    return f"{_rendered(shown, screen)}\n{marks}"


def _table(verdicts: Sequence[Verdict], notes: Mapping[str, str], screen: Screen) -> str:
    """Return the rows, each section under its heading."""
    sections: dict[str, list[list[Text]]] = {}
    for verdict in verdicts:
        sections.setdefault(section_title(verdict.case.claim), []).append(_cells(verdict, notes))
    every = [[*map(Text, HEADER)], *(cells for of_section in sections.values() for cells in of_section)]
    widths = _widths(every, screen.width - GAP * (len(HEADER) - 1))
    rule = "─" * (sum(widths) + GAP * (len(HEADER) - 1))
    shown: list[RenderableType] = [_rows([HEADER], widths, GAP, style="bold"), rule]
    for title, cells in sections.items():
        shown += [Text(title, style="bold"), _rows(cells, widths, GAP), ""]
    return _rendered(shown, screen)


def _widths(rows: Sequence[Sequence[Text]], most: int) -> list[int]:
    """Return the columns' widths: those of their contents, but what is too wide together is folded in the last two."""
    wide = [max(len(line) for row in rows for line in row[place].plain.split("\n")) for place in range(len(HEADER))]
    *first, observed, verdict = wide
    room = most - sum(first)
    verdict = min(verdict, max(len("? not applicable"), room - observed))
    return [*first, min(observed, room - verdict), verdict]


def _rows(rows: Iterable[Iterable[str | Text]], widths: Sequence[int], gap: int, *, style: str = "") -> Table:
    """Return rows whose columns have widths, so that those of several tables stand under each other."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, gap, 0, 0))
    for width in widths:
        table.add_column(width=width, style=style)
    for row in rows:
        table.add_row(*row)
    return table


def _cells(verdict: Verdict, notes: Mapping[str, str]) -> list[Text]:
    """Return one verdict as the cells of `HEADER`."""
    case, outcome = verdict.case, verdict.outcome
    unit = UNITS.get(verdict.unit, verdict.unit)
    published = "-" if case.figure.published is None else format_number(case.figure.published)
    observed = [f"{line} {unit}" if verdict.observed is not None else line for line in observed_lines(verdict)]
    letters = ",".join(letter for note, letter in notes.items() if note in _own(verdict))
    word = Text(f"{SIGNS[outcome]} {outcome}", style=STYLES[outcome])
    return [
        Text(claim_name(case.claim)),
        Text(task_title(case.task)),
        Text(published),
        Text("\n".join(observed)),
        word.append(f" {letters}", style="not bold default") if letters else word,
    ]


def _own(verdict: Verdict) -> list[str]:
    """Return what a reader needs beside a verdict: what it speaks against, its reason where figures do not say it."""
    notes = []
    if verdict.against:
        notes.append(f"{'from' if verdict.outcome == 'deviates' else 'beside'} {verdict.against}")
    if verdict.case.figure.constant_answer:
        notes.append("the published figure is that of a constant answer")
    if verdict.observed is None or not shows(verdict):
        notes.append(verdict.reason)
    return notes + verdict.remarks


def _notes(verdicts: Sequence[Verdict]) -> tuple[list[str], dict[str, str]]:
    """Return the remarks that all measured claims share, where there are several, and a letter for each other note."""
    measured = [verdict.remarks for verdict in verdicts if verdict.measurements]
    shared = [one for one in measured[0] if all(one in remarks for remarks in measured)] if len(measured) > 1 else []
    notes = dict.fromkeys(note for verdict in verdicts for note in _own(verdict) if note not in shared)
    return shared, dict(zip(notes, LETTERS, strict=False))


def _legend(shared: Sequence[str], notes: Mapping[str, str], screen: Screen) -> Iterator[str]:
    """Yield the lines below the table."""
    if shared:
        yield fold(f"  all: {'; '.join(shared)}", screen.width, 7)
    for note, letter in notes.items():
        yield fold(f"  {letter:>3}: {note}", screen.width, 7)


def fold(text: str, width: int, indent: int = 2) -> str:
    """Return a text in lines of a width; what is folded of a line is indented."""
    wrapped = (
        textwrap.wrap(line, width, subsequent_indent=" " * indent, break_on_hyphens=False) for line in text.splitlines()
    )
    return "\n".join(line for lines in wrapped for line in lines)


def _rendered(shown: Iterable[RenderableType], screen: Screen) -> str:
    """Return tables and lines as text, with colours as a terminal reads them if the screen has any."""
    console = Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=screen.colour,
        color_system="standard" if screen.colour else None,
        no_color=not screen.colour,
        highlight=False,
        emoji=False,
        markup=False,
    )
    with console.capture() as captured:
        for one in shown:
            console.print(one)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))
