"""Requirements of the measures of pattern classes: the trained classifier, and the annotated maps."""

from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.measures.base.needs import Requirement
from bertsecrets.measures.base.resources import Resources
from bertsecrets.store.files import digest


class PatternWeights(Requirement):
    """The trained classifiers of attention patterns, one for each reading."""

    def missing(self, resources: Resources) -> str | None:
        """Return what is wrong with their files; None if nothing is."""
        from bertsecrets.patterns import classifier

        folder = classifier.chosen_folder()
        try:
            report = classifier.read_report(folder)
            for reading in classifier.readings_of(report):
                classifier.PatternClassifier.load(folder, reading)
                classifier.held_out_errors(report, reading)
        except UserError as error:
            return str(error)
        return None

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return digests of the classifiers and of the maps they were judged on, by reading, and these maps' models."""
        from bertsecrets.patterns.classifier import annotated_models, chosen_folder, read_report, readings_of, report_of

        report = read_report(chosen_folder())
        parts = {reading: report_of(report, reading) for reading in readings_of(report)}
        return {
            "classifier": {reading: part["weights_sha256"] for reading, part in parts.items()},
            "judged_on": {reading: digest(part["held_out"]) for reading, part in parts.items()},
            "annotated_models": annotated_models(report),
        }


class AnnotatedMaps(Requirement):
    """The suite's own annotated maps, which are not part of the wheel."""

    def missing(self, resources: Resources) -> str | None:
        """Return how to get the maps, or scikit-learn; None if both are here."""
        from bertsecrets.patterns.needs import held_out_problem

        return held_out_problem()
