"""Verdicts as plain rows for other programs: flat metrics, and curves by layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsecrets.claims.many import over_tasks, together
from bertsecrets.claims.verdict import Verdict
from bertsecrets.measures.registry import get_measure
from bertsecrets.types import Measurement


def as_rows(verdicts: Sequence[Verdict], confidence: float) -> list[dict[str, Any]]:
    """Return verdicts as data; of those that deviate, `survives` says whether they do among so many claims."""
    found = together(verdicts, confidence)
    survives = {**dict.fromkeys(found.survive, True), **dict.fromkeys(found.others, False)}
    return [{**verdict.as_json(), "survives": survives.get(str(verdict.case))} for verdict in verdicts]


def metrics(verdicts: Sequence[Verdict], confidence: float) -> dict[str, Any]:
    """Return the number of cases with each outcome, value and outcome of each case, and what they say together."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return {
        "outcomes": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        "claims": {str(v.case): {"observed": v.observed, "verdict": v.outcome} for v in verdicts},
        **as_a_run(verdicts, confidence),
    }


def as_a_run(verdicts: Sequence[Verdict], confidence: float) -> dict[str, Any]:
    """Return what verdicts say together: of claims over tasks, and how many deviate by chance."""
    return {
        "over_tasks": {one.claim.name: one.as_json() for one in over_tasks(verdicts, confidence)},
        "together": together(verdicts, confidence).as_json(),
    }


def layer_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return one row per layer (from 1) with each measure's curves, averaged over heads and fine-tuned subjects."""
    curves: dict[str, list[np.ndarray]] = {}
    for measurement in unique([m for verdict in verdicts for m in verdict.measurements]):
        if measurement.subject.initialisation == "pretrained" and not measurement.options:
            for name in get_measure(measurement.measure).curves:
                curves.setdefault(name, []).append(np.asarray(measurement.value(name)).mean(1))
    means = {name: np.mean(lines, axis=0) for name, lines in curves.items()}
    depth = len(next(iter(means.values()), ()))
    return [{"layer": i + 1, **{name: float(line[i]) for name, line in means.items()}} for i in range(depth)]


def unique(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements without repetitions, in order."""
    seen: dict[str, Measurement] = {}
    for measurement in measurements:
        name = f"{measurement.measure} {measurement.subject} {sorted(measurement.options.items())}"
        seen.setdefault(name, measurement)
    return list(seen.values())
