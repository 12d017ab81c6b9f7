"""Everything about one claim as text: what its source says, how it is judged, figures, bands and known outcomes."""

from collections.abc import Iterator, Sequence

from bertsecrets.claims.band import format_number, smallest_effect
from bertsecrets.claims.both_readings import under_readings
from bertsecrets.claims.prospects import examples_text, prospect_text
from bertsecrets.claims.schema import Case, Claim
from bertsecrets.report.text import band_text, cite, status, task_title
from bertsecrets.settings import project_path

SOURCES = "docs/sources.md"  # a page of the documentation, in the wheel as well


def claim_lines(cases: Sequence[Case], confidence: float) -> Iterator[str]:
    """Yield all lines about one claim: its statement, source, figures, bands and known outcomes.

    Args:
        cases: Cases of one claim, on the tasks to report.
    """
    claim, tasks = cases[0].claim, [case.task for case in cases]
    yield f"{claim.name}: {claim.statement}"
    yield f"  source: {cite(claim.source)}"
    for said, judged in _source_rows(claim):
        yield f"  it says: {said}"
        yield f"  judged: {judged.replace('differs:', 'differently:')}"
    arguments = ", ".join(f"{name} {_plain(value)}" for name, value in claim.arguments.items())
    facts = {"about": " and ".join(claim.architectures), "measured as": claim.how, "note": claim.note,
             "measure": claim.measure, "quantity": claim.quantity, "arguments": arguments,
             "judged under": _readings(cases[0]), "status": status(claim)}  # fmt: skip
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
        outcome = {"deviates": "known to deviate", "reproduces": "known to reproduce"}[known.status]
        yield f"  {outcome}: {known.model} on {task_title(known.task)}: {known.evidence}"


def _case_parts(case: Case, confidence: float) -> list[str]:
    """Return what is published about one task, the band, and what can be decided."""
    figure = case.figure
    parts = [f"published {figure.published + 0}" if figure.published is not None else "no published figure"]
    if figure.constant_answer:
        parts[0] += " (a constant answer)"
    parts += [f"band {band_text(case, confidence)}", *_smallest_effect_text(case)]
    texts = figure.second, figure.note, prospect_text(case), examples_text(case)
    return parts + [text for text in texts if text]


def _source_rows(claim: Claim) -> list[tuple[str, str]]:
    """Return what the source says and how the claim is judged, from the claim's rows in `docs/sources.md`."""
    lines = project_path(SOURCES).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    rows = [(said, names.split(", "), judged) for said, names, judged in cells]
    for name in (claim.name,) if claim.source == "ours" else (claim.name, claim.id):
        if own := [(said, judged) for said, names, judged in rows if name in names]:
            return own
    return []


def _readings(case: Case) -> str:
    """Return the readings of the paper's text under which a claim is judged, or "" if the text is unambiguous."""
    names = " and ".join(under_readings(case))
    return f'the readings {names} of "vertical"; inconclusive if they disagree' if names else ""


def _smallest_effect_text(case: Case) -> list[str]:
    """Return the smallest effect of interest if it matters: for equalities, and for orders against 0."""
    expect, (size, reason) = case.claim.expect, smallest_effect(case)
    matters = expect.kind == "equal" or (expect.kind != "around" and expect.value == 0)
    if not size or not matters:
        return []
    return [f"smallest effect of interest {format_number(size)} {case.unit} ({reason})"]


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
