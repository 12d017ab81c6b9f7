"""The quality of the pattern classifiers on annotated maps of unseen heads (K19 section 4.1; claim A1)."""

from typing import Any

from bertsecrets.measures.base import MeasureContext, Resources, Results, SuiteMeasure
from bertsecrets.measures.patterns import PatternWeights
from bertsecrets.measures.registry import measure
from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, read_report
from bertsecrets.patterns.readings import READINGS
from bertsecrets.patterns.recorded_quality import recorded_quality
from bertsecrets.store.files import digest


@measure("pattern-quality", title="macro-F1 of the pattern classifiers on held-out heads", source="K19 4.1", version=4)
class PatternQuality(SuiteMeasure):
    """Values: `maps` and `heads`, the numbers of annotated maps and annotated heads. All other values exist for each
    reading, and their names start with the reading's name, as in `special_macro_f1`. They are `macro_f1`, `accuracy`
    and `f1_<class>`; `single_macro_f1`, the mean score against each annotator; and `readers_macro_f1`, the score of one
    annotator against the other. Values called `agreed_...` cover only maps on which the annotators agree. Values called
    `unseen_...` cover only maps of an encoder that was not used in training or model selection.

    Samples: `<reading>_confusion` and `<reading>_agreed_confusion` [head, true, predicted].

    All values and samples come from the cross-validation that is recorded in the classifiers' training report.
    """

    needs = (PatternWeights(),)

    def fingerprint(self, context: MeasureContext) -> str:
        """Return a digest of the training report, excluding the duration of the training."""
        parts = read_report(chosen_folder())["readings"]
        return digest([{**part, "seconds": None} for part in parts.values()])

    def origin(self, resources: Resources) -> str | None:
        return "annotated maps"

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return the digest of the classifier files. The training report is already covered by `fingerprint`."""
        return {"classifier": super().settings(resources)["classifier"]}

    def run(self, context: MeasureContext) -> Results:
        """Read the cross-validation results from the training report, after checking that the weights belong to it."""
        folder = chosen_folder()
        for reading in READINGS:
            PatternClassifier.load(folder, reading)
        values, samples = recorded_quality(read_report(folder))
        return {self.name: (values, samples)}, values["maps"]
