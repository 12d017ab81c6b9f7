"""Verdicts on the report page: a matrix of claims by tasks, and a card for each cell."""

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.estimand import decisive
from bertsecrets.claims.schema import Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.measures.registry import get_measure
from bertsecrets.progress import counted
from bertsecrets.report.text import (
    UNIT_SYMBOLS,
    known_version,
    model_name,
    outcome_mark,
    outcome_words,
    seeds_text,
    task_title,
)
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from bertsecrets.types import Measurement

FOLDED_OUTCOME = "not applicable"  # claims with this outcome are shown in a collapsed list
RERUN_COMMAND = ("bertsecrets", "report")  # command that judges a claim again


@dataclass(frozen=True)
class Column:
    """A column of the matrix: a task or, if there are several models, a task and a model."""

    model: str
    task: str

    @property
    def title(self) -> str:
        """The task's usual name."""
        return "all tasks" if self.task == ALL_TASKS else task_title(self.task)


@dataclass(frozen=True)
class Card:
    """A verdict and everything else that the page shows about it."""

    verdict: Verdict
    column: Column
    rerun: str  # command that judges the claim again
    strip: list[dict[str, Any]]  # rows for `charts.strip_spec`
    evidence: list[str]
    mark: str  # from `text.outcome_mark`

    @property
    def id(self) -> str:
        """The card's id on the page."""
        name = "\n".join(filter(None, (str(self.verdict.case), self.column.model)))
        return "".join(c if c.isalnum() or c == "-" else f"_{ord(c):x}_" for c in name)  # different for each name

    @property
    def number(self) -> str:
        """The observed value; "" if nothing was observed."""
        observed = self.verdict.observed
        return "" if observed is None or not math.isfinite(observed) else format_number(observed)

    @property
    def unit(self) -> str:
        """The unit of the observed value."""
        return UNIT_SYMBOLS.get(self.verdict.unit, self.verdict.unit) if self.number else ""

    @property
    def published(self) -> str:
        """The published value, in the unit of the observed value; "" if no value is published."""
        published = self.verdict.case.figure.published
        return "" if published is None else f"published {format_number(published)}"

    @property
    def notes(self) -> list[str]:
        """What the overview shows next to the observed value: the published value, the reason, and the mark."""
        return [*filter(None, (self.published, self.verdict.brief if self.verdict.outcome else "", self.mark))]

    @property
    def outcome(self) -> str:
        """The outcome, followed by a brief reason."""
        return outcome_words(self.verdict) + (f" ({self.mark})" if self.mark else "")

    @property
    def by_seed(self) -> list[tuple[int, str]]:
        """The seeds, each with its observed value."""
        return [(seed, format_number(value)) for seed, value in _of_seeds(self.verdict).items()]


@dataclass(frozen=True)
class Row:
    """A row of the matrix: a claim, and its cards by column."""

    claim: Claim
    cells: dict[Column, Card]


def columns(rows: Iterable[Row]) -> list[Column]:
    """Return the columns in which at least one claim applies, in the usual order of tasks."""
    filled = (column for row in rows for column, card in row.cells.items() if card.verdict.outcome != FOLDED_OUTCOME)
    return sorted(dict.fromkeys(filled), key=lambda column: [*TASKS, ALL_TASKS].index(column.task))


def cards_of(
    runs: Mapping[str, Sequence[Verdict]],
    rerun: Sequence[str] = RERUN_COMMAND,
    *,
    checkpoint: bool = False,
    accepted: Collection[str] = (),
) -> list[Card]:
    """Return a card for each verdict. Each model has its own columns. See `html.page` for the arguments."""
    several = len(runs) > 1
    return [
        Card(
            verdict,
            Column(model if several else "", verdict.case.task),
            shlex.join([*rerun, *(("--model", model) if several else ()), "--claim", str(verdict.case)]),
            strip_rows(verdict),
            evidence_lines(verdict, checkpoint=checkpoint),
            outcome_mark(verdict, accepted),
        )
        for model, verdicts in runs.items()
        for verdict in verdicts
    ]


def matrix(cards: Sequence[Card]) -> list[Row]:
    """Return a row of cards for each claim that applies in at least one column."""
    rows: dict[str, Row] = {}
    for card in cards:
        claim = card.verdict.case.claim
        rows.setdefault(claim.name, Row(claim, {})).cells[card.column] = card
    return [row for row in rows.values() if any(card.verdict.outcome != FOLDED_OUTCOME for card in row.cells.values())]


# ---------------------------------------------------------------------- the card's parts


def strip_rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Return a verdict's numbers as rows for `charts.strip_spec`, or no rows if nothing was observed."""
    observed = verdict.observed
    if observed is None or not math.isfinite(observed):
        return []
    unit, published, seeds = verdict.unit, verdict.case.figure.published, _of_seeds(verdict)
    ends = [end for pair in (verdict.interval, verdict.band) if pair is not None for end in pair]
    numbers = [*ends, *seeds.values(), observed, *([] if published is None else [published])]
    finite = [float(number) for number in numbers if number is not None and math.isfinite(number)]
    margin = 0.08 * (max(finite) - min(finite)) or 0.1 * abs(max(finite)) or 1.0
    low, high = min(finite) - margin, max(finite) + margin

    def row(kind: str, name: str, start: float, end: float | None = None, label: str = "") -> dict[str, Any]:
        end = start if end is None else end
        return {
            "kind": kind,
            "row": name,
            "low": max(low, start),
            "high": min(high, end),
            "label": label or f"{format_number(start)} {unit}",
        }

    rows = [row("published", "published", published)] if published is not None else []
    if verdict.interval is not None:
        rows.append(row("interval", "observed", *verdict.interval, label=format_interval(verdict.interval)))
    rows.append(row("observed", "observed", observed))
    if len(verdict.by_seed) > 1:
        rows += [
            row("seed", "seeds", value, label=f"{format_number(value)} {unit}, seed {seed}")
            for seed, value in seeds.items()
            if math.isfinite(value)
        ]
    names = list(dict.fromkeys(row["row"] for row in rows))
    rows += [row("extent", name, end) for name in names for end in (low, high)]
    limits = verdict.band
    if limits is not None:
        rows.append(row("band", "band", *limits, label=format_interval(limits)))
        rows += [row("limit", "band", limit) for limit in limits if math.isfinite(limit)]
    return rows


def _of_seeds(verdict: Verdict) -> dict[int, float]:
    """Return the observed value by seed. If the value has several parts, use the part that decides the claim."""
    if not verdict.by_seed:
        return {}
    part = decisive(np.mean(verdict.by_seed, axis=0), verdict.extreme)
    return {seed: float(parts[part]) for seed, parts in zip(verdict.seeds, verdict.by_seed, strict=True)}


def evidence_lines(verdict: Verdict, *, checkpoint: bool) -> list[str]:
    """Return the measurements behind a verdict. Measurements that differ only in their seeds share a line."""
    groups: dict[str, list[Measurement]] = {}
    for measurement in verdict.measurements:
        subject = measurement.subject
        options = "".join(f", {name.replace('_', ' ')} {value}" for name, value in sorted(measurement.options.items()))
        of_model = f" of {subject.model} ({subject.initialisation})" if _reads_model(measurement) else ""
        kind = f"{measurement.measure}{options}{of_model} on {task_title(subject.task)}"
        groups.setdefault(kind, []).append(measurement)
    lines = []
    for kind, measurements in groups.items():
        provenance = measurements[0].provenance
        made_by, reads_model = provenance.made_by, _reads_model(measurements[0])
        seeds = seeds_text(measurement.subject.seed for measurement in measurements)
        facts = [
            ("one checkpoint" if checkpoint else seeds) if reads_model else "no model",
            counted(measurements[0].examples, "example") if reads_model else "",
            provenance.data or "",
            f"sha256 {provenance.data_fingerprint[:12]}" if provenance.data_fingerprint else "",
            made_by.get("device") or "",
            f"torch {made_by['software']['torch']}" if (made_by.get("software") or {}).get("torch") else "",
        ]
        lines.append(f"{kind}: {', '.join(filter(None, facts))}")
    case = verdict.case
    known = [outcome for outcome in case.claim.known if any(outcome in case.known(model) for model in verdict.models)]
    return lines + [
        f"on record for {model_name(each.model)}, {each.status}{known_version(case.claim, each)}: {each.evidence}"
        for each in known
    ]


def _reads_model(measurement: Measurement) -> bool:
    return get_measure(measurement.measure).reads_model
