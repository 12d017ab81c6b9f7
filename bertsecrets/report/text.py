"""All wording of verdicts and claims: lines, tables for the terminal, and what a failing benchmark says."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bertsecrets.claims.band import TOO_WIDE, band, format_interval, format_number, published_sampling, too_wide, z_of
from bertsecrets.claims.schema import ANY_MODEL, Case, Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.texts.tasks import ALL_TASKS, TASKS

MARKS = {"reproduced": "R", "deviates": "D", "inconclusive": "i"}
HEADER = ("id", "task", "statement", "published", "band", "observed", "verdict")


def check(verdict: Verdict) -> None:
    """Make sure that the claim does not deviate.

    Raises:
        AssertionError: it does; with claim, published figure, band and observation side by side.
    """
    __tracebackhide__ = True
    if verdict.outcome == "deviates":
        raise AssertionError(describe(verdict))


def describe(verdict: Verdict) -> str:
    """Return a verdict in a few lines: statement, published, band, observed."""
    case, remarks = verdict.case, verdict.remarks
    lines = [
        f"{case} {verdict.outcome}: {case.claim.statement} ({case.claim.source})",
        f"  published {show_published(case, verdict.unit)}",
        f"  band      {format_interval(verdict.band)}",
        f"  observed  {format_number(verdict.observed)} {format_interval(verdict.interval)}",
        f"  because   {verdict.reason}",
    ]
    if verdict.power:
        lines.append(f"  power     {verdict.power}")
    if remarks:
        lines.append(f"  remarks   {'; '.join(remarks)}")
    return "\n".join(lines)


def show_published(case: Case, unit: str) -> str:
    """Return a published figure with its unit, and the mark of one that equals the score of a constant answer."""
    if case.figure.published is None:
        return "-"
    mark = " (a constant answer)" if case.figure.constant_answer else ""
    return f"{format_number(case.figure.published)} {unit}{mark}"


def width_in_words(case: Case, confidence: float) -> str:
    """Return where the width of a claim's band comes from."""
    expect, figure = case.claim.expect, case.figure
    assert expect is not None
    limits = band(case, confidence)
    if expect.kind != "around":
        return f"{format_interval(limits)}, an order: decided by the share of resamples in which it holds"
    parts = []
    if expect.sampling == "score":
        error = format_number(published_sampling(case))
        parts.append(f"sampling error {error} of the score on {TASKS[case.task].dev_rows} rows")
    if expect.sampling == "own":
        parts.append("the sampling error of the measurement, at the published number of examples")
    if figure.seed_std is not None:
        parts.append(f"seed spread {figure.seed_std} ({figure.seed_source})")
    root = f"{z_of(confidence):.2f} x root of the squares of {' and '.join(parts)}" if parts else ""
    width = " + ".join(filter(None, (root, f"rounding {figure.rounding}")))
    known = f"{format_interval(limits)}: " if expect.sampling != "own" else ""
    warning = f"; {TOO_WIDE}" if too_wide(limits) else ""
    return f"{known}{figure.published} +- ({width}){warning}"


def verdict_row(verdict: Verdict) -> list[str]:
    """Return one verdict as the cells of `HEADER`."""
    case = verdict.case
    remarks = verdict.remarks
    observed = format_number(verdict.observed)
    if verdict.interval:
        observed += " " + format_interval(verdict.interval)
    outcome: str = verdict.outcome
    if remarks:
        outcome += f" ({'; '.join(remarks)})"
    return [
        _name(case.claim),
        task_title(case.task),
        case.claim.statement,
        show_published(case, verdict.unit),
        format_interval(verdict.band),
        observed,
        outcome,
    ]


def _name(claim: Claim) -> str:
    """Return a claim's id, with its variant where it has one."""
    return f"{claim.id}-{claim.variant}" if claim.variant else claim.id


def task_title(name: str) -> str:
    """Return a task's usual spelling."""
    return name if name == ALL_TASKS else TASKS[name].title


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Return all verdicts as one table, those of several tasks also side by side, and a count of the outcomes."""
    from tabulate import tabulate

    rows = [verdict_row(verdict) for verdict in verdicts]
    widths = [None, None, 44, 12, 16, 22, 30]
    table = tabulate(rows, HEADER, tablefmt="simple", maxcolwidths=widths, disable_numparse=True)
    return "\n\n".join(filter(None, (table, task_grid(verdicts), count_line(verdicts))))


def task_grid(verdicts: Sequence[Verdict]) -> str:
    """Return claims by tasks, with outcome and observed value; empty where there are not several tasks.

    Claims that apply nowhere are left out, and so are those of all tasks together.
    """
    from tabulate import tabulate

    cells: dict[str, dict[str, str]] = {}
    for verdict in verdicts:
        claim, name = verdict.case.claim, verdict.case.task
        if verdict.outcome != "not applicable" and name in TASKS:
            cell = f"{MARKS[verdict.outcome]} {format_number(verdict.observed)}"
            cells.setdefault(_name(claim), {})[name] = cell
    names = [name for name in TASKS if any(name in row for row in cells.values())]
    if len(names) < 2:
        return ""
    rows = [[claim, *(row.get(name, "") for name in names)] for claim, row in cells.items()]
    grid = tabulate(rows, ["id", *map(task_title, names)], tablefmt="simple", disable_numparse=True)
    return f"{grid}\n{', '.join(f'{mark} {outcome}' for outcome, mark in MARKS.items())}"


def count_line(verdicts: Iterable[Verdict]) -> str:
    """Return how many claims have which outcome."""
    outcomes = [verdict.outcome for verdict in verdicts]
    parts = [f"{outcomes.count(o)} {o}" for o in ("reproduced", "deviates", "inconclusive", "not applicable")]
    return f"{len(outcomes)} claims: {', '.join(parts)}"


def claim_table(
    claims: Sequence[Claim], model: str | None = None, kept: Sequence[Sequence[dict[str, Any]]] = ()
) -> str:
    """Return claims with what is known of each: `not implemented`, or its status, and what the last verdicts were.

    Args:
        kept: of each claim the verdicts that a store has (`store.verdicts`).
    """
    from tabulate import tabulate

    rows = [
        [
            _name(claim),
            ", ".join(task_title(name) for name in claim.tasks),
            claim.statement,
            claim.measure if claim.implemented else "-",
            "; ".join(filter(None, (status(claim, model), last_ones(of_claim)))),
        ]
        for claim, of_claim in zip(claims, kept or [[]] * len(claims), strict=True)
    ]
    header = ("id", "tasks", "statement", "measure", "status")
    return tabulate(rows, header, tablefmt="simple", maxcolwidths=[None, 24, 50, None, 30], disable_numparse=True)


def last_ones(kept: Sequence[dict[str, Any]]) -> str:
    """Return how many of a claim's last verdicts have which outcome."""
    outcomes = [data["verdict"] for data in kept]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
    return f"last verdicts: {counts}" if counts else ""


def status(claim: Claim, model: str | None = None) -> str:
    """Return what is on record of a claim: `not implemented`, `unknown`, or which models on which tasks do what."""
    if not claim.implemented:
        return "not implemented"
    parts = []
    for word in ("reproduces", "deviates"):
        of_word = [known for known in claim.known if known.status == word]
        seen = [known for known in of_word if model is None or known.model in (model, ANY_MODEL)]
        if seen:
            parts.append(f"{word}: {', '.join(f'{known.model} on {task_title(known.task)}' for known in seen)}")
    return "; ".join(parts) or "unknown"


def claim_lines(claim: Claim, confidence: float, kept: Sequence[Mapping[str, Any]] = ()) -> Iterator[str]:
    """Yield the lines of one claim whole: what it says, its figures and bands, what is known of it.

    Args:
        kept: the verdicts on it that a store has (`store.verdicts`).
    """
    yield f"{_name(claim)}: {claim.statement}"
    facts = {"source": claim.source, "measured as": claim.how, "note": claim.note, "measure": claim.measure,
             "quantity": claim.quantity, "arguments": claim.arguments, "status": status(claim)}  # fmt: skip
    for name, fact in facts.items():
        if fact:
            yield f"  {name}: {fact}"
    for case in claim.cases:
        figure = case.figure
        parts = [f"published {figure.published}" if figure.published is not None else "no published figure"]
        if figure.constant_answer:
            parts[0] += " (a constant answer)"
        if claim.implemented:
            parts.append(f"band {width_in_words(case, confidence)}")
        parts += [text for text in (figure.second, figure.note) if text]
        yield f"  {task_title(case.task)}: {'; '.join(parts)}"
    for known in claim.known:
        said = {"deviates": "known to deviate", "reproduces": "known to reproduce"}[known.status]
        yield f"  {said}: {known.model} on {task_title(known.task)}: {known.evidence}"
    for verdict in kept:
        yield f"  last verdict: {kept_in_words(verdict)}"


def kept_in_words(verdict: Mapping[str, Any]) -> str:
    """Return a kept verdict (`store.verdicts`) in one line."""
    ends = [float("nan") if end is None else end for end in verdict["interval"] or ()]
    interval = f" {format_interval((ends[0], ends[1]))}" if ends else ""
    seeds = ", ".join(str(seed) for seed in verdict["seeds"])
    parts = [
        f"{verdict['model']} on {task_title(verdict['task'])}, {verdict['made'][:10]}, seeds {seeds}: "
        f"{verdict['verdict']}, observed {format_number(verdict['observed'])}{interval} {verdict['unit']}",
        verdict["reason"],
        verdict["power"],
        *(remark for remark in verdict["remarks"] if remark != "stored"),
    ]
    return "; ".join(part for part in parts if part)
