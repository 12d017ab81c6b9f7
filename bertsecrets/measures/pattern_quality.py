"""How well the classifier of attention patterns does on annotated maps of heads that it has not seen (claim A1)."""

from typing import Any

from bertsecrets.measures.base import Resources, Results, Run, SuiteMeasure
from bertsecrets.measures.base.needs import AnnotatedMaps, PatternWeights
from bertsecrets.measures.registry import measure
from bertsecrets.settings import Params


@measure("pattern-quality", title="macro-F1 of the pattern classifier on held-out heads", source="K19 4.1", version=2)
class PatternQuality(SuiteMeasure):
    """Values: `macro_f1`, `accuracy`, `f1_<class>`, `maps`, `heads`; `agreed_...` and `unseen_...` of some of the maps.

    Samples: `confusion` and `agreed_confusion` [head, true, predicted].
    """

    needs = (PatternWeights(), AnnotatedMaps())

    def fingerprint(self, resources: Resources, task_name: str) -> str:
        """Return what identifies the annotated maps."""
        from bertsecrets.patterns.training.train import annotations_fingerprint

        return annotations_fingerprint()

    def origin(self, resources: Resources) -> str | None:
        """Return what is measured, in a word."""
        return "annotated maps"

    def own_settings(self, settings: Params) -> dict[str, Any]:
        """Return nothing: no setting has a part in it."""
        return {}

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return which classifier it is; its models are those of the maps it is judged on."""
        return {"classifier": super().settings(resources)["classifier"]}

    def run(self, run: Run) -> Results:
        """Cross-validate the classifier on the suite's annotated maps."""
        from bertsecrets.patterns.training.train import held_out_quality

        values, samples = held_out_quality()
        return {self.name: (values, samples)}, values["maps"]
