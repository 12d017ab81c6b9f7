"""Claims that hang on a word: judged under each reading of what K19 calls vertical, and brought together.

Section 4.1 and the authors' blog say different things (`patterns.readings`). Where both readings give the same verdict,
that is the verdict; where not, the reading decides, and nothing is decided about the paper.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case
from bertsecrets.patterns.readings import READINGS

if TYPE_CHECKING:
    from bertsecrets.claims.verdict import Verdict

ARGUMENT = "reading"  # of the quantities that take one


def under_readings(case: Case) -> dict[str, Case]:
    """Return a case under each reading, by name; none where the quantity takes no reading or the claim names one."""
    claim = case.claim
    if claim.quantity is None or ARGUMENT in claim.arguments:
        return {}
    if ARGUMENT not in QUANTITIES[claim.quantity].arguments.parameters:
        return {}
    return {reading: under(case, reading) for reading in READINGS}


def reading_of(case: Case) -> str:
    """Return the reading that a case is judged under; empty where it hangs on none, or on each."""
    return str(case.claim.arguments.get(ARGUMENT, ""))


def under(case: Case, reading: str) -> Case:
    """Return a case under one reading alone."""
    arguments = {**case.claim.arguments, ARGUMENT: reading}
    return Case(case.claim.model_copy(update={"arguments": arguments}), case.task)


def together(case: Case, verdicts: Mapping[str, "Verdict"]) -> "Verdict":
    """Return the verdict on a case from its verdicts under each reading.

    Observed value, interval, band and what was found on every seed are those of the first reading, which is that of the
    paper itself; `Verdict.readings` has all. It fails, or holds, at an error rate at which it does under every reading.
    """
    first = next(iter(verdicts.values()))
    outcomes = {verdict.outcome for verdict in verdicts.values()}
    unjudged = next((verdict for verdict in verdicts.values() if verdict.observed is None), None)
    if unjudged is not None:
        return replace(unjudged, case=case)
    if len(outcomes) == 1:
        reason = "under each reading; " + "; ".join(f"{name}: {verdict.reason}" for name, verdict in verdicts.items())
    else:
        said = (f"{name} {verdict.status} ({in_figures(verdict)})" for name, verdict in verdicts.items())
        reason = "the reading decides: " + ", ".join(said)
    powers = (f"{name}: {verdict.power}" for name, verdict in verdicts.items() if verdict.power)
    against = [verdict.p_against for verdict in verdicts.values() if verdict.p_against is not None]
    in_favour = [verdict.p_for for verdict in verdicts.values() if verdict.p_for is not None]
    return replace(
        first,
        case=case,
        outcome=first.outcome if len(outcomes) == 1 else "inconclusive",
        reason=reason,
        power="; ".join(powers) if len(outcomes) == 1 else "",
        open=any(verdict.open for verdict in verdicts.values()),
        p_against=max(against) if len(against) == len(verdicts) else None,
        p_for=max(in_favour) if len(in_favour) == len(verdicts) else None,
        readings=dict(verdicts),
    )


def in_figures(verdict: "Verdict") -> str:
    """Return what was observed, with its interval."""
    shown = format_number(verdict.observed)
    return f"{shown} {format_interval(verdict.interval)}" if verdict.interval else shown
