"""What a measure needs besides rows and a checkpoint: each says what is missing, and its facts for the key."""

import functools
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.measures.base.resources import Resources
from bertsecrets.store.files import digest
from bertsecrets.texts.parsing import describe, load_pipeline

NO_FRAMES = "frame-heads needs --frames: a JSONL of frame sentences, or FrameNet's folder or archive"


class Requirement:
    """Something that a measure needs. `compares` says that it is the pretrained model beside the subject's."""

    compares = False

    def missing(self, resources: Resources) -> str | None:
        """Return why it is not there, in one line that says what to do; None where it is."""
        return None

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return the facts of it that change a result."""
        return {}


class PretrainedTwin(Requirement):
    """The pretrained model whose maps are held beside those of the subject's checkpoint."""

    compares = True


class FrameSentences(Requirement):
    """Sentences with a frame's target and core elements."""

    def missing(self, resources: Resources) -> str | None:
        """Return how to give them, where none are given."""
        return NO_FRAMES if resources.frames is None else None


class SpacyPipeline(Requirement):
    """A spaCy pipeline that tags and parses."""

    def missing(self, resources: Resources) -> str | None:
        """Return why it cannot be used."""
        return pipeline_problem(resources.spacy)

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return which pipeline it is."""
        return {"pipeline": pipeline_facts(resources.spacy)}


class PatternWeights(Requirement):
    """The classifier of attention patterns, which comes trained."""

    def missing(self, resources: Resources) -> str | None:
        """Return what is wrong with its files."""
        from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, held_out_errors, read_report

        try:
            PatternClassifier.load(chosen_folder())
            held_out_errors(read_report(chosen_folder()))
        except UserError as error:
            return str(error)
        return None

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return which classifier it is, on which maps it was judged, and of which models these are."""
        from bertsecrets.patterns.classifier import annotated_models, chosen_folder, read_report

        report = read_report(chosen_folder())
        return {
            "classifier": report["weights_sha256"],
            "judged_on": digest(report["held_out"]),
            "annotated_models": annotated_models(report),
        }


class AnnotatedMaps(Requirement):
    """The suite's own annotated maps, which no wheel carries."""

    def missing(self, resources: Resources) -> str | None:
        """Return how to get them, where they are not here."""
        from bertsecrets.patterns.training.needs import held_out_problem

        return held_out_problem()


@functools.cache
def pipeline_facts(name: str) -> dict[str, Any]:
    """Return which spaCy pipeline tags and parses.

    Raises:
        UserError: spaCy or the pipeline is missing, or it has no tagger or parser.
    """
    return describe(load_pipeline(name))


@functools.cache
def pipeline_problem(name: str) -> str | None:
    """Return why a spaCy pipeline cannot be used; None where it can."""
    try:
        pipeline_facts(name)
    except UserError as error:
        return str(error)
    return None
