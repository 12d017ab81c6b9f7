"""From a claim to its verdict: which measurements it needs, for every seed, and what they say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bertsecrets.claims.judge import Verdict, judge
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.schema import Case
from bertsecrets.errors import MissingError, UserError
from bertsecrets.measures import seedless
from bertsecrets.settings import params
from bertsecrets.store.measurements import load
from bertsecrets.types import Initialisation, Measurement, Subject


@runtime_checkable
class Bench(Protocol):
    """What hands out measurements: a workbench that makes them, or a shelf that has them."""

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """A subject's measurement."""
        ...

    def missing(self, measure: str, task_name: str) -> str | None:
        """Why there can be no such measurement on a task; None where there can."""
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

    def missing(self, measure: str, task_name: str) -> str | None:
        """Which measure of which task was not kept; None where one was."""
        there = any((found.measure, found.subject.task) == (measure, task_name) for found in self.kept)
        return None if there else f"no measurement {measure} of {task_name} was kept"

    def seeds(self) -> dict[str, list[int]]:
        """The models that were measured, each with its seeds."""
        found = sorted({(kept.subject.model, kept.subject.seed) for kept in self.kept})
        return {model: [seed for _, seed in pairs] for model, pairs in groupby(found, itemgetter(0))}

    def plan(self, cases: Iterable[Case], model: str, seeds: Sequence[int] | None) -> list[tuple[Case, Sequence[int]]]:
        """The cases of which everything was kept for these seeds; without any named, for which seeds it was."""
        if seeds is not None:
            return [(case, seeds) for case in cases if self.has(case, model, seeds)]
        every = self.seeds().get(model, [])
        found = [(case, [seed for seed in every if self.has(case, model, [seed])]) for case in cases]
        return [(case, own) for case, own in found if own]

    def has(self, case: Case, model: str, seeds: Sequence[int]) -> bool:
        """Whether everything that a case needs is there."""
        try:
            measure_case(self, case, model, seeds)
        except UserError:
            return False
        return True


@dataclass(frozen=True)
class Wanted:
    """One measurement that a case needs, but for model and seed."""

    measure: str
    task: str
    initialisation: Initialisation
    options: dict[str, Any]


def plan(bench: Bench, case: Case) -> list[Wanted]:
    """The measurements that a case needs, in the order of its quantity's `needs` and, of each, of its tasks.

    Raises:
        MissingError: the data or tools of one that cannot be left out are not there.
    """
    claim = case.claim
    assert claim.quantity is not None
    found = []
    for need in QUANTITIES[claim.quantity].needs:
        initialisation: Initialisation | None
        if need.whose == "own":
            initialisation = claim.initialisation
        elif need.whose == "against":
            initialisation = claim.against
        else:
            initialisation = need.whose
        assert initialisation is not None
        options = {**(claim.options if need.measure == claim.measure else {}), **need.options}
        names = need.tasks or (case.task,)
        problems = {name: bench.missing(need.measure, name) for name in names}
        there = [name for name, problem in problems.items() if problem is None]
        if len(there) < (need.least or len(names)):
            first = next(problem for problem in problems.values() if problem is not None)
            raise MissingError(first if not need.least else f"fewer than {need.least} tasks have data: {first}")
        found += [Wanted(need.measure, name, initialisation, options) for name in there]
    return found


def missing(bench: Bench, case: Case) -> str | None:
    """Why a case cannot be measured here; None where it can."""
    try:
        plan(bench, case)
    except MissingError as error:
        return str(error)
    return None


def measure_case(bench: Bench, case: Case, model: str, seeds: Sequence[int]) -> list[list[Measurement]]:
    """The measurements a claim needs on a task: per seed, in the order of `plan`.

    A subject on which no step is taken has the same attention whatever the seed, but not the same classifier, so
    every seed has its own. The bare encoder has no seed at all: it is measured once, as seed 1.

    Raises:
        UserError: something that is needed is not there, or cannot be made.
    """
    wanted = plan(bench, case)
    if all(seedless(each.measure) for each in wanted):
        seeds = [1]
    return [
        [
            bench.measurement(
                each.measure,
                Subject(model, each.task, each.initialisation, 1 if seedless(each.measure) else seed),
                **each.options,
            )
            for each in wanted
        ]
        for seed in seeds
    ]


def verdict(bench: Bench, case: Case, model: str, seeds: Sequence[int]) -> Verdict:
    """Measure what a claim needs, or take it from the store, and judge it."""
    return judge(case, measure_case(bench, case, model, seeds), params().judge)
