"""The prospects of claims: how often each claim passes if the model is exactly as published.

The file `expected/as-published.json` contains the prospects. The file is generated from simulated models by `python -m
instruments calibrate --as-published`.
"""

from collections.abc import Iterable
from functools import cache
from math import sqrt
from pathlib import Path

from pydantic import ValidationError

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.figure import P20
from bertsecrets.claims.loading import claims_folder
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import ANALYSES
from bertsecrets.errors import UserError
from bertsecrets.formats import PASSES
from bertsecrets.reading import read_text
from bertsecrets.settings import Section, first_problem
from bertsecrets.texts.tasks import TASKS

PROSPECTS_FILE = "as-published.json"
PROSPECTS_BYTES = 2**22
WILSON_QUANTILE = 1.96  # of a normal distribution, for 95 % intervals
DECIDED_SHARE = 0.5  # a case is mostly decided if `auto` decides it in at least this fraction of worlds


class Prospect(Section):
    """A summary of the verdicts on a case in simulated worlds in which the model is exactly as published.

    `truth` is the true value of the quantity in these worlds, and `contradicted` is True if that value contradicts the
    claim. For each procedure (`auto`, `3` and `5` seeds), `outcomes` contains the proportion of worlds with each
    outcome. `seeds` is the mean number of seeds that `auto` uses. `examples` is the number of rows of the task. For an
    order, `examples_interval` is the interval that is due to the sampling of examples alone, averaged over worlds. If
    another case has the same value and verdict in every world, `duplicate_of` is the name of that case. `made` and
    `code` are the date of the simulation and a digest of its code. `definition` is `Case.definition`.
    """

    worlds: int
    truth: float | None
    contradicted: bool
    outcomes: dict[str, dict[str, float]]
    seeds: float
    examples: int | None = None
    examples_interval: tuple[float, float] | None = None
    duplicate_of: str | None = None
    made: str = ""
    code: str = ""
    definition: str = ""

    def share(self, *outcomes: str) -> float:
        """Return the proportion of worlds in which `auto` ends with one of the given outcomes."""
        return sum(self.outcomes["auto"].get(outcome, 0.0) for outcome in outcomes)

    def interval(self, outcomes: Iterable[str]) -> tuple[float, float]:
        """Return the 95% interval for the proportion of worlds in which `auto` ends with one of the given outcomes."""
        return wilson(round(self.worlds * self.share(*outcomes)), self.worlds)

    @property
    def mostly_decided(self) -> bool:
        """Whether `auto` reaches a decision in at least half of the worlds."""
        return self.share(*PASSES, "deviates") >= DECIDED_SHARE


class Prospects(Section):
    """The prospects of all cases, with the assumptions that the simulation makes about unpublished values."""

    assumptions: tuple[str, ...]
    cases: dict[str, Prospect]


@cache
def prospects() -> Prospects | None:
    """Return the prospects in the claims folder (see `read_prospects`)."""
    return read_prospects(claims_folder() / PROSPECTS_FILE)


def read_prospects(file: Path) -> Prospects | None:
    """Return the prospects of all cases; None if the file does not exist."""
    if not file.is_file():
        return None
    try:
        return Prospects.model_validate_json(read_text(file, PROSPECTS_BYTES))
    except ValidationError as error:
        remedy = "delete this file, and run python -m instruments calibrate --as-published"
        raise UserError(f"{file}: {first_problem(error)}: {remedy}") from error


def prospect(case: Case) -> Prospect | None:
    """Return the prospect of a case; None if the case was not simulated with its current definition."""
    known = prospects()
    recorded = None if known is None else known.cases.get(str(case))
    return recorded if recorded is not None and recorded.definition == case.definition else None


def advice(case: Case) -> str:
    """Return what would decide a case that usually stays open even if the model is as published; empty if unknown."""
    recorded = prospect(case)
    examples = examples_needed(case, recorded) if recorded else None
    if examples is None:
        return ""
    task, wanted, has = TASKS[case.task], f"more than {ANALYSES[-1]} seeds", "enough examples"
    if examples > task.dev_rows:
        wanted, has = f"about {float(f'{examples:.2g}'):,.0f} examples", f"{task.dev_rows:,}"
    return f"if the model is as published, {wanted} would be needed to decide the claim; {task.title} has {has}"


def examples_needed(case: Case, recorded: Prospect) -> float | None:
    """Return the number of examples that would decide an order if seeds did not differ; None if unknown or not needed.

    With more examples, the interval due to examples alone shrinks towards the true value.
    """
    ends, truth, expect = recorded.examples_interval, recorded.truth, case.claim.expect
    if recorded.mostly_decided or not isinstance(expect, Order) or case.task not in TASKS:
        return None
    if ends is None or truth is None or recorded.examples is None:
        return None
    distance = expect.sign * truth - expect.threshold(case)
    if distance == 0 or (distance < 0 and case.claim.existence):
        return None
    low, high = sorted(expect.sign * (end - truth) for end in ends)
    return recorded.examples * ((low if distance > 0 else high) / distance) ** 2


def prospect_text(case: Case) -> str:
    """Return a clause that says how often a case passes or deviates if the model is as published; empty if unknown."""
    recorded = prospect(case)
    if recorded is None or recorded.share("not applicable") == 1:
        return ""
    if recorded.contradicted:
        papers = "the assumptions of the simulation" if case.figure.published is None else "the paper's own figures"
        whose = f"{P20}'s figures" if case.claim.published == P20 else papers
        deviates = f"{whose} contradict this claim: if the model is as published, the claim deviates"
        return f"{deviates} in {_of_runs(recorded, ['deviates'])}"
    return f"if the model is as published, the claim is {case.claim.expect.passes} in {_of_runs(recorded, PASSES)}"


def _of_runs(recorded: Prospect, outcomes: Iterable[str]) -> str:
    """Return a phrase that gives the proportion of worlds with these outcomes and describes the simulation."""
    low, high = recorded.interval(outcomes)
    seeds = f"{recorded.seeds:.1f} seeds on average" if recorded.seeds > 1 else "one seed"
    rows = f", {recorded.examples:,} rows" if recorded.examples else ""
    share = f"{100 * recorded.share(*outcomes):.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
    return f"{share} of {recorded.worlds} simulated runs (auto, {seeds}{rows}; {PROSPECTS_FILE})"


def wilson(number: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a proportion (Wilson 1927).

    >>> [round(end, 3) for end in wilson(0, 40)], [round(end, 3) for end in wilson(100, 200)]
    ([0.0, 0.088], [0.431, 0.569])
    """
    square = WILSON_QUANTILE**2
    share, whole = number / trials, 1 + square / trials
    middle = (share + square / (2 * trials)) / whole
    half = WILSON_QUANTILE * sqrt(share * (1 - share) / trials + square / (4 * trials**2)) / whole
    return max(0.0, middle - half), min(1.0, middle + half)
