"""The judging loop shared by the command line, the pytest plugin and the Python API.

Cases are judged at each interim analysis, and seeds are added as long as they could decide a case. An error in one case
does not end the run.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import (
    MissingError,
    NotApplicableError,
    RunError,
    UserError,
    in_short,
    of_the_machine,
    one_line,
)
from bertsecrets.formats import FAILURES
from bertsecrets.progress import in_time, log
from bertsecrets.types import as_chart

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Skipped:
    """A case that cannot be judged because data or a tool is missing."""

    case: Case
    reason: str


def skipped(names: Sequence[str], reason: str) -> str:
    """Return a line about claims that are skipped for the same reason."""
    return f"{len(names)} claim{'' if len(names) == 1 else 's'} skipped ({', '.join(names)}): {reason}"


Result = TypeVar("Result", bound=Verdict | Skipped)
CanAfford = Callable[[Sequence[Case], int, float], bool]


def attempt(case: Case, judge: Callable[[], Verdict]) -> Verdict | Skipped:
    """Return the verdict on a case, or `Skipped` if data or a tool is missing.

    If the model does not have the quantity, the outcome is "not applicable". Any other error, including a bug, results
    in a verdict without an outcome (see `Verdict.error`).

    Raises:
        RunError: If the error affects every case.
    """
    try:
        return judge()
    except RunError:
        raise
    except MissingError as error:
        return Skipped(case, str(error))
    except NotApplicableError as error:
        return Verdict(case, "not applicable", str(error))
    except UserError as error:
        return failed(case, error)
    except Exception as error:
        line = of_the_machine(error)
        return failed(case, error if line is None else UserError(line))


def failed(case: Case, error: Exception) -> Verdict:
    """Return a verdict without an outcome for a case that could not be measured."""
    reason = str(error) if isinstance(error, UserError) else in_short(error)
    return Verdict(case, None, one_line(reason), error=error)


class Analyses:
    """The interim analyses of some cases: yields the open cases with their seeds, and takes their results by `add`.

    Seeds are added as long as a case is open and the budget allows another one.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        interims: Sequence[Sequence[int]],
        can_afford: CanAfford,
    ):
        """
        Args:
            interims: Seeds of each interim analysis.
            can_afford: Function that returns whether the budget allows another seed, as `SeedBudget.affords`.
        """
        self.open, self.interims, self.can_afford = list(cases), interims, can_afford

    def __iter__(self) -> Iterator[tuple[list[Case], Sequence[int]]]:
        took = 0.0
        for place, seeds in enumerate(self.interims):
            cases, self.open = self.open, []
            if place and not (cases and self.can_afford(cases, seeds[-1], took)):
                return
            began = time.monotonic()
            yield cases, seeds
            took = time.monotonic() - began

    def add(self, result: Result) -> Result:
        """Add the result of a case in the current analysis, and return it."""
        if isinstance(result, Verdict) and result.open:
            self.open.append(result.case)
        return result


class Verdicts(list[Verdict]):
    """Verdicts on several claims."""

    def __repr__(self) -> str:
        counts = Counter(verdict.status for verdict in self)
        outcomes = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
        return f"<Verdicts: {outcomes}>"

    def plot(self) -> Any:
        """Return an Altair chart of the outcomes, by claim and task, with the observed values on hover.

        Raises:
            MissingError: The extra `report` is not installed.
        """
        return as_chart(self)

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per verdict, with the scalar fields of the JSON report and the endpoints of the interval."""
        import pandas as pd

        rows = []
        for verdict in self:
            low, high = verdict.interval or (None, None)
            fields = verdict.data.model_dump()
            rows.append(
                {
                    **{name: value for name, value in fields.items() if not isinstance(value, dict | list | tuple)},
                    "low": low,
                    "high": high,
                }
            )
        return pd.DataFrame(rows)

    def _repr_html_(self) -> str:
        columns = ["id", "verdict", "observed", "low", "high", "published", "unit", "reason"]
        return str(self.to_frame()[columns].to_html(index=False)) if self else "no verdicts"


class SeedBudget:
    """A time budget for adding seeds. The clock starts when it is created."""

    def __init__(
        self, seconds: float | None, is_stored: Callable[[Sequence[Case], int], bool] = lambda cases, seed: False
    ):
        """
        Args:
            seconds: Length of the budget. If None, it is unlimited.
            is_stored: Function that returns whether a seed of some cases is stored, so that it costs nothing.
        """
        self.seconds, self.is_stored, self.began = seconds, is_stored, time.monotonic()

    def affords(self, cases: Sequence[Case], seed: int, took: float) -> bool:
        """Return whether another seed for some cases fits into the remaining time if it takes as long as the last one.

        Args:
            took: Seconds that the last seed took.
        """
        if self.seconds is None:
            return True
        left = self.seconds - (time.monotonic() - self.began)
        if took <= left or self.is_stored(cases, seed):
            return True
        names = ", ".join(map(str, cases[:3])) + (f" and {len(cases) - 3} more" if len(cases) > 3 else "")
        log.info(
            f"not adding seed {seed} for {names}: the last one took {in_time(took)}, and only "
            f"{in_time(max(0.0, left))} of the budget is left"
        )
        return False


@dataclass
class JudgedRun:
    """The verdicts of a run, and the error that ended it early, if any.

    Args:
        cases: Cases that can be measured.
        asked: All requested cases whose tasks have data.
        ended: Error that ended the run early, if any.
        examples: Examples for the attention viewer of the report (`report.viewer.Examples`).
    """

    model: str
    cases: Sequence[Case]
    asked: Sequence[Case] = ()
    verdicts: list[Verdict] = field(default_factory=list)
    ended: BaseException | None = None
    examples: Any = None

    def collect(self, results: Iterable[Verdict | Skipped], tell: Callable[[Verdict], None] | None = None) -> None:
        """Collect all results, or those before an error ends the run.

        Args:
            tell: Callback for each verdict.
        """
        places = {str(case): place for place, case in enumerate(self.cases)}
        try:
            for result in results:
                if isinstance(result, Skipped):
                    print(skipped([str(result.case)], result.reason))
                    continue
                if tell is not None:
                    tell(result)
                others = [verdict for verdict in self.verdicts if str(verdict.case) != str(result.case)]
                self.verdicts = sorted([*others, result], key=lambda verdict: places[str(verdict.case)])
        except (UserError, KeyboardInterrupt) as error:  # the verdicts so far are shown and written
            self.ended = error

    @property
    def note(self) -> str:
        """A note on the missing results; empty if every case was judged."""
        if self.ended is None:
            return ""
        why = "it was interrupted" if isinstance(self.ended, KeyboardInterrupt) else str(self.ended)
        return f"{len(self.verdicts)} of {len(self.cases)} claims were judged before the run ended ({why})"

    @property
    def undecided(self) -> list[str]:
        """The requested claims that are undecided, except those that do not apply to the model."""
        outcomes = {str(verdict.case): verdict.outcome for verdict in self.verdicts}
        names = [str(case) for case in self.asked or self.cases]
        return [name for name in names if outcomes.get(name, "inconclusive") == "inconclusive"]

    def exit_code(self, *, strict: bool = False) -> int:
        """Return 1 if a claim deviates unexpectedly, otherwise 0.

        Deviations are counted without correction for multiple testing, so that the outcome of a benchmark does not
        depend on which other claims were requested.

        Args:
            strict: Also return 1 if a requested claim is undecided.

        Raises:
            BaseException: If an error ended the run early, or a case failed because of a bug.
            UserError: If a claim could not be measured.
        """
        errors = [verdict for verdict in self.verdicts if verdict.outcome is None]
        bugs = [verdict.error for verdict in errors if not isinstance(verdict.error, UserError)]
        if failure := self.ended or next(iter(bugs), None):
            raise failure
        if errors:
            names = ", ".join(str(verdict.case) for verdict in errors[:5])
            more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
            raise UserError(
                f"{len(errors)} of {len(self.cases)} claims could not be measured ({names}{more}): {errors[0].reason}"
            )
        failing = [verdict for verdict in self.verdicts if verdict.outcome in FAILURES]
        unexpected = any(
            verdict.outcome == "degenerate" or verdict.limited or verdict.case.known_deviation(self.model) is None
            for verdict in failing
        )
        return int(unexpected or (strict and bool(self.undecided)))
