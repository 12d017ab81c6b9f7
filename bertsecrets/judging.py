"""Runs that judge claims on new or saved measurements, for the command line, the benchmarks and Python.

A case is a claim on one task. After each analysis, the cases that another seed could still decide are judged again with
one more seed. An error in one case does not end the run.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bertsecrets.claims.eligibility import Eligibility, Eligible, NotApplicable, Skipped, about_other_architecture
from bertsecrets.claims.judge import refused
from bertsecrets.claims.reasons import Cause
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import MissingError, NotApplicableError, RunError, UserError, in_short, of_the_machine, one_line
from bertsecrets.formats import FAILURES, VerdictData
from bertsecrets.progress import counted, in_time, log
from bertsecrets.store.records import RecordedCause, RecordedRun, write_record
from bertsecrets.types import Measurement, Subject, as_chart

if TYPE_CHECKING:
    import pandas as pd


def skipped(names: Sequence[str], reason: str) -> str:
    """Return a line about claims that are skipped for the same reason."""
    return f"{counted(len(names), 'claim')} skipped ({', '.join(names)}): {reason}"


def attempt(case: Case, judge: Callable[[], Verdict]) -> Verdict | Skipped:
    """Return the verdict on a case, or `Skipped` if data or a tool is missing.

    `claims.judge.refused` turns some errors into an outcome. After any other error, even a bug, the verdict has no
    outcome (see `Verdict.error`). A `RunError` is not caught.
    """
    try:
        return judge()
    except RunError:
        raise
    except MissingError as error:
        return Skipped(str(error))
    except NotApplicableError as error:
        return refused(case, error)
    except UserError as error:
        return failed(case, error)
    except Exception as error:
        line = of_the_machine(error)
        return failed(case, error if line is None else UserError(line))


def failed(case: Case, error: Exception) -> Verdict:
    """Return a verdict without an outcome for a case that could not be measured."""
    reason = str(error) if isinstance(error, UserError) else in_short(error)
    return Verdict(case, None, one_line(reason), error=error)


def _recorded_cause(cause: Cause) -> RecordedCause:
    facts = {name: fact if isinstance(fact, int | float) else str(fact) for name, fact in cause.facts.items()}
    return RecordedCause(grounds=cause.grounds.name, facts=facts)


class Verdicts(list[Verdict]):
    """Verdicts on several claims."""

    def __repr__(self) -> str:
        counts = Counter(verdict.status for verdict in self)
        outcomes = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
        return f"<Verdicts: {outcomes}>"

    def plot(self) -> Any:
        """Return an Altair chart of the outcomes, by claim and task, with the observed values on hover."""
        return as_chart(self)

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with a row per verdict: the scalar fields of the JSON report and the ends of the interval."""
        import pandas as pd

        scalar = {"string", "integer", "number", "boolean", "null"}
        columns = [
            name
            for name, field in VerdictData.model_json_schema()["properties"].items()
            if scalar.issuperset(part.get("type", "string") for part in field.get("anyOf", [field]))
        ]
        ends = [verdict.interval or (None, None) for verdict in self]
        frame = pd.DataFrame([verdict.data.model_dump(include={*columns}) for verdict in self], columns=columns)
        return frame.assign(low=[low for low, _ in ends], high=[high for _, high in ends])

    def _repr_html_(self) -> str:
        columns = ["id", "verdict", "observed", "low", "high", "published", "unit", "reason"]
        return str(self.to_frame()[columns].to_html(index=False)) if self else "no verdicts"


class Judgeable(Protocol):
    """A source of measurements to judge: either a `Session`, which makes measurements, or `SavedMeasurements`."""

    @property
    def model(self) -> str: ...
    @property
    def wanted_seeds(self) -> int | str | list[int] | None: ...
    @property
    def interims(self) -> Sequence[Sequence[int]]: ...
    @property
    def budget(self) -> float | None: ...
    @property
    def commits(self) -> Sequence[str]: ...

    def eligibility(self, case: Case) -> Eligibility: ...
    def rows_of(self, case: Case) -> dict[str, Any]: ...
    def judge_case(self, case: Case, seeds: Sequence[int]) -> Verdict: ...
    def example_maps(self, subject: Subject) -> Measurement | None: ...


class Runner(AbstractContextManager["Runner", None]):
    """Base class of runners, which obtain the measurements of a run. The base class measures a case when judging it."""

    def split(self, cases: Sequence[Case], seeds: Sequence[int]) -> tuple[list[Case], list[Case]]:
        """Return two lists, judged in this order: the cases whose measurements are stored, and all other cases.

        Raises:
            UserError: If new measurements are needed, but the store is not writable.
        """
        return [], list(cases)

    def is_stored(self, cases: Sequence[Case], seed: int) -> bool:
        """Return whether all measurements that the given cases need for a seed are stored."""
        return False

    def prepare(self, cases: Sequence[Case], seeds: Sequence[int]) -> None:
        """Announce the measurements to be made, and run any jobs that must finish before the cases are judged."""

    def tell(self, verdict: Verdict) -> None:
        """Report a verdict."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Release the run's resources."""


class JudgedRun:
    """A run that measures and judges all cases that can be judged, in one or more analyses.

    Attributes:
        asked: The requested cases, except cases that are only about other model architectures.
        ended: Error that ended the run early, if any.
        baseline: The accepted verdicts (`compare.baseline.Baseline`), if any.
        examples: Examples for the attention viewer of the report (`report.viewer.Examples`).
    """

    def __init__(self, session: Judgeable, cases: Sequence[Case], runner: Runner | None = None):
        self.session, self.runner, self.model = session, runner or Runner(), session.model
        self.answers: dict[str, Eligibility] = {str(case): session.eligibility(case) for case in cases}
        self.asked = [case for case in cases if not about_other_architecture(self.answers[str(case)])]
        self.ended: BaseException | None = None
        self.baseline: Any = None
        self.examples: Any = None
        self._latest: dict[str, Verdict | Skipped] = {}
        self._final: set[str] = set()  # names of the cases that get no further seed
        self._judging = self.results()
        self._divided: tuple[list[Case], list[Case]] | None = None  # what the runner has prepared
        self._began: float | None = None

    def possible(self) -> list[Case]:
        """Return all cases that are not skipped. Cases that do not apply to the model are included."""
        return [case for case in self.asked if not isinstance(self.answers[str(case)], Skipped)]

    def eligible(self) -> list[Case]:
        """Return the cases that can be judged and apply to the model."""
        return [case for case in self.asked if isinstance(self.answers[str(case)], Eligible)]

    @property
    def idle(self) -> bool:
        """Whether claims are skipped and none can be judged. Claims that do not apply to the model do not count."""
        return bool(self.skipped()) and not self.eligible()

    def skipped(self) -> dict[str, list[str]]:
        """Return the names of the cases that cannot be judged, keyed by what is missing."""
        names: dict[str, list[str]] = {}
        for case in self.asked:
            if isinstance(answer := self.answers[str(case)], Skipped):
                names.setdefault(answer.reason, []).append(str(case))
        return names

    def prepare(self) -> None:
        """Make all measurements for the first analysis before any case is judged."""
        self._began = time.monotonic()
        seeds = self.session.interims[0]
        self._divided = self.runner.split(self.eligible(), seeds)
        if self._divided[1]:
            self.runner.prepare(self._divided[1], seeds)

    def results(self) -> Iterator[tuple[Case, Verdict | Skipped]]:
        """Judge the cases in one or more analyses. Each time a case is judged, yield the case and its result.

        Cases that are still open after an analysis are judged again with one more seed, if the budget allows it.
        """
        cases, took, interims = self.possible(), 0.0, self.session.interims
        self._began = start = self._began or time.monotonic()
        with self.runner:
            for place, seeds in enumerate(interims):
                if place and not (cases and self._affords(cases, seeds[-1], took)):
                    break
                still_open = []
                for case, result in self._analysis(cases, seeds):
                    if self.baseline is not None and isinstance(result, Verdict):
                        self.baseline.check(result.data)
                    self._latest[str(case)] = result
                    if isinstance(result, Verdict) and result.open and place < len(interims) - 1:
                        still_open.append(case)
                    else:
                        self._final.add(str(case))
                    yield case, result
                cases, took, start = still_open, time.monotonic() - start, time.monotonic()

    def _analysis(self, cases: Sequence[Case], seeds: Sequence[int]) -> Iterator[tuple[Case, Verdict | Skipped]]:
        """Judge cases, and yield their results: cases that do not apply first, then those with stored measurements."""
        refused = {str(case): answer for case in cases if isinstance(answer := self.answers[str(case)], NotApplicable)}
        eligible = [case for case in cases if str(case) not in refused]
        ready, waiting = self._divided or self.runner.split(eligible, seeds)  # errors come before any verdict
        for case in cases:
            if str(case) in refused:
                yield case, Verdict.because(case, "not applicable", refused[str(case)].cause)
        prepared, self._divided = self._divided is not None or not waiting, None
        for place, case in enumerate([*ready, *waiting]):
            if place == len(ready) and not prepared:
                self.runner.prepare(waiting, seeds)
            result = attempt(case, partial(self.session.judge_case, case, seeds))
            if isinstance(result, Verdict):
                self.runner.tell(result)
            yield case, result

    def _affords(self, cases: Sequence[Case], seed: int, took: float) -> bool:
        """Return whether enough time is left for another seed, assuming that it takes as long as the last seed."""
        budget = self.session.budget
        if budget is None or self._began is None:
            return True
        left = budget - (time.monotonic() - self._began)
        if took <= left or self.runner.is_stored(cases, seed):
            return True
        names = ", ".join(map(str, cases[:3])) + (f" and {len(cases) - 3} more" if len(cases) > 3 else "")
        log.info(
            f"not adding seed {seed} for {names}: the last seed took {in_time(took)}, and only "
            f"{in_time(max(0.0, left))} of the budget is left"
        )
        return False

    def result(self, case: Case) -> Verdict | Skipped:
        """Return the final result of a case. The cases that come before it in `results` are judged first."""
        if not isinstance(answer := self.answers[str(case)], Eligible):
            return answer if isinstance(answer, Skipped) else Verdict.because(case, "not applicable", answer.cause)
        while str(case) not in self._final:
            if self.ended is not None:
                raise self.ended
            try:
                if next(self._judging, None) is None:
                    break
            except BaseException as error:
                self.ended = error
                raise
        return self._latest[str(case)]

    def judge(self, tell: Callable[[str], object] = print) -> None:
        """Judge all cases, and `tell` about skipped ones. An error that ends the run early is stored in `ended`."""
        try:
            for case, result in self._judging:
                if isinstance(result, Skipped):
                    tell(skipped([str(case)], result.reason))
        except (UserError, KeyboardInterrupt) as error:  # the verdicts so far are shown and written
            self.ended = error

    def save(self, folder: Path) -> Path:
        """Write a record of the measurements behind the verdicts to a folder, and return the path of the record."""
        judged = [verdict for verdict in self.verdicts if verdict.outcome]
        unmeasured = [verdict for verdict in judged if verdict.outcome == "not applicable" and not verdict.inputs]
        record = RecordedRun.model_validate(
            {
                "model": self.model,
                "seeds": self.session.wanted_seeds,
                "cases": [str(verdict.case) for verdict in judged],
                "not_applicable": {str(each.case): _recorded_cause(each.cause) for each in unmeasured if each.cause},
                "commits": self.session.commits,
            }
        )
        return write_record(folder, record, [each for verdict in self.verdicts for each in verdict.inputs])

    @property
    def verdicts(self) -> list[Verdict]:
        """The latest verdict on each case that was judged."""
        results = (self._latest.get(str(case)) for case in self.asked)
        return [result for result in results if isinstance(result, Verdict)]

    @property
    def note(self) -> str:
        """A note on how many claims were judged before the run ended early; empty if the run is complete."""
        if self.ended is None:
            return ""
        why = "it was interrupted" if isinstance(self.ended, KeyboardInterrupt) else str(self.ended)
        return f"{len(self.verdicts)} of {len(self.possible())} claims were judged before the run ended ({why})"

    @property
    def undecided(self) -> list[str]:
        """The names of the requested cases that have no verdict, or whose outcome is "inconclusive"."""
        outcomes = {str(verdict.case): verdict.outcome for verdict in self.verdicts}
        return [name for name in map(str, self.asked) if outcomes.get(name, "inconclusive") == "inconclusive"]

    def fails(self, verdict: Verdict, *, strict: bool = False) -> bool:
        """Return whether a verdict fails the run.

        A failing verdict fails the run if it is worse than the accepted verdict on its case. If no verdict was
        accepted, it fails the run if it is unexpected. Claims beyond K19 then count only if `strict` is set.
        """
        if verdict.outcome not in FAILURES:
            return False
        accepted = None if self.baseline is None else self.baseline.accepts(verdict.data)
        if accepted is not None:
            return not accepted
        if verdict.case.claim.beyond_k19 and not strict:
            return False
        return verdict.outcome == "degenerate" or verdict.limited or verdict.case.known_deviation(self.model) is None

    def exit_code(self, *, strict: bool = False) -> int:
        """Return 1 if a verdict fails the run, otherwise 0.

        Deviations are counted without correction for multiple testing, so that the outcome of a benchmark does not
        depend on which other claims were requested. If `strict` is set, undecided claims and claims beyond K19 count,
        too.
        """
        errors = [verdict for verdict in self.verdicts if verdict.outcome is None]
        bugs = [verdict.error for verdict in errors if not isinstance(verdict.error, UserError)]
        if failure := self.ended or next(iter(bugs), None):
            raise failure
        if errors:
            names = ", ".join(str(verdict.case) for verdict in errors[:5])
            more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
            of = f"{len(errors)} of {len(self.possible())} claims"
            raise UserError(f"{of} could not be measured ({names}{more}): {errors[0].reason}")
        return int(any(self.fails(each, strict=strict) for each in self.verdicts) or (strict and bool(self.undecided)))
