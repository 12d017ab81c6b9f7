"""Choose claims within a budget: trade the cost of jobs against the chance of a decision (`claims.prospects`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bertsecrets.claims.prospects import Prospect
from bertsecrets.types import Request


@dataclass(frozen=True)
class Affordable:
    """A claim to judge, with its number of seeds and the chance of a decision.

    `seconds` excludes jobs that an earlier claim already needs.
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
) -> list[Affordable]:
    """Choose the claims to judge within a budget, greedily by the gain in chance of a decision per second.

    Jobs shared by several claims are counted once. Claims with jobs of unknown duration are excluded.

    Args:
        prospects: Prospects by case.
        needs: Function that returns the jobs of a case for one seed.
        seconds: Estimated seconds of each job. None if unknown.
        at_once: Number of parallel jobs.
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
    return [
        Affordable(case, reached[case], prospects[case].decided_by[reached[case] - 1], spent[case]) for case in chosen
    ]


def _total(jobs: set[Request], seconds: Mapping[Request, float | None]) -> float | None:
    costs = [seconds.get(job) for job in jobs]
    return None if None in costs else sum(cost for cost in costs if cost is not None)
