"""The quality of the pattern classifiers on annotated maps of unseen heads (K19 section 4.1; claim A1)."""

from typing import Any

from bertsecrets.measures.base import Resources, Results, Run, SuiteMeasure
from bertsecrets.measures.base.needs import Requirement
from bertsecrets.measures.patterns import PatternWeights
from bertsecrets.measures.registry import measure
from bertsecrets.store.files import digest


class AnnotatedMaps(Requirement):
    """The suite's own annotated maps, which are not part of the wheel."""

    def missing(self, resources: Resources) -> str | None:
        """Return how to get the maps or scikit-learn; None if both are present."""
        from bertsecrets.patterns.map_set import held_out_problem

        return held_out_problem()


@measure("pattern-quality", title="macro-F1 of the pattern classifiers on held-out heads", source="K19 4.1", version=3)
class PatternQuality(SuiteMeasure):
    """Values: `maps`, `heads` and, for each reading (`special_macro_f1`), `macro_f1`, `accuracy`, `f1_<class>`,
    `agreed_...` for maps on which readers agree, `single_macro_f1` against individual readers, `readers_macro_f1`
    between two readers, `unseen_...` for maps of an encoder that was not used for training or model selection.

    Samples: `<reading>_confusion` and `<reading>_agreed_confusion` [head, true, predicted].
    """

    section = None
    needs = (PatternWeights(), AnnotatedMaps())

    def fingerprint(self, run: Run) -> str:
        """Return a digest of the annotated maps and their labels, including the unseen encoder's."""
        from bertsecrets.patterns.held_out import annotations_fingerprint
        from bertsecrets.patterns.map_set import UNSEEN, own_maps

        return digest([annotations_fingerprint(), annotations_fingerprint(own_maps(UNSEEN))])

    def origin(self, resources: Resources) -> str | None:
        """Return the name of the data."""
        return "annotated maps"

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return the digest of the classifier. Its evaluation maps are part of the fingerprint."""
        return {"classifier": super().settings(resources)["classifier"]}

    def run(self, run: Run) -> Results:
        """Cross-validate the classifier on the suite's annotated maps."""
        from bertsecrets.patterns.held_out import held_out_quality

        values, samples = held_out_quality()
        return {self.name: (values, samples)}, values["maps"]
