"""From a claim to its verdict: which measurements it needs, for every seed, and what they say."""

from collections.abc import Iterable, Iterator, Sequence

from bertsecrets.claims import Case
from bertsecrets.core import Measurement, Subject
from bertsecrets.judging import Verdict, judge
from bertsecrets.quantities import QUANTITIES
from bertsecrets.workbench import Workbench


def measure_case(bench: Workbench, case: Case, model: str, seeds: Sequence[int]) -> list[list[Measurement]]:
    """The measurements a claim needs on a task: per seed, in the order of its quantity's `needs`.

    A subject on which no step is taken has the same attention whatever the seed, but not the same classifier, so
    every seed has its own.
    """
    claim = case.claim
    assert claim.quantity is not None
    found = []
    for seed in seeds:
        row = []
        for measure, whose in QUANTITIES[claim.quantity].needs:
            initialisation = claim.initialisation if whose == "own" else claim.against
            assert initialisation is not None
            options = claim.options if measure == claim.measure else {}
            row.append(bench.measurement(measure, Subject(model, case.task, initialisation, seed), **options))
        found.append(row)
    return found


def verdict(bench: Workbench, case: Case, model: str, seeds: Sequence[int]) -> Verdict:
    """Measure what a claim needs, or take it from the store, and judge it."""
    return judge(case, measure_case(bench, case, model, seeds), bench.settings.judge)


def verdicts(bench: Workbench, cases: Iterable[Case], model: str, seeds: Sequence[int]) -> Iterator[Verdict]:
    """One verdict per case, in order."""
    for case in cases:
        yield verdict(bench, case, model, seeds)
