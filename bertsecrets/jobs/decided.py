"""Which claims a budget decides: the cost of jobs against the chance that seeds decide a claim (`claims.prospects`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bertsecrets.claims.prospects import Prospect
from bertsecrets.types import Request


@dataclass(frozen=True)
class Choice:
    """A claim that a budget decides with this chance, by so many seeds.

    `seconds` are those of the jobs that no claim before it needs.
    """

    case: str
    seeds: int
    chance: float
    seconds: float


def decided_within(
    budget: float,
    prospects: Mapping[str, Prospect],
    needs: Callable[[str, int], frozenset[Request]],
    seconds: Mapping[Request, float | None],
    at_once: int = 1,
) -> list[Choice]:
    """Return the claims to judge within a budget, those first that gain the most certainty per second.

    Jobs that several claims need are paid once. Claims whose jobs take an unknown time are left out.

    Args:
        prospects: by case.
        needs: returns the jobs of a case for one seed.
        seconds: of each job; None if unknown.
        at_once: jobs at a time.
    """
    left, paid, reached = budget * at_once, set[Request](), dict.fromkeys(prospects, 0)
    spent = dict.fromkeys(prospects, 0.0)
    while True:
        offers = []
        for case, seeds in reached.items():
            before = prospects[case].decided_by[seeds - 1] if seeds else 0.0
            jobs: set[Request] = set()
            for count in range(seeds + 1, len(prospects[case].decided_by) + 1):
                jobs |= needs(case, count) - paid
                cost = _total(jobs, seconds)
                if cost is None or cost > left:
                    break
                gain = prospects[case].decided_by[count - 1] - before
                if gain > 0:
                    offers.append((gain / (cost + 1e-9), case, count, cost, frozenset(jobs)))
        if not offers:
            break
        _, case, count, cost, jobs_of_offer = max(offers, key=lambda offer: offer[0])
        paid |= jobs_of_offer
        left -= cost
        reached[case], spent[case] = count, spent[case] + cost
    chosen = [case for case, count in reached.items() if count]
    return [Choice(case, reached[case], prospects[case].decided_by[reached[case] - 1], spent[case]) for case in chosen]


def _total(jobs: set[Request], seconds: Mapping[Request, float | None]) -> float | None:
    costs = [seconds.get(job) for job in jobs]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def expected(choices: Sequence[Choice]) -> float:
    """Return how many claims are decided on average."""
    return sum(choice.chance for choice in choices)
