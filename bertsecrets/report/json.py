"""Verdicts as plain rows for other programs: flat metrics, and curves by layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.html import unique

CURVES = {"attention-change": ("cosine",), "special-tokens": ("cls", "sep")}


def metrics(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Per case its observed value and outcome, and how many have each outcome."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return {
        "outcomes": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        "claims": {str(v.case): {"observed": v.observed, "verdict": v.outcome} for v in verdicts},
    }


def layer_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """One row per layer (from 1): `cosine`, `cls` and `sep`, the mean over heads and over all fine-tuned subjects."""
    curves: dict[str, list[np.ndarray]] = {}
    for found in unique([m for verdict in verdicts for m in verdict.measurements]):
        if found.subject.initialisation == "pretrained" and not found.options:
            for name in CURVES.get(found.measure, ()):
                curves.setdefault(name, []).append(np.asarray(found.value(name)).mean(1))
    means = {name: np.mean(lines, axis=0) for name, lines in curves.items()}
    depth = len(next(iter(means.values()), ()))
    return [{"layer": i + 1, **{name: float(line[i]) for name, line in means.items()}} for i in range(depth)]
