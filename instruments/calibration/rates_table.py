"""Tables of calibration results: how often cases are reproduced in worlds as published, and error rates."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bertsecrets.claims.loading import cases, find_case
from bertsecrets.claims.prospects import Prospect, Prospects, examples_needed, wilson
from bertsecrets.claims.schema import Case
from bertsecrets.formats import PASSES
from bertsecrets.report import tables
from bertsecrets.report.tables import Format
from bertsecrets.texts.tasks import ALL_TASKS, TASKS
from instruments.calibration.cells import Rates, code
from instruments.calibration.confronted import ASSUMPTIONS
from instruments.calibration.false_verdicts import FalseVerdicts, false_verdicts
from instruments.calibration.procedures import PROCEDURES

LETTERS = {"deviates": "D", "inconclusive": "i", "degenerate": "g", "not applicable": "n"}
LETTERS |= dict.fromkeys(PASSES, "R")
ENCODER_QUANTITIES = ("class-share",)  # quantities on one task that are affected by the pattern classifier's error
HEADER = ("case", "world", "truth", *(f"--seeds {name}" for name in PROCEDURES), "seeds of auto", "worlds")


def table(counted: Sequence[Rates], form: Format = "text") -> str:
    """Return a table with a row for each cell, headline rates and false verdicts."""
    asked = {rates.cell.case: prospect_of(rates) for rates in counted if rates.cell.world == "as-published"}
    parts = [tables.table(HEADER, [_row(rates) for rates in counted], form)]
    if asked:
        parts.append(headlines(asked, form))
    if verdicts := false_verdicts(counted):
        parts.append(error_table(verdicts, form))
    return "\n\n".join([*parts, LEGEND]) + "\n"


LEGEND = (
    "R reproduced (a published figure: not rejected), D deviates, i inconclusive, g degenerate (no seed learned), "
    "n not applicable: percent of worlds. Intervals: 95 % (Wilson). ! exceeds the bound of 6 % (Holm)."
)


def _row(rates: Rates) -> tuple[str, ...]:
    truth = "-" if rates.truth is None else f"{rates.truth:.3g}" + ("" if rates.holds else " (contradicts)")
    outcomes = (shares_text(_shares(rates, name)) for name in PROCEDURES)
    return rates.cell.case, rates.cell.world, truth, *outcomes, f"{rates.seeds:.1f}", str(rates.cell.worlds)


def shares_text(shares: Mapping[str, float]) -> str:
    """Return the percentages of outcomes, the most frequent first.

    >>> shares_text({"deviates": 0.25, "inconclusive": 0.75})
    'i 75 D 25'
    """
    ordered = sorted(shares, key=lambda outcome: -shares[outcome])
    return " ".join(f"{LETTERS.get(outcome, outcome)} {100 * shares[outcome]:.0f}" for outcome in ordered)


def _shares(rates: Rates, procedure: str) -> dict[str, float]:
    outcomes = sorted({world.outcomes[procedure] for world in rates.worlds})
    return {outcome: round(rates.share(outcome, procedure), 4) for outcome in outcomes}


def error_table(verdicts: Sequence[FalseVerdicts], form: Format = "text") -> str:
    """Return a row for each cell and false outcome, with its rate and a 95% interval for each procedure."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for of in verdicts:
        low, high = (f"{100 * end:.1f}" for end in wilson(of.number, of.cell.worlds))
        row = rows.setdefault((of.cell.case, of.cell.world, of.outcome), [str(of.cell.worlds)])
        row.append(f"{100 * of.rate:.1f} [{low}, {high}]{' !' if of.exceeds else ''}")
    header = ("case", "world", "false", "worlds", *(f"--seeds {name}" for name in PROCEDURES))
    return tables.table(header, [(*key, *row) for key, row in rows.items()], form)


def rates_data(verdicts: Sequence[FalseVerdicts], made: str) -> str:
    """Return the rates of false verdicts as JSON, with one line per rate."""
    lines = ",\n".join(json.dumps(asdict(of)) for of in verdicts)
    return f'{{"made": {json.dumps(made)}, "rates": [\n{lines}\n]}}\n'


# ---------------------------------------------------------------------- as published


def prospect_of(rates: Rates) -> Prospect:
    """Return the rates of a case in worlds as published."""
    return Prospect.model_validate(_as_data(rates))


def headlines(asked: Mapping[str, Prospect], form: Format = "text") -> str:
    """Return a table of how often cases are reproduced on each task if the model is as published.

    Cases that K19's own published values contradict are excluded, and duplicates count once. The second rate also
    excludes the cases that no data can decide (see `decidable`).
    """
    counted = {name: of for name, of in asked.items() if not of.contradicted and of.duplicate_of is None}
    rows = []
    for task in (*TASKS, ALL_TASKS, None):
        own = {name: of for name, of in counted.items() if task in (None, find_case(name).task)}
        if own:
            title = "all" if task is None else "several tasks" if task == ALL_TASKS else TASKS[task].title
            can = {name: of for name, of in own.items() if decidable(find_case(name), of)}
            rows.append((title, _mean(own.values()), _mean(can.values()), _worst(can)))
    header = ("task", "reproduced, all cases", "decidable cases", "worst decidable case")
    return tables.table(header, rows, form)


def _mean(asked: Collection[Prospect]) -> str:
    if not asked:
        return "-"
    error = np.sqrt(sum(of.share(*PASSES) * (1 - of.share(*PASSES)) / of.worlds for of in asked)) / len(asked)
    mean, seeds = np.mean([of.share(*PASSES) for of in asked]), np.mean([of.seeds for of in asked])
    return f"{100 * mean:.0f} +- {100 * error:.1f} % ({len(asked)} cases, {seeds:.1f} seeds)"


def _worst(asked: Mapping[str, Prospect]) -> str:
    if not asked:
        return "-"
    name = min(asked, key=lambda name: asked[name].share(*PASSES))
    return f"{name} {100 * asked[name].share(*PASSES):.0f} %"


def decidable(case: Case, recorded: Prospect) -> bool:
    """Return whether data can decide a case, because its examples and annotated maps are sufficient.

    The simulated model has no annotated maps. With annotated maps, the intervals of class shares would be narrower.
    """
    if recorded.share("not applicable") == 1:
        return False
    if case.claim.quantity in ENCODER_QUANTITIES and not recorded.mostly_decided:
        return False
    examples = examples_needed(case, recorded)
    return examples is None or case.task not in TASKS or examples <= TASKS[case.task].dev_rows


def data(counted: Sequence[Rates], made: str, earlier: Prospects | None) -> str:
    """Return the rates in worlds as published, as JSON for `claims.prospects` with one line per case.

    Args:
        earlier: Earlier data. Cases that were not simulated again are kept.
    """
    facts = {"assumptions": [assumption.text for assumption in ASSUMPTIONS]}
    kept = {name: prospect.model_dump() for name, prospect in earlier.cases.items()} if earlier else {}
    by_case = {rates.cell.case: rates for rates in counted if rates.cell.world == "as-published"}
    doubles = duplicates(by_case.values())
    new = {}
    for name, rates in by_case.items():
        facts_of_case = {"made": made, "code": code(name), "definition": find_case(name).definition}
        new[name] = {**_as_data(rates), "duplicate_of": doubles.get(name), **facts_of_case}
    known = {**kept, **new}
    named = {str(case): known.get(str(case)) for case in cases()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(prospect)}" for name, prospect in named.items() if prospect)
    return json.dumps(facts, indent=1)[:-2] + f',\n "cases": {{\n{lines}\n }}\n}}\n'


def duplicates(counted: Iterable[Rates]) -> dict[str, str]:
    """Map each case to an earlier case of its task with the same value and verdict in every world, if any."""
    first: dict[tuple, str] = {}
    doubles = {}
    for rates in counted:
        key = find_case(rates.cell.case).task, rates.truth, rates.digest
        if (other := first.setdefault(key, rates.cell.case)) != rates.cell.case:
            doubles[rates.cell.case] = other
    return doubles


def _as_data(rates: Rates) -> dict[str, Any]:
    return {
        "worlds": rates.cell.worlds,
        "truth": rates.truth,
        "contradicted": rates.holds is False,
        "outcomes": {name: _shares(rates, name) for name in PROCEDURES},
        "seeds": rates.seeds,
        "examples": rates.examples,
        "examples_interval": rates.examples_interval,
    }
