"""Verdicts on a terminal or in a log: an 80-column table with notes, and details on request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, product
from operator import itemgetter
from string import ascii_lowercase
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from bertsecrets.claims.band import format_number
from bertsecrets.claims.schema import Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.progress import counted
from bertsecrets.report.outcomes import OUTCOMES, outcome_label
from bertsecrets.report.tables import GAP_SPACES, fold, table
from bertsecrets.report.text import (
    UNIT_SYMBOLS,
    cite,
    contradicted,
    count_line,
    describe,
    grid_legend,
    grid_rows,
    in_sections,
    outcome_phrase,
    run_lines,
    section_title,
    status,
    task_title,
)
from bertsecrets.texts.tasks import GLUE_TASKS

VERDICT_COLUMNS = ("id", "task", "published", "observed", "verdict")
TASKS_WIDTH = 16  # maximum width of the column of tasks
MIN_WIDTH = 80  # columns; also the width of files and pipes
OUTCOME_WIDTH = max(map(len, map(outcome_label, OUTCOMES))) + len(":")
NOTE_LETTERS = [*ascii_lowercase, *map("".join, product(ascii_lowercase, repeat=2))]  # labels of the notes


@dataclass(frozen=True)
class Screen:
    """An output device: its width, and whether it supports colours."""

    width: int = MIN_WIDTH
    colour: bool = False

    @classmethod
    def of_stream(cls, stream: Any) -> "Screen":
        """Return a `Screen` that describes a stream. A file has 80 columns and no colours. NO_COLOR is respected."""
        console = Console(file=stream)
        if not console.is_terminal:
            return cls()
        return cls(max(MIN_WIDTH, console.width), console.color_system is not None and not console.no_color)

    def paint(self, text: str, style: str) -> str:
        """Apply a rich style to each line of `text`, if the screen supports colours."""
        if not self.colour or not text:
            return text
        drawn = Style.parse(style)
        return "\n".join(drawn.render(line, color_system=ColorSystem.STANDARD) for line in text.split("\n"))

    def sections(self, header: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
        """Return a table in which each section of consecutive rows has a title line and ends with an empty line."""
        first, rule, *body = table(header, [cells for _, cells in rows]).splitlines()
        lines, rest = [self.paint(first, "bold"), rule], iter(body)
        for title, of_section in groupby(rows, itemgetter(0)):
            height = sum(max(cell.count("\n") + 1 for cell in cells) for _, cells in of_section)
            lines += [self.paint(title, "bold"), *islice(rest, height), ""]
        return "\n".join(lines).rstrip("\n")


def verdict_table(verdicts: Sequence[Verdict], screen: Screen | None = None, *, verbose: bool = False) -> str:
    """Return a table of verdicts by section of the paper, with notes, a grid by task, and a count of each outcome.

    If `verbose` is True, the text starts with a few lines about each verdict.
    """
    screen = screen or Screen()
    verdicts = sorted(verdicts, key=lambda verdict: in_sections(verdict.case.claim))
    everywhere, notes = _notes(verdicts)
    parts = [fold(describe(verdict), screen.width, 12) for verdict in verdicts] if verbose else []
    parts += [_table(verdicts, notes, screen), "\n".join(_legend(everywhere, notes, screen))]
    parts += [task_grid(verdicts, screen), fold(count_line(verdicts), screen.width)]
    return "\n\n".join(filter(None, parts))


def run_text(verdicts: Sequence[Verdict], screen: Screen, confidence: float, *, verbose: bool = False) -> str:
    """Return the table of verdicts, and lines about the entire run (`text.run_lines`)."""
    lines = (fold(line, screen.width) for line in run_lines(verdicts, confidence))
    return "\n".join([verdict_table(verdicts, screen, verbose=verbose), *lines])


def claim_table(
    claims: Sequence[Claim], screen: Screen | None = None, *, model: str | None = None, verbose: bool = False
) -> str:
    """Return a table of claims by section of the paper, with tasks, statements and known outcomes.

    If `model` is given, only its known outcomes are shown. If `verbose` is True, the table also lists sources, measures
    and all tasks.
    """
    screen, claims = screen or Screen(), sorted(claims, key=in_sections)
    cells = [_claim_cells(claim, model, verbose=verbose) for claim in claims]
    names = max(len(name) for name, *_ in cells)
    tasks = min(TASKS_WIDTH, max(len(titles) for _, titles, *_ in cells))
    room = screen.width - names - tasks - 2 * GAP_SPACES
    rows = []
    for claim, (name, titles, statement, more) in zip(claims, cells, strict=True):
        lines = filter(None, (fold(statement, room, 0), screen.paint(fold(more, room, 0), "dim")))
        rows.append((section_title(claim), [name, fold(titles, tasks, 0), "\n".join(lines)]))
    return screen.sections(("id", "tasks", "claim"), rows)


def _claim_cells(claim: Claim, model: str | None, *, verbose: bool) -> tuple[str, ...]:
    """Return the table cells of a claim: name, tasks, statement, and further lines such as its known outcomes."""
    tasks = ", ".join(task_title(name) for name in claim.tasks)
    known = status(claim, model)
    more = [f"{cite(claim.source)}; {claim.measure}, {claim.quantity}"] if verbose else []
    more += [known] if known else []
    shown = tasks if verbose or len(claim.tasks) < len(GLUE_TASKS) else f"each of {len(GLUE_TASKS)}"
    own = [task_title(case.task) for case in claim.cases if case.task not in claim.tasks]
    return claim.name, ", ".join([shown, *own]), claim.statement, "\n".join(more)


def verdict_line(verdict: Verdict) -> str:
    """Return a one-line verdict."""
    parts = [f"{verdict.case}: {_outcome(verdict)}"]
    if verdict.observed is not None:
        parts.append(f"{verdict.observed_text} {UNIT_SYMBOLS.get(verdict.unit, verdict.unit)}")
        parts.append(counted(len(verdict.seeds), "seed"))
    return ", ".join(parts)


def task_grid(verdicts: Sequence[Verdict], screen: Screen | None = None) -> str:
    """Return a table of claims by tasks with outcomes and observed values, or "" if there is only one task."""
    screen = screen or Screen()
    header, *rows = grid_rows(verdicts)
    if len(header) < 3:
        return ""
    shorter = grid_rows(verdicts, words=False)[1:]  # the reasons are in the table above
    for narrower in (shorter, [[cell.replace(" ", "") for cell in row] for row in shorter]):
        if len(table(header, rows).split("\n", 2)[1]) > screen.width:
            rows = narrower
    styles = {shown.sign: shown.style for shown in OUTCOMES.values()}
    painted = [
        [name, *(screen.paint(cell, styles[cell[0]]) if cell else "" for cell in cells)] for name, *cells in rows
    ]
    first, *lines = table(header, painted).splitlines()
    return "\n".join([screen.paint(first, "bold"), *lines, grid_legend(rows)])


def _table(verdicts: Sequence[Verdict], notes: Mapping[str, str], screen: Screen) -> str:
    """Return the table of verdicts. If the table is too wide, the last two columns are wrapped."""
    cells = [_cells(verdict, notes) for verdict in verdicts]
    *first, observed, verdict = (
        max(len(line) for row in (VERDICT_COLUMNS, *cells) for line in row[place].split("\n"))
        for place in range(len(VERDICT_COLUMNS))
    )
    room = screen.width - GAP_SPACES * (len(VERDICT_COLUMNS) - 1) - sum(first)
    verdict = min(verdict, max(OUTCOME_WIDTH, room - observed))
    rows = []
    for judged, row in zip(verdicts, cells, strict=True):
        *others, value, outcome = row
        word = outcome_label(judged.status)
        outcome = screen.paint(word, OUTCOMES[judged.status].style) + fold(outcome, verdict, 0).removeprefix(word)
        value = fold(value, min(observed, room - verdict), 0)
        rows.append((section_title(judged.case.claim), [*others, value, outcome]))
    return screen.sections(VERDICT_COLUMNS, rows)


def _cells(verdict: Verdict, notes: Mapping[str, str]) -> list[str]:
    case = verdict.case
    unit = UNIT_SYMBOLS.get(verdict.unit, verdict.unit)
    observed = f"{verdict.observed_text} {unit}" if verdict.observed is not None else verdict.observed_text
    letters = ",".join(letter for note, letter in notes.items() if note in _own(verdict))
    return [
        case.claim.name,
        task_title(case.task),
        "-" if case.figure.published is None else format_number(case.figure.published),
        observed,
        " ".join(filter(None, [_outcome(verdict), letters])),
    ]


def _outcome(verdict: Verdict) -> str:
    return f"{OUTCOMES[verdict.status].sign} {outcome_phrase(verdict)}"


def _own(verdict: Verdict) -> list[str]:
    """Return a verdict's remarks, preceded by notes on contradictions and on published scores of constant answers."""
    constant = "the published figure is the score of a constant answer" if verdict.case.figure.constant_answer else ""
    return [note for note in (contradicted(verdict), constant) if note] + verdict.remarks


def _notes(verdicts: Sequence[Verdict]) -> tuple[list[str], dict[str, str]]:
    """Return the remarks that all claims measured on a model have in common, and a letter for each remaining note."""
    measured = [verdict.remarks for verdict in verdicts if verdict.about_model and verdict.measurements]
    first = measured[0] if len(measured) > 1 else []
    shared = [remark for remark in first if all(remark in remarks for remarks in measured)]
    notes = dict.fromkeys(note for verdict in verdicts for note in _own(verdict) if note not in shared)
    return shared, dict(zip(notes, NOTE_LETTERS, strict=False))


def _legend(shared: Sequence[str], notes: Mapping[str, str], screen: Screen) -> Iterator[str]:
    if shared:
        yield fold(f"  on this model: {'; '.join(shared)}", screen.width, 7)
    for note, letter in notes.items():
        yield fold(f"  {letter:>3}: {note}", screen.width, 7)
