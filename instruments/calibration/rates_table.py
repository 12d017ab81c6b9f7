"""Tables of calibration cells: how often cases pass if the truth is as published, and error rates."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.loading import cases, find_case
from bertsecrets.claims.prospects import Prospect, Prospects, examples_needed
from bertsecrets.claims.schema import Case
from bertsecrets.formats import Outcome
from bertsecrets.report import tables
from bertsecrets.report.tables import Format
from bertsecrets.texts.tasks import TASKS
from instruments.calibration.cells import PROCEDURES, Rates, code, least
from instruments.calibration.truth import ASSUMPTIONS
from instruments.calibration.worlds import find_world

MOST = 0.06  # maximum rate of false verdicts
ENOUGH = 100  # minimum number of examples for which the bound holds
STANDARD_ERRORS = 2.5  # tolerance for exceeding the bound by chance
ENCODER_QUANTITIES = ("class-share",)  # of one task, with the error of the pattern classifier
LETTERS = {
    "reproduced": "R",
    "compatible": "C",
    "deviates": "D",
    "inconclusive": "i",
    "degenerate": "g",
    "not applicable": "n",
}
HEADER = ("case", "world", "truth", "auto", "seeds", "--seeds 1", "--seeds 5", "out of bounds")


def table(counted: Sequence[Rates], form: Format = "text") -> str:
    """Return a table with a row for each cell, means by task and world, and the Monte Carlo error."""
    rows = [_row(rates) for rates in counted]
    return f"{tables.table(HEADER, rows, form)}\n\n{summary(counted)}\n{legend(counted)}\n"


def _row(rates: Rates) -> tuple[str, ...]:
    truth = "-" if rates.truth is None else f"{rates.truth:.3g}" + ("" if rates.holds else " (contradicts)")
    return (
        rates.cell.case,
        rates.cell.world,
        truth,
        _outcomes(rates, "auto"),
        f"{rates.seeds['auto']:.1f}",
        _outcomes(rates, "1"),
        _outcomes(rates, "5"),
        "; ".join(wrong(rates)),
    )


def _outcomes(rates: Rates, procedure: str) -> str:
    outcomes = rates.outcomes[procedure]
    return " ".join(
        f"{LETTERS.get(outcome, outcome)} {100 * outcomes[outcome] / rates.cell.worlds:.0f}"
        for outcome in sorted(outcomes, key=lambda outcome: -outcomes[outcome])
    )


def wrong(rates: Rates) -> list[str]:
    """Return the rates of false verdicts that significantly exceed the bound."""
    world, chance = find_world(rates.cell.world), STANDARD_ERRORS * np.sqrt(MOST * (1 - MOST) / rates.cell.worlds)
    if world.examples is not None and world.examples < ENOUGH:
        return []
    return [
        f"{name}: {rates.share(outcome, name):.1%} {outcome}"
        for outcome in false_outcomes(rates)
        for name in PROCEDURES
        if rates.share(outcome, name) > MOST + chance
    ]


def false_outcomes(rates: Rates) -> list[Outcome]:
    """Return the outcomes that would be false in a cell's worlds."""
    world, expect = find_world(rates.cell.world), find_case(rates.cell.case).claim.expect
    if world.worse or world.collapsed == 1:
        nothing = np.isinf(world.worse) or world.collapsed == 1
        return [expect.passes] if nothing and not isinstance(expect, Order) else []
    if world.truth == "null" and isinstance(expect, Order):
        # deviating is correct for an effect below the smallest of interest
        passes = [] if rates.holds else [expect.passes]  # fractions of heads are discrete and can skip the threshold
        return passes if least(find_case(rates.cell.case)) != expect.value else ["deviates", *passes]
    if world.truth == "least":
        return ["deviates"]
    return ["deviates"] if rates.holds else [expect.passes] if rates.holds is False else []


def _passes(rates: Rates, procedure: str = "auto") -> float:
    """Return the fraction of worlds in which a case passes."""
    return rates.share(find_case(rates.cell.case).claim.expect.passes, procedure)


def needs_annotated_maps(case: Case, recorded: Prospect) -> bool:
    """Return whether an order of class shares is rarely decided for encoders without annotated maps.

    The simulated model has no annotated maps. With such maps, the interval is narrower, but may still include the
    limit: they are necessary, not always sufficient.
    """
    of_order = isinstance(case.claim.expect, Order)
    return of_order and case.claim.quantity in ENCODER_QUANTITIES and not recorded.mostly_decided


def decidable(rates: Rates) -> bool:
    """Return whether data can decide a case: its examples and maps are sufficient."""
    case, never = find_case(rates.cell.case), rates.share("not applicable") == 1
    recorded = Prospect.model_validate(_as_data(rates))
    examples = examples_needed(case, recorded)
    too_few = examples is not None and case.task in TASKS and examples > TASKS[case.task].dev_rows
    return not (never or too_few or needs_annotated_maps(case, recorded))


def summary(counted: Sequence[Rates]) -> str:
    """Return, by task, how often cases pass, without cases that K19's own figures contradict."""
    lines = []
    asked = [rates for rates in counted if rates.cell.world == "as-published" and rates.holds]
    for task in dict.fromkeys(find_case(rates.cell.case).task for rates in asked):
        of_task = [rates for rates in asked if find_case(rates.cell.case).task == task]
        decided = [rates for rates in of_task if decidable(rates)]
        if not decided:
            continue
        seeds = np.mean([rates.seeds["auto"] for rates in decided])
        means = ", ".join(f"{name} {np.mean([_passes(rates, name) for rates in decided]):.0%}" for name in PROCEDURES)
        left_out = len(of_task) - len(decided)
        worst = min(decided, key=_passes)
        lines.append(
            f"{task}: pass if as published: {means} (mean of {len(decided)} cases, {seeds:.1f} seeds); worst "
            f"{worst.cell.case} {_passes(worst):.0%}; left out for lack of data: {left_out}"
        )
    return "\n".join(lines)


def legend(counted: Sequence[Rates]) -> str:
    """Return the meaning of the letters, and the Monte Carlo error."""
    worlds = min((rates.cell.worlds for rates in counted), default=1)
    error = 100 * np.sqrt(0.25 / worlds), 100 * np.sqrt(0.05 * 0.95 / worlds)
    return (
        "R reproduced, C compatible, D deviates, i inconclusive, g degenerate (no seed learned), n not applicable: "
        f"percent of worlds. Monte Carlo standard error with {worlds} "
        f"worlds: {error[0]:.1f} points at 50 %, {error[1]:.1f} at 5 %. False verdicts: at most {MOST:.0%} "
        f"from {ENOUGH} examples on."
    )


def data(counted: Sequence[Rates], made: str, earlier: Prospects | None) -> str:
    """Return the rates in worlds as published, as JSON for `claims.prospects` with one line per case.

    Args:
        earlier: Earlier data. Cases that were not simulated again are kept.
    """
    facts = {"assumptions": ASSUMPTIONS}
    kept = {name: prospect.model_dump() for name, prospect in earlier.cases.items()} if earlier else {}
    by_case = {rates.cell.case: rates for rates in counted if rates.cell.world == "as-published"}
    new = {name: {**_as_data(rates), "made": made, "code": code(rates.cell)} for name, rates in by_case.items()}
    known = {**kept, **new}
    named = {str(case): known.get(str(case)) for case in cases()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(prospect)}" for name, prospect in named.items() if prospect)
    return json.dumps(facts, indent=1)[:-2] + f',\n "cases": {{\n{lines}\n }}\n}}\n'


def _as_data(rates: Rates) -> dict[str, Any]:
    shares = {
        name: {outcome: round(count / rates.cell.worlds, 4) for outcome, count in rates.outcomes[name].items()}
        for name in PROCEDURES
    }
    return {
        "worlds": rates.cell.worlds,
        "truth": rates.truth,
        "contradicted": rates.holds is False,
        "outcomes": shares,
        "seeds": rates.seeds["auto"],
        "decided_by": rates.decided_by,
        "examples": rates.examples,
        "examples_interval": rates.examples_interval,
    }
