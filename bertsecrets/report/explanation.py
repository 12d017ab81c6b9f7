"""Everything about one claim as text: what its source states, how the claim is judged, and all known results."""

import csv
from collections.abc import Iterator, Sequence

from bertsecrets.claims.band import format_number
from bertsecrets.claims.expectations import Equality, Figure
from bertsecrets.claims.judge import READING
from bertsecrets.claims.prospects import advice, prospect_text
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.patterns.readings import READING_TITLES
from bertsecrets.report.text import band_text, cite, known_version, model_name, status, task_title
from bertsecrets.settings import project_path

STATEMENTS_FILE = "expected/statements.csv"


def claim_lines(cases: Sequence[Case], confidence: float) -> Iterator[str]:
    """Yield all lines about one claim: its statement, source, published figures, bands and known outcomes."""
    claim, tasks = cases[0].claim, [case.task for case in cases]
    yield f"{claim.name}: {claim.statement}"
    yield f"  source: {cite(claim.source)}"
    for row in _statements(claim):
        yield f"  it says: {row['statement']}"
        yield f"  judged: {row['judged']}"
    arguments = ", ".join(f"{name} {_plain(value)}" for name, value in claim.arguments.items())
    facts = {"about": " and ".join(claim.architectures), "measured as": claim.how, "note": claim.note,
             "measure": claim.measure, "quantity": claim.quantity, "arguments": arguments,
             "vertical as in": _reading(claim), "version": claim.version,
             "on record": status(claim) or "no verdict"}  # fmt: skip
    for name, fact in facts.items():
        if fact:
            yield f"  {name}: {fact}"
    parts = [_case_parts(case, confidence) for case in cases]
    shared = [part for part in parts[0] if len(cases) > 1 and all(part in others for others in parts)]
    if shared:
        yield f"  {', '.join(map(task_title, tasks))}: {'; '.join(shared)}"
    for task, of_case in zip(tasks, parts, strict=True):
        if own := [part for part in of_case if part not in shared]:
            yield f"  {task_title(task)}: {'; '.join(own)}"
    for known in claim.known:
        if known.task not in tasks:
            continue
        outcome = {
            "deviates": "known to deviate",
            "reproduces": f"known to be {claim.expect.passes}",
            "expected": "expected to deviate",
        }[known.status]
        where = f"{model_name(known.model)} on {task_title(known.task)}"
        yield f"  {outcome}{known_version(claim, known)}: {where}: {known.evidence}"


def _case_parts(case: Case, confidence: float) -> list[str]:
    """Return texts about a case: published figure, band, smallest effect of interest, and how to decide the claim."""
    figure = case.figure
    parts = [f"published {figure.published + 0}" if figure.published is not None else "no published figure"]
    if figure.constant_answer:
        parts[0] += " (a constant answer)"
    parts += [f"band {band_text(case, confidence)}", *_smallest_effect_text(case)]
    texts = figure.second, figure.note, prospect_text(case), advice(case)
    return parts + [text for text in texts if text]


def statements() -> list[dict[str, str]]:
    """Return a row for each statement in the sources, with its text, the claims that test it, and how it is judged."""
    with project_path(STATEMENTS_FILE).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _statements(claim: Claim) -> list[dict[str, str]]:
    for name in (claim.name,) if claim.source == "ours" else (claim.name, claim.id):
        if own := [row for row in statements() if name in row["claims"].split(", ")]:
            return own
    return []


def _reading(claim: Claim) -> str:
    """Return the text that defines the classes of maps for a claim, or "" if the claim is not about classes."""
    parameter = QUANTITIES[claim.quantity].arguments.model_fields.get(READING)
    return READING_TITLES[claim.arguments.get(READING, parameter.default)] if parameter else ""


def _smallest_effect_text(case: Case) -> list[str]:
    """Return a line with the smallest effect of interest, or nothing if the case is judged without it."""
    expect, (size, reason) = case.claim.expect, case.smallest_effect
    if not size or not (isinstance(expect, Equality) or (not isinstance(expect, Figure) and expect.value == 0)):
        return []
    return [f"smallest effect of interest {format_number(size)} {case.unit} ({reason})"]


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
