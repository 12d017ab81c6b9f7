"""Claims that depend on what K19 calls vertical: judged under each reading, then combined.

K19 section 4.1 and the authors' blog define the word differently (`patterns.readings`). If both readings give the same
verdict, it is the verdict on the claim. Otherwise, the claim is inconclusive.
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

ARGUMENT = "reading"  # argument of the quantities that depend on a reading


def under_readings(case: Case) -> dict[str, Case]:
    """Return a case under each reading, by name; empty if the quantity takes no reading or the claim sets one."""
    claim = case.claim
    if ARGUMENT in claim.arguments:
        return {}
    if ARGUMENT not in QUANTITIES[claim.quantity].arguments.parameters:
        return {}
    return {reading: under(case, reading) for reading in READINGS}


def under(case: Case, reading: str) -> Case:
    """Return a case that is judged under only one reading."""
    arguments = {**case.claim.arguments, ARGUMENT: reading}
    return replace(case, claim=case.claim.model_copy(update={"arguments": arguments}))


def combined_readings(case: Case, verdicts: Mapping[str, "Verdict"]) -> "Verdict":
    """Combine the verdicts on a case under each reading.

    Observed value, interval, band and values by seed are those of the first reading, that of the paper;
    `Verdict.readings` contains all verdicts. The p-values are the largest over all readings.
    """
    first = next(iter(verdicts.values()))
    outcomes = {verdict.outcome for verdict in verdicts.values()}
    unjudged = next((verdict for verdict in verdicts.values() if verdict.observed is None), None)
    if unjudged is not None:
        return replace(unjudged, case=case)
    if len(outcomes) == 1:
        reason = "under both readings; " + "; ".join(f"{name}: {verdict.reason}" for name, verdict in verdicts.items())
    else:
        said = (f"{name} {verdict.status} ({observed_text(verdict)})" for name, verdict in verdicts.items())
        reason = "the readings disagree: " + ", ".join(said)
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


def observed_text(verdict: "Verdict") -> str:
    """Return the observed value with its interval, as text."""
    shown = format_number(verdict.observed)
    return f"{shown} {format_interval(verdict.interval)}" if verdict.interval else shown
