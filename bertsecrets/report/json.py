"""The results of a run as data for other programs: verdicts, flat metrics, and curves over layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsecrets.claims.multiplicity import multiple_testing, over_tasks
from bertsecrets.claims.verdict import Verdict
from bertsecrets.formats import FORMAT, FORMAT_VERSION, MeasuredData, VerdictsFile
from bertsecrets.measures.registry import get_measure
from bertsecrets.provenance import run_facts
from bertsecrets.settings import Params
from bertsecrets.types import Measurement


def as_file(
    verdicts: Sequence[Verdict], model: str, settings: Params, *, note: str, commits: Sequence[str]
) -> VerdictsFile:
    """Return the verdicts of a run in the published format, with settings and software versions.

    Args:
        settings: Settings of the run. If checkpoints were trained, the file states the precision used, not the setting.
        note: Why the run is incomplete; empty if it is complete.
        commits: Git commits of the suite at the time the measurements were first judged.
    """
    confidence = settings.judge.confidence
    named = settings.model_dump(mode="json", include={"finetune", "scores", "attention", "judge"})
    trainings = [m.provenance.training or {} for v in verdicts for m in v.measurements]
    precisions = ", ".join(sorted({training["precision"] for training in trainings if training.get("steps")}))
    named["finetune"]["precision"] = precisions or named["finetune"]["precision"]
    return VerdictsFile(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        **run_facts(),
        model=model,
        settings=named,
        incomplete=note or None,
        measured=_measured(unique([m for v in verdicts for m in v.inputs]), commits),
        over_tasks={result.claim: result for result in over_tasks(verdicts, confidence)},
        together=multiple_testing(verdicts, confidence),
        verdicts=[verdict.data for verdict in verdicts],
    )


def _measured(measurements: Sequence[Measurement], commits: Sequence[str]) -> MeasuredData | None:
    """Return when and how measurements were made. The time of a pass that several measures share is counted once."""
    if not measurements:
        return None
    origins = [measurement.provenance for measurement in measurements]
    made = sorted(origin.made for origin in origins)
    makers = [maker for origin in origins for maker in (origin.made_by, origin.checkpoint_made_by) if maker]
    versions = [(name, version) for maker in makers for name, version in (maker.get("software") or {}).items()]
    versions += [("python", origin.python) for origin in origins] + [("bertsecrets", o.bertsecrets) for o in origins]
    trainings = {origin.weights: (origin.training or {}).get("seconds", 0) for origin in origins}
    passes = {(m.subject, m.provenance.made, m.provenance.seconds) for m in measurements}
    return MeasuredData(
        first=made[0],
        last=made[-1],
        devices=sorted({maker["device"] for maker in makers if maker.get("device")}),
        software={
            name: sorted({version for other, version in versions if other == name and version})
            for name in sorted(dict(versions))
        },
        training_seconds=round(sum(trainings.values()), 2),
        measuring_seconds=round(sum(seconds for _, _, seconds in passes), 2),
        commits=[*commits],
    )


def metrics(verdicts: Sequence[Verdict], confidence: float) -> dict[str, Any]:
    """Return the number of cases per outcome, each case's observed value and outcome, and statistics of the run."""
    outcomes = [verdict.status for verdict in verdicts]
    return {
        "outcomes": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        "claims": {str(v.case): {"observed": v.observed, "verdict": v.status} for v in verdicts},
        "over_tasks": {result.claim: result.model_dump() for result in over_tasks(verdicts, confidence)},
        "together": multiple_testing(verdicts, confidence).model_dump(),
    }


def layer_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return one row per layer (from 1), with each value averaged over heads and over fine-tuned checkpoints."""
    curves: dict[str, list[np.ndarray]] = {}
    for measurement in unique([m for verdict in verdicts for m in verdict.measurements]):
        if measurement.subject.initialisation == "pretrained" and not measurement.options:
            for name in get_measure(measurement.measure).curves:
                curves.setdefault(name, []).append(np.asarray(measurement.value(name)).mean(1))
    means = {name: np.mean(lines, axis=0) for name, lines in curves.items()}
    depth = len(next(iter(means.values()), ()))
    return [{"layer": i + 1, **{name: float(line[i]) for name, line in means.items()}} for i in range(depth)]


def unique(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements without duplicates, in their original order."""
    seen: dict[str, Measurement] = {}
    for each in measurements:
        seen.setdefault(f"{each.measure} {each.subject} {sorted(each.options.items())}", each)
    return list(seen.values())
