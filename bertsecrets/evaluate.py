"""From a claim to its verdict: which measurements it needs, for every seed, and what they say."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bertsecrets.claims import Case
from bertsecrets.core import Measurement, Subject, UserError
from bertsecrets.judging import Verdict, judge
from bertsecrets.kept import load
from bertsecrets.params import params
from bertsecrets.quantities import QUANTITIES


@runtime_checkable
class Bench(Protocol):
    """What hands out measurements: a workbench that makes them, or a shelf that has them."""

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """A subject's measurement."""
        ...


@dataclass(frozen=True)
class Shelf:
    """Measurements that were kept in folders (`measure --save`), to be judged where neither model nor data are."""

    kept: tuple[Measurement, ...]

    @classmethod
    def read(cls, folder: Path) -> "Shelf":
        """Every measurement below a folder.

        Raises:
            UserError: there is none, or one is damaged.
        """
        entries = sorted(path.parent for path in folder.rglob("measurement.json"))
        if not entries:
            raise UserError(f"no measurements below {folder}: `bertsecrets measure ... --save DIR` keeps them")
        return cls(tuple(replace(load(entry), reused=True) for entry in entries))

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """The kept measurement.

        Raises:
            UserError: it is not there.
        """
        for found in self.kept:
            if (found.measure, found.subject, found.options) == (measure, subject, options):
                return found
        raise UserError(f"no measurement {measure} of {subject} {options or ''} was kept")

    def has(self, case: Case, model: str, seeds: Sequence[int]) -> bool:
        """Whether everything that a case needs is there."""
        try:
            measure_case(self, case, model, seeds)
        except UserError:
            return False
        return True


def measure_case(bench: Bench, case: Case, model: str, seeds: Sequence[int]) -> list[list[Measurement]]:
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


def verdict(bench: Bench, case: Case, model: str, seeds: Sequence[int]) -> Verdict:
    """Measure what a claim needs, or take it from the store, and judge it."""
    return judge(case, measure_case(bench, case, model, seeds), params().judge)


def verdicts(bench: Bench, cases: Iterable[Case], model: str, seeds: Sequence[int]) -> Iterator[Verdict]:
    """One verdict per case, in order."""
    for case in cases:
        yield verdict(bench, case, model, seeds)
