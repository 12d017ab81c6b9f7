"""Verdicts as plain rows for other programs: flat metrics, and curves by layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsecrets.claims.verdict import Verdict
from bertsecrets.measures.registry import get_measure
from bertsecrets.types import Measurement


def metrics(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the number of cases with each outcome, and the observed value and outcome of each case."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return {
        "outcomes": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        "claims": {str(v.case): {"observed": v.observed, "verdict": v.outcome} for v in verdicts},
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
