"""Verdicts and claims as terminal tables."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate

from bertsecrets.claims import Claim
from bertsecrets.judging import Verdict, show, show_band, show_published
from bertsecrets.tasks import ALL_TASKS, TASKS

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
    """All verdicts as one table, and a line that counts the outcomes."""
    rows = [verdict_row(verdict) for verdict in verdicts]
    widths = [None, None, 44, 12, 16, 22, 30]
    table = tabulate(rows, HEADER, tablefmt="simple", maxcolwidths=widths, disable_numparse=True)
    return f"{table}\n\n{count_line(verdicts)}"


def count_line(verdicts: Iterable[Verdict]) -> str:
    """How many claims have which outcome."""
    outcomes = [verdict.outcome for verdict in verdicts]
    parts = [f"{outcomes.count(o)} {o}" for o in ("reproduced", "deviates", "inconclusive", "not applicable")]
    return f"{len(outcomes)} claims: {', '.join(parts)}"


def claim_table(claims: Iterable[Claim], model: str | None = None) -> str:
    """Claims with what is known of each: `not implemented`, or its status per task."""
    rows = [
        [
            claim.id + (f"-{claim.variant}" if claim.variant else ""),
            ", ".join(task_title(name) for name in claim.tasks),
            claim.statement,
            claim.measure if claim.implemented else "-",
            status(claim, model),
        ]
        for claim in claims
    ]
    header = ("id", "tasks", "statement", "measure", "status")
    return tabulate(rows, header, tablefmt="simple", maxcolwidths=[None, 24, 50, None, 30], disable_numparse=True)


def status(claim: Claim, model: str | None = None) -> str:
    """What is on record of a claim: `not implemented`, or the models and tasks it is known to deviate on."""
    if not claim.implemented:
        return "not implemented"
    known = [f"{k.model} on {task_title(k.task)}" for k in claim.known if model in (None, k.model)]
    return f"deviates: {', '.join(known)}" if known else "unknown"
