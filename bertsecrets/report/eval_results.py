"""Table 1's scores as evaluation results for the Hugging Face hub: files for a model repository's `.eval_results`.

The format is defined by huggingface_hub (https://huggingface.co/docs/hub/eval-results).
"""

from collections.abc import Sequence

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from bertsecrets.claims.verdict import Verdict
from bertsecrets.formats import VerdictsFile
from bertsecrets.report.text import seeds_text
from bertsecrets.texts.glue import GLUE_HUB, GLUE_REVISION
from bertsecrets.texts.tasks import TASKS

CLAIM = "D1-pretrained"  # table 1's accuracy (on STS-B the Pearson correlation) of the fine-tuned model


def eval_results(verdicts: Sequence[Verdict], run: VerdictsFile) -> tuple[dict[str, str], list[str]]:
    """Return score files by name, and a line for each score that does not qualify.

    Only pretrained models that were fine-tuned on all rows and evaluated on GLUE's full validation set qualify.

    Args:
        run: The same verdicts as data.
    """
    scores = [verdict for verdict in verdicts if verdict.case.claim.name == CLAIM]
    if not scores:
        return {}, [f"no evaluation results: judge claim {CLAIM}, which is about the scores"]
    files, left_out = {}, []
    for verdict in scores:
        problem = _problem(verdict)
        if problem:
            left_out.append(f"no evaluation result of {verdict.case}: {problem}")
        else:
            content = eval_result_entries_to_yaml([_entry(verdict, run)])
            files[f"glue-{verdict.case.task}.yaml"] = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return files, left_out


def _problem(verdict: Verdict) -> str | None:
    """Return why a score is not comparable with other published scores, or None if it is."""
    data = verdict.data
    if data.observed is None or data.verdict in ("degenerate", "not applicable"):
        return f"{verdict.status}: {data.reason}"
    if data.limits:
        return f"it used only part of the rows ({', '.join(f'{name} {rows}' for name, rows in data.limits.items())})"
    if not data.official_data:
        return "the data are not GLUE's own"
    if any(measurement.examples != TASKS[data.task].dev_rows for measurement in verdict.measurements):
        return "it was not measured on the whole validation set"
    return None


def _entry(verdict: Verdict, run: VerdictsFile) -> EvalResultEntry:
    """Return a score as an entry, in percent as in table 1."""
    data, task = verdict.data, TASKS[verdict.case.task]
    assert data.observed is not None
    from_hub = all((measurement.provenance.data or "").startswith(GLUE_HUB) for measurement in verdict.measurements)
    metric = "Pearson correlation" if task.regression else "accuracy"
    return EvalResultEntry(
        dataset_id=GLUE_HUB,
        task_id=task.name,
        value=round(data.observed, 2),
        dataset_revision=GLUE_REVISION if from_hub else None,
        date=run.made,
        notes=(
            f"{metric} in percent on {task.dev_split}; fine-tuned on {task.title}, {seeds_text(data.seeds)}; "
            f"bertsecrets {run.software['bertsecrets']}"
        ),
    )
