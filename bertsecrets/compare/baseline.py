"""A baseline: a model's accepted verdicts, with which the verdicts of later runs are compared."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bertsecrets.claims.eligibility import Eligible
from bertsecrets.claims.verdict import Verdict
from bertsecrets.compare.changes import (
    ChangedFact,
    Changes,
    differing,
    is_worse,
    read_verdicts_file,
    setting_facts,
    standing,
)
from bertsecrets.errors import UserError, excerpt
from bertsecrets.formats import FAILURES, VerdictData, VerdictsFile
from bertsecrets.judging import JudgedRun
from bertsecrets.models.locations import recorded_name
from bertsecrets.settings import load_settings

DECIDING_SETTINGS = {"scores", "attention", "judge"}  # other settings say how a model is trained, which may change


@dataclass(frozen=True)
class Baseline:
    """A file with the accepted verdicts of a model."""

    path: Path
    accepted: VerdictsFile | None  # None if the file does not exist yet
    updating: bool = False  # whether the verdicts of the run are to replace the accepted ones

    @classmethod
    def read(cls, path: Path, *, updating: bool = False) -> "Baseline":
        """Read the accepted verdicts. A missing file is an error, unless the baseline is being updated."""
        if updating and not path.exists():
            return cls(path, None, updating)
        try:
            return cls(path, read_verdicts_file(path), updating)
        except UserError as error:
            if not updating:
                raise
            raise UserError(f"{error}; to accept only this run's verdicts, delete the file") from error

    @cached_property
    def verdicts(self) -> dict[str, VerdictData]:
        """The accepted verdicts by case, without the cases that ended in an error."""
        verdicts = self.accepted.verdicts if self.accepted else []
        return {verdict.id: verdict for verdict in verdicts if verdict.verdict is not None}

    def check_run(self, run: JudgedRun) -> None:
        """Before any measurement, check that the baseline and the run have the same model, settings and definitions.

        The rows must also be the same if the session knows them before it measures.
        """
        if run.idle:
            why = next(iter(run.skipped()))
            raise UserError(f"nothing to compare with {self.path}: claims are skipped or do not apply ({why})")
        if self.updating or self.accepted is None:
            return
        if not _same_model(self.accepted.model, run.model):
            self._refuse(f"model {self.accepted.model} -> {run.model}")
        given = load_settings().model_dump(mode="json", include=DECIDING_SETTINGS)
        if changed := _changed_settings(self.accepted.settings, given):
            self._refuse(str(changed[0]))
        earlier = [(str(case), case, self.verdicts[str(case)]) for case in run.asked if str(case) in self.verdicts]
        redefined = [name for name, case, verdict in earlier if verdict.definition != case.definition]
        if redefined:
            self._refuse(f"the definition of {_listed(redefined)}")
        for name, case, verdict in earlier:
            if verdict.data and isinstance(run.answers[name], Eligible):
                self.check(verdict.model_copy(update=run.session.rows_of(case)))

    def check(self, verdict: VerdictData) -> None:
        """Check that a verdict was measured on the same rows as the accepted verdict on the same case."""
        accepted = self.verdicts.get(verdict.id)
        if not self.updating and accepted is not None and (difference := other_rows(accepted, verdict)):
            self._refuse(difference)

    def _refuse(self, difference: str) -> None:
        what = f"{self.path} is the baseline of another run ({excerpt(difference, 200)})"
        raise UserError(f"{what}: run again with the same model, rows and settings, or update the baseline")

    def covers(self, name: str) -> bool:
        """Return whether a case has an accepted verdict. If the baseline is being updated, always return True."""
        return self.updating or name in self.verdicts

    def accepts(self, verdict: VerdictData) -> bool | None:
        """Return whether a verdict is no worse than the accepted one, or None if its case has no accepted verdict."""
        if not self.covers(verdict.id):
            return None
        return self.updating or not is_worse(self.verdicts[verdict.id], verdict)

    def updated(self, run: VerdictsFile) -> Changes:
        """Return the changes from the accepted verdicts to those of a run.

        If the run has the same model and settings as the baseline, cases that the run did not judge keep their accepted
        verdicts.
        """
        same = (
            self.accepted is not None
            and _same_model(self.accepted.model, run.model)
            and not _changed_settings(self.accepted.settings, run.settings)
        )
        judged = {verdict.id: verdict for verdict in run.verdicts if verdict.verdict is not None}
        verdicts = {**(self.verdicts if same else {}), **judged}
        new = run.model_copy(update={"verdicts": [*verdicts.values()]})
        return Changes(self.accepted or run.model_copy(update={"verdicts": []}), new)

    def lines(self, verdicts: Sequence[Verdict]) -> Iterator[str]:
        """Yield a line each for failing verdicts that are worse than accepted, accepted, or not in the baseline."""
        names: dict[bool | None, list[str]] = {False: [], True: [], None: []}
        for verdict in (each.data for each in verdicts if each.outcome in FAILURES):
            accepted = self.accepts(verdict)
            change = f" ({standing(self.verdicts[verdict.id])} -> {standing(verdict)})" if accepted is False else ""
            names[accepted].append(f"{verdict.id}{change}")
        for accepted, what in {False: "worse than in", True: "accepted in", None: "not in"}.items():
            if names[accepted]:
                yield f"{what} {self.path}: {', '.join(names[accepted])}"


def other_rows(before: VerdictData, after: VerdictData) -> str:
    """Return how the rows behind two verdicts on a case differ, or "" if they do not."""
    if not (before.data and after.data):
        return ""
    changed = differing(*({"limits": _in_words(of.limits), "data": of.data} for of in (before, after)))
    return f"{changed[0].name} of {after.id}: {changed[0].before} -> {changed[0].after}" if changed else ""


def _same_model(accepted: str, model: str) -> bool:
    """Return whether two names refer to the same model or to the same folder."""
    return recorded_name(accepted) == recorded_name(model) or os.path.realpath(accepted) == os.path.realpath(model)


def _changed_settings(accepted: Mapping[str, Any], given: Mapping[str, Any]) -> list[ChangedFact]:
    """Return the settings that differ between two runs, or that only one has. Training settings are ignored."""
    before, after = (
        setting_facts({name: part for name, part in settings.items() if name in DECIDING_SETTINGS})
        for settings in (accepted, given)
    )
    absent = dict.fromkeys([*before, *after], "missing")
    return differing({**absent, **before}, {**absent, **after})


def _in_words(limits: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {rows}" for name, rows in limits.items()) or "all rows"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
