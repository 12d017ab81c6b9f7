"""Multiple testing: false alarms, deviations that remain after correction, and joint verdicts on several tasks.

At 95% confidence, a claim whose true value is exactly at its limit deviates by chance in at most one run in twenty. The
sum of these rates over the claims of a run bounds the expected number of false alarms.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bertsecrets.claims.loading import load_claims
from bertsecrets.claims.schema import Claim
from bertsecrets.claims.verdict import Verdict
from bertsecrets.formats import FAILURES, OverTasksData, TogetherData
from bertsecrets.texts.published import SEVEN_TASKS
from bertsecrets.texts.tasks import TASKS


def multiple_testing(verdicts: Iterable[Verdict], confidence: float) -> TogetherData:
    """Control the false discovery rate among a model's deviations in a run (Benjamini and Hochberg 1995).

    The procedure is valid under independence or positive dependence. The claims of a run share model, seeds and
    examples, so their errors tend to be positively dependent. A correction for arbitrary dependence (Benjamini and
    Yekutieli 2001) would require p-values that are about six times smaller.
    """
    from scipy.stats import false_discovery_control

    rate = 1 - confidence
    judged = [verdict for verdict in verdicts if verdict.counted and verdict.p_against is not None]
    adjusted = false_discovery_control([verdict.p_against for verdict in judged]) if judged else np.zeros(0)
    tested = zip(judged, adjusted, strict=True)
    failed = [(str(verdict.case), p <= rate) for verdict, p in tested if verdict.outcome in FAILURES]
    return TogetherData(
        judged=len(judged),
        false_alarms=round(len(judged) * rate, 2),
        false_discovery_rate=round(rate, 6),
        surviving=[name for name, survives in failed if survives],
        not_surviving=[name for name, survives in failed if not survives],
    )


# ---------------------------------------------------------------------- over tasks


def over_tasks(verdicts: Sequence[Verdict], confidence: float) -> list[OverTasksData]:
    """Return a joint verdict for each claim about several tasks, if the claim was judged on at least two tasks."""
    claims = {verdict.case.claim.name: verdict.case.claim for verdict in verdicts}
    several = (claim for claim in claims.values() if claim.over_tasks)
    return [joint for claim in several if (joint := _over_tasks(claim, verdicts, confidence))]


def _over_tasks(claim: Claim, verdicts: Sequence[Verdict], confidence: float) -> OverTasksData | None:
    """Return the verdict on a claim about several tasks together; None if it was judged on fewer than two tasks."""
    exception = next((other for other in load_claims() if other.name == f"{claim.name}-not"), None)
    names = {claim.name, exception.name if exception else claim.name}
    own = [v for v in verdicts if v.case.claim.name in names and v.case.task in v.case.claim.tasks]  # not user tasks
    p_for = [verdict.p_for for verdict in own if verdict.p_for is not None]
    p_against = [verdict.p_against for verdict in own if verdict.p_against is not None]
    if len(p_for) < 2:
        return None
    rate, tasks = 1 - confidence, len(claim.tasks) + (len(exception.tasks) if exception else 0)
    enough = tasks if claim.over_tasks == "all" else tasks // 2 + 1
    reproduced, deviates = at_least(p_for, enough), at_least(p_against, tasks - enough + 1)
    return OverTasksData(
        claim=claim.name,
        speaks_of=_words(claim, exception),
        tasks=tasks,
        judged=len(p_for),
        holds_on_at_least=_count(p_for, rate),
        fails_on_at_least=_count(p_against, rate),
        verdict="deviates" if deviates <= rate else "reproduced" if reproduced <= rate else "inconclusive",
        p_for=reproduced,
        p_against=deviates,
    )


def at_least(p_values: Sequence[float], tasks: int) -> float:
    """Return the p-value for an effect on at least `tasks` tasks, computed from one p-value per judged task.

    This is a partial conjunction test (Benjamini and Heller 2008) with the rule of Simes, which is valid if the tasks'
    p-values are independent or positively dependent. If exactly `tasks` tasks were judged, the result is their largest
    p-value. If fewer were judged, the result is 1.

    >>> [at_least([0.01, 0.001, 0.5], tasks) for tasks in (1, 2, 3, 4)]
    [0.003, 0.02, 0.5, 1.0]
    """
    rest = np.sort(p_values)[tasks - 1 :]
    return float(min(len(rest) / np.arange(1, len(rest) + 1) * rest, default=1.0))


def _count(p_values: Sequence[float], rate: float) -> int:
    """Return a lower bound on the number of tasks with an effect: test at least 1, then at least 2, and so on."""
    counts = range(1, len(p_values) + 1)
    return next((tasks - 1 for tasks in counts if at_least(p_values, tasks) > rate), len(p_values))


def _words(claim: Claim, exception: Claim | None) -> str:
    """Return a phrase for the tasks that a claim is about."""
    if claim.over_tasks == "most":
        return "most tasks"
    names = [*claim.tasks, *(exception.tasks if exception else ())]
    whole = len(names) == len(SEVEN_TASKS)
    every = "every task" if whole else f"all of {_listed(claim.tasks)}"
    return f"{every} but {_listed(exception.tasks)}" if exception and whole else every


def _listed(names: Iterable[str]) -> str:
    titles = [TASKS[name].title for name in names]
    return " and ".join(filter(None, (", ".join(titles[:-1]), titles[-1])))
