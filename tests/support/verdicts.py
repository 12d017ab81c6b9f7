"""Verdicts of every outcome, from the judge or handmade, and verdict files."""

from dataclasses import replace

from measurements import judged, of_id, scored

from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.formats import VerdictsFile
from bertsecrets.judging import failed
from bertsecrets.report.json import as_file
from bertsecrets.settings import load_settings

LABELS = [0, 1] * 50


def beats(name: str, fine_tuned: int, other: int) -> Verdict:
    """Return the verdict on whether a fine-tuned model beats another, from one checkpoint each.

    Args:
        fine_tuned: Number of correct answers of the fine-tuned model, out of 100.
        other: Number of correct answers of the other model, out of 100.
    """
    pair = [scored(answers(right), LABELS, of_id(name).task) for right in (fine_tuned, other)]
    return judged(
        of_id(name),
        *(replace(measurement, subject=replace(measurement.subject, initialisation="frozen")) for measurement in pair),
    )


def answers(right: int) -> list[int]:
    """Return answers to 100 examples with two balanced classes, of which the first `right` are correct."""
    return LABELS[:right] + [1 - label for label in LABELS[right:]]


def of_every_outcome() -> list[Verdict]:
    """Return verdicts of every outcome, with open bands, non-finite numbers, and texts that contain markup."""
    return [
        beats("D2-rte", 80, 20),
        beats("D2-sst2", 20, 80),
        beats("D2-qnli", 20, 60),
        replace(beats("D2-mnli", 55, 45), outcome="inconclusive", interval=(float("-inf"), 30.0)),
        Verdict(of_id("D3-rte"), "degenerate", "gives every example the same answer", p_for=float("nan")),
        Verdict(of_id("G7-rte"), "not applicable", "needs 12 layers x 12 heads", observed=float("nan")),
        failed(of_id("C1-rte"), UserError("<b>no</b> rows | in a*file*")),
    ]


def filed(verdicts: list[Verdict] | None = None, model: str = "m", note: str = "") -> VerdictsFile:
    return as_file(of_every_outcome() if verdicts is None else verdicts, model, load_settings(), note=note)
