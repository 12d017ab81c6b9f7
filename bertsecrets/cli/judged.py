"""The verdicts of one run: judging claim by claim, and what the run's outcome is where one of them fails."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bertsecrets.cli.crash import in_short, of_the_machine
from bertsecrets.cli.notices import tell
from bertsecrets.errors import MissingError, UserError

if TYPE_CHECKING:
    from bertsecrets.claims.plan import Bench
    from bertsecrets.claims.schema import Case
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.report.viewer import Examples
    from bertsecrets.session import Session


@dataclass
class Judged:
    """What became of the claims of one report, and what ended it early.

    Args:
        cases: those that can be measured.
        asked: all that were asked for, of tasks that have data.
        tell: is given a line on each verdict as soon as there is one.
        examples: for the attention viewer of the page.
    """

    model: str
    cases: Sequence["Case"]
    asked: Sequence["Case"] = ()
    verdicts: list["Verdict"] = field(default_factory=list)
    ended: BaseException | None = None
    crash: Exception | None = None
    tell: Callable[[str], None] | None = None
    examples: "Examples | None" = None

    def run(self, judge: Callable[["Case"], "Verdict"], cases: Sequence["Case"]) -> None:
        """Judge cases, all or some of them once more; one that fails does not take the others with it."""
        from bertsecrets.claims.plan import attempt, failed

        try:
            for case in cases:
                try:
                    self._keep(attempt(case, partial(judge, case)))
                except MissingError as error:
                    print(f"1 claim skipped ({case}): {error}")
                except UserError:
                    raise
                except Exception as error:
                    line = of_the_machine(error)
                    self.crash = self.crash or (error if line is None else None)
                    self._keep(failed(case, line or in_short(error)))
        except (UserError, KeyboardInterrupt) as error:
            self.ended = error

    def _keep(self, verdict: "Verdict") -> None:
        """Keep a verdict, instead of an earlier one on the same case; all are in the order of the cases."""
        from bertsecrets.report.terminal import verdict_line

        if self.tell is not None:
            self.tell(verdict_line(verdict))
        places = {str(case): place for place, case in enumerate(self.cases)}
        others = [one for one in self.verdicts if str(one.case) != str(verdict.case)]
        self.verdicts = sorted([*others, verdict], key=lambda one: places[str(one.case)])

    @property
    def note(self) -> str:
        """What is missing, in words; empty if every claim had its turn."""
        if self.ended is None:
            return ""
        why = "it was interrupted" if isinstance(self.ended, KeyboardInterrupt) else str(self.ended)
        return f"{len(self.verdicts)} of {len(self.cases)} claims were judged before the run ended ({why})"

    @property
    def undecided(self) -> list[str]:
        """The claims that were asked for and neither hold nor fail, though the model can have them."""
        outcomes = {str(verdict.case): verdict.outcome for verdict in self.verdicts}
        names = [str(case) for case in self.asked or self.cases]
        return [name for name in names if outcomes.get(name, "inconclusive") == "inconclusive"]

    def exit_code(self, *, strict: bool = False) -> int:
        """Return 1 if a claim deviates that was not known to, otherwise 0.

        A deviation counts even if it does not survive that many claims were judged: the code is that of the benchmarks,
        which are judged one by one, and must not depend on what else was asked for.

        Args:
            strict: return 1 also if a claim that was asked for is undecided.

        Raises:
            BaseException: what ended the run early, or the first bug.
            UserError: a claim could not be measured.
        """
        failure = self.ended or self.crash
        if failure is not None:
            raise failure
        errors = [verdict for verdict in self.verdicts if verdict.outcome is None]
        if errors:
            names = ", ".join(str(verdict.case) for verdict in errors[:5])
            more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
            raise UserError(
                f"{len(errors)} of {len(self.cases)} claims could not be measured ({names}{more}): {errors[0].reason}"
            )
        from bertsecrets.formats import FAILURES

        failing = [verdict for verdict in self.verdicts if verdict.outcome in FAILURES]
        unexpected = any(
            verdict.outcome == "degenerate" or verdict.case.known_deviation(self.model) is None for verdict in failing
        )
        return int(unexpected or (strict and bool(self.undecided)))


def judged_by(
    session: "Session",
    possible: Sequence["Case"],
    bench: "Callable[[Sequence[Case], Sequence[int]], Bench]",
    jobs: int = 1,
    asked: Sequence["Case"] = (),
    trained_at_once: int | None = 1,
) -> Judged:
    """Return the verdicts on cases; a session that adds seeds adds them for the cases that are still open.

    Claims for which nothing has to be made come first. Where anything has, each verdict is told as soon as it is there.

    Args:
        bench: makes what cases need on some seeds, and returns the source of it.
        jobs: at a time.
        asked: the cases that were asked for, also those that cannot be judged.
        trained_at_once: checkpoints that are whole at a time where not all are kept; None for all.

    Raises:
        UserError: the disk is too small, or what cases need cannot be made.
    """
    from bertsecrets.claims.plan import measure_case
    from bertsecrets.jobs.budget import Budget
    from bertsecrets.jobs.disk import announce
    from bertsecrets.jobs.prepare import stored_first

    judged, chosen = Judged(session.model, possible, asked), possible
    budget = Budget(session, at_once=jobs, tell=tell)

    def look(seeds: Sequence[int]) -> None:
        def judge(source: "Bench", case: "Case") -> "Verdict":
            measured = measure_case(source, case, session.model, seeds)
            return session.verdict(case, measured, first=len(seeds))

        own = session.options.checkpoint is not None
        ready, waiting = ([], list(chosen)) if own else stored_first(session, chosen, seeds)
        judged.tell = tell if waiting else judged.tell
        judged.run(partial(judge, session), ready)
        if not waiting or judged.ended is not None:
            return
        if not own:
            announce(session, waiting, seeds, at_once=trained_at_once, tell=tell)
        judged.run(partial(judge, bench(waiting, seeds)), waiting)

    look(session.looks[0])
    try:
        for seeds in session.looks[1:]:
            chosen = [verdict.case for verdict in judged.verdicts if verdict.open]
            if judged.ended is not None or not chosen or not budget.affords(chosen, seeds[-1]):
                break
            look(seeds)
    except (UserError, KeyboardInterrupt) as error:  # what is judged so far is shown and written
        judged.ended = error
    if judged.ended is None:
        session.close()
    return judged


def add_examples(options: argparse.Namespace, session: "Session", judged: Judged) -> None:
    """Measure what the page's attention viewer shows, if a page is asked for and the run has not ended early."""
    if not options.html or not options.examples or judged.ended is not None:
        return
    from bertsecrets.report.viewer import Examples, subjects_shown

    try:
        judged.examples = Examples(*session.example_maps(subjects_shown(judged.verdicts)), options.examples)
    except KeyboardInterrupt as error:  # what is judged is shown and written
        judged.ended = error
