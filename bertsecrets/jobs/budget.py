"""The time in which seeds are added: whether the next one fits, by the planner's estimate."""

import time
from collections.abc import Callable, Sequence

from bertsecrets.claims.looks import judge_in_looks
from bertsecrets.claims.plan import Bench, measure_case
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case
from bertsecrets.jobs.estimates import Estimate, estimate, total_seconds
from bertsecrets.jobs.plan import plan_for
from bertsecrets.progress import in_time
from bertsecrets.session import Session


class Budget:
    """What is left of a session's budget, which begins to run now."""

    def __init__(
        self,
        session: Session,
        first: Sequence[Case] = (),
        *,
        at_once: int = 1,
        tell: Callable[[str], None] = lambda line: None,
    ):
        """
        Args:
            first: cases whose first seed must be made in that time, too.
            at_once: jobs at a time.
            tell: is given a line where the budget ends the adding of seeds.
        """
        self.session, self.first, self.at_once, self.tell = session, first, at_once, tell
        self.began = time.monotonic()

    @property
    def left(self) -> float:
        """The seconds that are left; infinite where no budget is set."""
        return float("inf") if self.session.budget is None else self.session.budget - (time.monotonic() - self.began)

    def affords(self, cases: Sequence[Case], seed: int) -> bool:
        """Return whether everything that some cases need on a further seed can be made in the time that is left.

        First seeds of a kind of job that is not on record yet count as nothing.
        """
        if self.session.budget is None:
            return True
        model = self.session.model
        plan = plan_for(self.session, self.first, model, [1]) | plan_for(self.session, cases, model, [seed])
        needed = sum(one.seconds or 0 for one in estimate(self.session, plan))
        left = self.left
        if needed == 0 or needed / self.at_once <= left:  # what is stored costs nothing
            return True
        names = ", ".join(map(str, cases[:3])) + (f" and {len(cases) - 3} more" if len(cases) > 3 else "")
        takes = in_time(needed / self.at_once)
        self.tell(f"not adding seed {seed} for {names}: it needs about {takes}, {in_time(max(0.0, left))} are left")
        return False


def measure_while_open(bench: Bench, case: Case, budget: Budget) -> list[dict[str, Needed]]:
    """Return, per seed, the measurements that a claim needs: on the session's seeds, or on as many as are added.

    They are added one by one until the claim is decided or the budget is spent.

    Raises:
        UserError: something that is needed is missing, or cannot be made.
    """
    session = budget.session
    *before, last = session.looks
    for seeds in before:
        measured = measure_case(bench, case, session.model, seeds)
        verdict = judge_in_looks(case, measured, session.settings.judge, first=len(seeds))
        if not verdict.open or not budget.affords([case], len(seeds) + 1):
            return measured
    return measure_case(bench, case, session.model, last)


def within(estimates: Sequence[Estimate], budget: float | None, at_once: int) -> list[Estimate]:
    """Return the estimates of the first seeds of a plan, as many as a budget affords if no claim is decided early."""
    seeds = sorted({one.request.subject.seed for one in estimates})
    chosen = list(estimates)
    while len(seeds) > 1 and budget is not None:
        needed = total_seconds(chosen)
        if needed is not None and needed / at_once <= budget:
            break
        seeds.pop()
        chosen = [one for one in estimates if one.request.subject.seed in seeds]
    return chosen
