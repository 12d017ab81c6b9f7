"""How often a claim is reproduced if the model is exactly as published: `expected/as-published.json`.

`bertsecrets lab calibrate --as-published` makes that file by judging simulated models.
"""

from functools import cache

from pydantic import ValidationError

from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.reading import read_text
from bertsecrets.settings import Section, first_problem, project_path

FILE = "as-published.json"
LIMIT = 2**22  # bytes


class Prospect(Section):
    """The verdicts on a case in simulated worlds whose model is as published.

    `truth` is the claim's quantity there; `contradicted` says that it is on the wrong side. `outcomes` are shares of
    the worlds, by procedure (`auto`, `1` and `5` seeds); `seeds` is the mean number that auto uses, and `decided_by`
    the share that auto decides with at most 1, 2, ... seeds.
    """

    worlds: int
    truth: float | None
    contradicted: bool
    outcomes: dict[str, dict[str, float]]
    seeds: float
    decided_by: tuple[float, ...]

    def share(self, outcome: str, procedure: str = "auto") -> float:
        """Return the share of the worlds with an outcome."""
        return self.outcomes[procedure].get(outcome, 0.0)

    def decided(self, seeds: int, *, adds_seeds: bool) -> float | None:
        """Return the share of the worlds in which so many seeds decide; None if that was not simulated.

        Args:
            adds_seeds: as in auto, which may stop earlier.
        """
        if adds_seeds:
            return self.decided_by[min(seeds, len(self.decided_by)) - 1]
        found = self.outcomes.get(str(seeds))
        return None if found is None else sum(found.get(outcome, 0.0) for outcome in ("reproduced", "deviates"))


class Prospects(Section):
    """All cases, with the assumptions about what was not published, and what made the file when."""

    made: str
    code: str
    assumptions: tuple[str, ...]
    cases: dict[str, Prospect]


@cache
def prospects() -> Prospects | None:
    """Return the prospects of all cases; None without the file.

    Raises:
        UserError: the file is malformed.
    """
    file = project_path("expected") / FILE
    if not file.is_file():
        return None
    try:
        return Prospects.model_validate_json(read_text(file, LIMIT))
    except ValidationError as error:
        problem = first_problem(error)
        raise UserError(f"{file}: {problem}: make it with bertsecrets lab calibrate --as-published") from error


def prospect(case: Case) -> Prospect | None:
    """Return a case's prospect; None if it was not simulated."""
    found = prospects()
    return None if found is None else found.cases.get(str(case))


def prospect_text(case: Case) -> str:
    """Return how often a case is reproduced if the model is as published, as text; empty if that is not known."""
    found = prospect(case)
    if found is None or found.share("not applicable") == 1:
        return ""
    if found.contradicted:
        deviates = 100 * found.share("deviates")
        return f"the paper's own figures contradict this: as published, it deviates in {deviates:.0f} % of runs (auto)"
    seeds = f"{found.seeds:.1f} seeds on average" if found.seeds > 1 else "one seed"
    return (
        f"if the model is as published, this is reproduced in {100 * found.share('reproduced'):.0f} % of runs "
        f"(auto, {seeds}; {found.worlds} simulated)"
    )
