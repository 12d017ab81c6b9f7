"""Verdicts and claims as terminal tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate

from bertsecrets.claims.judge import Verdict, show, show_band, show_published
from bertsecrets.claims.schema import ANY_MODEL, Claim
from bertsecrets.texts.tasks import ALL_TASKS, TASKS

MARKS = {"reproduced": "R", "deviates": "D", "inconclusive": "i"}
HEADER = ("id", "task", "statement", "published", "band", "observed", "verdict")


def verdict_row(verdict: Verdict) -> list[str]:
    """One verdict as the cells of `HEADER`."""
    case = verdict.case
    data = verdict.as_json()
    observed = show(verdict.observed)
    if verdict.interval:
        observed += " " + show_band(verdict.interval)
    outcome: str = verdict.outcome
    if data["remarks"]:
        outcome += f" ({'; '.join(data['remarks'])})"
    return [
        case.claim.id + (f"-{case.claim.variant}" if case.claim.variant else ""),
        task_title(case.task),
        case.claim.statement,
        show_published(case, data["unit"]),
        show_band(verdict.band),
        observed,
        outcome,
    ]


def task_title(name: str) -> str:
    """A task's usual spelling."""
    return name if name == ALL_TASKS else TASKS[name].title


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """All verdicts as one table, those of several tasks also side by side, and a line that counts the outcomes."""
    rows = [verdict_row(verdict) for verdict in verdicts]
    widths = [None, None, 44, 12, 16, 22, 30]
    table = tabulate(rows, HEADER, tablefmt="simple", maxcolwidths=widths, disable_numparse=True)
    return "\n\n".join(filter(None, (table, task_grid(verdicts), count_line(verdicts))))


def task_grid(verdicts: Sequence[Verdict]) -> str:
    """Claims by tasks, with outcome and observed value; empty where there are not several tasks.

    Claims that apply nowhere are left out, and so are those of all tasks together.
    """
    cells: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        claim, name = verdict.case.claim, verdict.case.task
        if verdict.outcome != "not applicable" and name in TASKS:
            cell = f"{MARKS[verdict.outcome]} {show(verdict.observed)}"
            cells.setdefault("-".join(filter(None, (claim.id, claim.variant))), {})[name] = cell
    names = [name for name in TASKS if any(name in row for row in cells.values())]
    if len(names) < 2:
        return ""
    rows = [[claim, *(row.get(name, "") for name in names)] for claim, row in cells.items()]
    grid = tabulate(rows, ["id", *map(task_title, names)], tablefmt="simple", disable_numparse=True)
    return f"{grid}\n{', '.join(f'{mark} {outcome}' for outcome, mark in MARKS.items())}"


def count_line(verdicts: Iterable[Verdict]) -> str:
    """How many claims have which outcome."""
    outcomes = [verdict.outcome for verdict in verdicts]
    parts = [f"{outcomes.count(o)} {o}" for o in ("reproduced", "deviates", "inconclusive", "not applicable")]
    return f"{len(outcomes)} claims: {', '.join(parts)}"


def claim_table(
    claims: Sequence[Claim], model: str | None = None, kept: Sequence[Sequence[dict[str, Any]]] = ()
) -> str:
    """Claims with what is known of each: `not implemented`, or its status, and what the last verdicts were.

    Args:
        kept: of each claim the verdicts that a store has (`last_verdicts`).
    """
    rows = [
        [
            claim.id + (f"-{claim.variant}" if claim.variant else ""),
            ", ".join(task_title(name) for name in claim.tasks),
            claim.statement,
            claim.measure if claim.implemented else "-",
            "; ".join(filter(None, (status(claim, model), last_ones(of_one)))),
        ]
        for claim, of_one in zip(claims, kept or [[]] * len(claims), strict=True)
    ]
    header = ("id", "tasks", "statement", "measure", "status")
    return tabulate(rows, header, tablefmt="simple", maxcolwidths=[None, 24, 50, None, 30], disable_numparse=True)


def last_ones(kept: Sequence[dict[str, Any]]) -> str:
    """How many of a claim's last verdicts have which outcome."""
    outcomes = [data["verdict"] for data in kept]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
    return f"last verdicts: {counts}" if counts else ""


def status(claim: Claim, model: str | None = None) -> str:
    """What is on record of a claim: `not implemented`, `unknown`, or which models on which tasks do what."""
    if not claim.implemented:
        return "not implemented"
    parts = []
    for word in ("reproduces", "deviates"):
        seen = [k for k in claim.known if k.status == word and (model is None or k.model in (model, ANY_MODEL))]
        if seen:
            parts.append(f"{word}: {', '.join(f'{k.model} on {task_title(k.task)}' for k in seen)}")
    return "; ".join(parts) or "unknown"
