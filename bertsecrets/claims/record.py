"""Runs on record: what each quantity was on every seed, in `expected/evidence/`, as the prior of its spread over seeds."""

import json
from functools import cache
from typing import Any

import numpy as np

from bertsecrets.claims.band import cited_spread
from bertsecrets.claims.schema import Case
from bertsecrets.claims.spread import Spread, pooled
from bertsecrets.settings import project_path

PATTERN = "seeds-*.json"  # one file for each model


def spread_beforehand(case: Case) -> Spread | None:
    """Return the spread over seeds that is cited beside a case's figure, or that runs on record give; None for neither.

    Runs of the same claim count, on the case's own task and on others.
    """
    return cited_spread(case) or _on_record(case.claim.name)


@cache
def _on_record(claim: str) -> Spread | None:
    runs = [run for run in runs_on_record() if run["claim"] == claim]
    spreads = [(float(np.std(run["values"], ddof=1)), len(run["values"]) - 1) for run in runs if len(run["values"]) > 1]
    models = ", ".join(sorted({run["model"] for run in runs}))
    tasks = ", ".join(sorted({run["task"] for run in runs}))
    return pooled(spreads, f"runs on record ({models} on {tasks})")


@cache
def runs_on_record() -> list[dict[str, Any]]:
    """Return all runs on record: `claim`, `task`, `model`, and `values` by seed in the claim's unit."""
    files = sorted((project_path("expected") / "evidence").glob(PATTERN))
    return [
        {"model": data["model"], **run}
        for data in (json.loads(file.read_text(encoding="utf-8")) for file in files)
        for run in data["runs"]
    ]
