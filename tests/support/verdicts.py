"""Verdicts of every outcome, from the judge or handmade, and verdict files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from measurements import judged, of_id, scored

from bertsecrets.claims.eligibility import Eligibility, Eligible
from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.formats import VerdictsFile
from bertsecrets.judging import JudgedRun, failed
from bertsecrets.report.json import as_file
from bertsecrets.settings import load_settings
from bertsecrets.store.measurements import save_to_folder
from bertsecrets.types import Measurement, Provenance, Subject

LABELS = [0, 1] * 50
LIMITED = {"limit": 48, "official_data": False}
CONSTANT = "gives every example the same answer"


@dataclass
class GivenVerdicts:
    """What a run judges, with the given results of each case, one per analysis: verdicts, or errors to raise."""

    results: list[Verdict | BaseException]
    model: str = "m"
    analyses: int = 1
    budget: float | None = None
    judged: list[tuple[str, int]] = field(default_factory=list)  # cases with their numbers of seeds

    @property
    def interims(self) -> list[range]:
        return [range(1, count + 1) for count in range(1, self.analyses + 1)]

    def eligibility(self, case: Case) -> Eligibility:
        return Eligible()

    def judge_case(self, case: Case, seeds: Sequence[int]) -> Verdict:
        self.judged.append((str(case), len(seeds)))
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result


def run_of(*verdicts: Verdict, model: str = "m") -> JudgedRun:
    """Return a complete run with these verdicts."""
    run = JudgedRun(GivenVerdicts(list(verdicts), model), [verdict.case for verdict in verdicts])
    run.judge()
    return run


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


def save_scores(folder: Path, right: float, task: str = "rte", rows: int = 90, model: str = "m", **provenance) -> None:
    """Save scores of three seeds with the accuracy `right`, and of untrained models that always predict 1."""
    target = [0, 1] * (rows // 2)
    for seed in (1, 2, 3):
        wrong = {(row + 10 * seed) % rows for row in range(round((1 - right) * rows))}
        tuned = [1 - label if row in wrong else label for row, label in enumerate(target)]
        for init, given in {"pretrained": tuned, "untrained": [1] * rows}.items():
            own = {"subject": Subject(model, task, init, seed), "provenance": Provenance(**provenance)}
            save_to_folder(replace(scored(given, target), **own), folder)


def measurement(**provenance) -> Measurement:
    """Return a stored measurement with this provenance."""
    return replace(scored([1], [1]), provenance=Provenance(**provenance), reused=True)


def verdict(name, outcome, observed=None, interval=None, reason: str | Cause = "why", *, provenance=LIMITED, **more):
    """Return a verdict on the case with this id, by default from a limited run on unofficial data."""
    cause = None if isinstance(reason, str) else reason
    facts = {"measurements": (measurement(**provenance),), "cause": cause, **more}
    return Verdict(of_id(name), outcome, str(reason), observed, interval, **facts)


def compatible(name: str, published: float, difference: float, half: float) -> Verdict:
    """Return the verdict on a figure from its difference, and the half-width of its band."""
    ends = {"low": difference - half, "high": difference + half}
    cause = Grounds.INSIDE(published=published, difference=difference, half=half, **ends)
    observed, band = published + difference, (published - half, published + half)
    return verdict(name, "compatible", observed, (observed - 3, observed + 3), cause, band=band, p_against=0.6)


def of_every_outcome() -> list[Verdict]:
    """Return verdicts of every outcome, with open bands, non-finite numbers, and texts that contain markup."""
    return [
        beats("D2-rte", 80, 20),
        beats("D2-sst2", 20, 80),
        beats("D2-qnli", 20, 60),
        compatible("D1-qnli-pretrained", 84.4, 0.7, 1.0),
        replace(
            beats("D2-mnli", 55, 45),
            outcome="inconclusive",
            interval=(float("-inf"), 30.0),
            cause=Grounds.INCLUDES_LIMIT(interval=(float("-inf"), 30.0), limit=0.0),
        ),
        Verdict.because(of_id("D3-rte"), "degenerate", Grounds.SEED_FAILED(problems=CONSTANT), p_for=float("nan")),
        Verdict.because(
            of_id("G7-rte"),
            "not applicable",
            Grounds.OTHER_SHAPE(layers=12, heads=12, has="the model has 6 x 12", instead=""),
            observed=float("nan"),
        ),
        failed(of_id("C1-rte"), UserError("<b>no</b> rows | in a*file*")),
    ]


def filed(verdicts: list[Verdict] | None = None, model: str = "m", note: str = "") -> VerdictsFile:
    return as_file(of_every_outcome() if verdicts is None else verdicts, model, load_settings(), note=note, commits=[])
