"""Requirements of the measures of pattern classes: the trained classifier, and the annotated maps."""

from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.measures.base.needs import Requirement
from bertsecrets.measures.base.resources import Resources
from bertsecrets.store.files import digest


class PatternWeights(Requirement):
    """The trained classifier of attention patterns."""

    def missing(self, resources: Resources) -> str | None:
        """Return what is wrong with its files; None if nothing is."""
        from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, held_out_errors, read_report

        try:
            PatternClassifier.load(chosen_folder())
            held_out_errors(read_report(chosen_folder()))
        except UserError as error:
            return str(error)
        return None

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return digests of the classifier and of the maps it was judged on, and the models of these maps."""
        from bertsecrets.patterns.classifier import annotated_models, chosen_folder, read_report

        report = read_report(chosen_folder())
        return {
            "classifier": report["weights_sha256"],
            "judged_on": digest(report["held_out"]),
            "annotated_models": annotated_models(report),
        }


class AnnotatedMaps(Requirement):
    """The suite's own annotated maps, which are not part of the wheel."""

    def missing(self, resources: Resources) -> str | None:
        """Return how to get the maps, or scikit-learn; None if both are here."""
        from bertsecrets.patterns.training.needs import held_out_problem

        return held_out_problem()
