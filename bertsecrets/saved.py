"""Saved measurements, which are judged in the same way as a session's measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from bertsecrets.claims.eligibility import Eligibility, Eligible, ModelFacts, NotApplicable, Skipped, applicability
from bertsecrets.claims.judge import judge, judge_in_sequence
from bertsecrets.claims.quantity import all_of
from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.claims.requirements import is_measured, measure_case, measured_seeds
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import MOST_REPLACED
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import UserError
from bertsecrets.settings import JudgeParams
from bertsecrets.store.measurements import Shelf
from bertsecrets.store.records import RecordedRun
from bertsecrets.types import AUTO, Measurement, Subject


@dataclass(frozen=True)
class SavedMeasurements:
    """Measurements saved in a folder, which are judged as if they had just been made."""

    shelf: Shelf
    model: str
    settings: JudgeParams
    wanted_seeds: int | str | list[int] | None = None
    run: RecordedRun | None = None  # the run that saved the measurements; None if they were saved individually
    interims: Sequence[Sequence[int]] = ((),)
    budget: float | None = None

    @property
    def commits(self) -> Sequence[str]:
        """Git commits of the suite when the run was saved; empty if the measurements were saved individually."""
        return self.run.commits if self.run else []

    def eligibility(self, case: Case) -> Eligibility:
        """Return whether a case's measurements were saved, and whether the case applies to the measured model."""
        answer: Eligibility = Skipped("its measurements were not saved")
        if seeds := self._seeds(case):
            (needed,) = measure_case(self.shelf, case, self.model, seeds[:1])
            answer = applicability(case, ModelFacts.of_measurement(all_of(needed)[0], case.claim.measure))
        cause = self.run.not_applicable.get(str(case)) if self.run else None
        if cause is None or cause.grounds not in Grounds.__members__ or isinstance(answer, Eligible):
            return answer
        try:
            return NotApplicable(Cause(Grounds[cause.grounds], dict(cause.facts)))
        except (KeyError, ValueError) as error:
            raise UserError(f"the record's reason why {case} does not apply is damaged: save the run again") from error

    def rows_of(self, case: Case) -> dict[str, Any]:
        """Return no facts: nothing is measured, so the rows need not be known before the verdicts."""
        return {}

    def judge_case(self, case: Case, seeds: Sequence[int]) -> Verdict:
        """Return the verdict on a case."""
        measured = measure_case(self.shelf, case, self.model, self._seeds(case))
        if self.wanted_seeds == AUTO:
            return judge_in_sequence(case, measured, self.settings)
        if isinstance(self.wanted_seeds, int):
            return judge_in_sequence(case, measured, self.settings, self.wanted_seeds)
        return judge(case, measured, self.settings)

    def _seeds(self, case: Case) -> Sequence[int]:
        """Return the seeds saved for a case. If the user gave a number of seeds, saved spare seeds come last."""
        wanted = self.wanted_seeds
        if not isinstance(wanted, int):
            return measured_seeds(self.shelf, case, self.model, wanted if isinstance(wanted, list) else None)
        seeds = measured_seeds(self.shelf, case, self.model, range(1, wanted + 1))
        spare = range(wanted + 1, wanted + 1 + MOST_REPLACED) if seeds else ()
        return [*seeds, *takewhile(lambda seed: is_measured(self.shelf, case, self.model, [seed]), spare)]

    def example_maps(self, subject: Subject) -> Measurement | None:
        """Return a subject's saved attention maps, or None if they were not saved."""
        return self.shelf.find("example-maps", subject, {})
