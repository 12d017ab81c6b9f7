"""The measurements that a claim needs for each seed, and whether they can be made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from bertsecrets.claims.eligibility import Eligibility, ModelFacts, Skipped, applicability
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import STATE, Need, Needed
from bertsecrets.claims.schema import Case
from bertsecrets.errors import MissingError
from bertsecrets.measures.base.ablation_measure import RemovalMeasure
from bertsecrets.measures.registry import get_measure
from bertsecrets.store.measurements import Shelf
from bertsecrets.types import InitialisationName, Measurement, Subject


@runtime_checkable
class Bench(Protocol):
    """A source of measurements: a session, which makes them, or a shelf, which contains stored ones."""

    def measurement(self, measure: str, subject: Subject, **options: Any) -> Measurement:
        """Return a subject's measurement."""

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return why the measure is unavailable on a task; None if it is available."""


@dataclass(frozen=True)
class RequiredMeasurement:
    """A measurement that a case needs for every model and seed. Its key in `Quantity.needs` is `need`."""

    need: str
    measure: str
    task: str
    initialisation: InitialisationName
    options: dict[str, Any]

    def subject(self, model: str, seed: int) -> Subject:
        """Return the subject to measure. Measures that do not depend on the seed use seed 1."""
        return Subject(model, self.task, self.initialisation, 1 if get_measure(self.measure).seedless else seed)


def required_measurements(bench: Bench, case: Case) -> list[RequiredMeasurement]:
    """Return the measurements that a case needs, ordered by need and then by task."""
    claim, required = case.claim, []
    for name, need in _needs(case).items():
        options = {**(claim.options if need.measure == claim.measure else {}), **need.options}
        initialisation = cast(InitialisationName, claim.initialisation_of(need))
        tasks = _tasks(bench, case, need)
        required += [RequiredMeasurement(name, need.measure, task, initialisation, options) for task in tasks]
    return required


def checkpoint_states(bench: Bench, case: Case) -> list[RequiredMeasurement]:
    """Return the scores that show whether a case's checkpoints collapsed; empty if the quantity does not need them."""
    if not QUANTITIES[case.claim.quantity].inherits:
        return []
    tuned = (each for each in required_measurements(bench, case) if each.initialisation == "pretrained")
    tasks = dict.fromkeys(each.task for each in tuned if get_measure(each.measure).on_task)
    measurable = [name for name in tasks if bench.missing("scores", name) is None]
    return [RequiredMeasurement(STATE, "scores", name, "pretrained", {}) for name in measurable]


def _needs(case: Case) -> Mapping[str, Need]:
    return QUANTITIES[case.claim.quantity].needs


def _tasks(bench: Bench, case: Case, need: Need) -> list[str]:
    """Return the tasks of a need for which data is available."""
    names = need.tasks or (need.task or case.task,)
    problems = {name: bench.missing(need.measure, name) for name in names}
    available = [name for name, problem in problems.items() if problem is None]
    if len(available) < (need.least or len(names)):
        first = next(problem for problem in problems.values() if problem is not None)
        raise MissingError(first if not need.least else f"fewer than {need.least} tasks have data: {first}")
    return available


def eligibility(bench: Bench, case: Case, model: ModelFacts) -> Eligibility:
    """Return whether a case can be judged with this source, given what is known before measuring."""
    try:
        if case.applies_to(model.architecture):
            required_measurements(bench, case)
    except MissingError as error:
        return Skipped(str(error))
    return applicability(case, model)


def reads_model(case: Case) -> bool:
    """Return whether a case is about a model, and not only about published numbers or the suite itself."""
    return any(get_measure(need.measure).reads_model for need in _needs(case).values())


def reads_rows(case: Case) -> bool:
    """Return whether a case needs a task's rows."""
    return any(get_measure(need.measure).on_task for need in _needs(case).values())


def is_slow(case: Case) -> bool:
    """Return whether a case needs many forward passes, as ablation and pruning do."""
    return any(takes_many_passes(need.measure) for need in _needs(case).values())


def takes_many_passes(name: str) -> bool:
    """Return whether a measure takes many forward passes."""
    return isinstance(get_measure(name), RemovalMeasure)


def measure_case(bench: Bench, case: Case, model: str, seeds: Sequence[int]) -> list[dict[str, Needed]]:
    """Return, for each seed, the measurements that a case needs, keyed by the name of the need."""
    by_seed, required = [], [*required_measurements(bench, case), *checkpoint_states(bench, case)]
    several = {STATE, *(name for name, need in _needs(case).items() if need.tasks)}
    for seed in _seeds(required, seeds):
        by_need: dict[str, list[Measurement]] = {}
        for each in required:
            own, subject = by_need.setdefault(each.need, []), each.subject(model, seed)
            if each.need != STATE or not isinstance(bench, Shelf):
                own.append(bench.measurement(each.measure, subject, **each.options))
            elif saved := bench.find(each.measure, subject, each.options):
                own.append(saved)
        by_seed.append({name: tuple(own) if name in several else own[0] for name, own in by_need.items()})
    return by_seed


def needed(
    bench: Bench, cases: Iterable[Case], model: str, seeds: Sequence[int]
) -> Iterator[tuple[Case, RequiredMeasurement, Subject]]:
    """Yield every measurement that one of the cases needs, together with the case and the subject to measure."""
    for case in cases:
        required = [*required_measurements(bench, case), *checkpoint_states(bench, case)]
        for seed in _seeds(required, seeds):
            yield from ((case, each, each.subject(model, seed)) for each in required)


def _seeds(required: Sequence[RequiredMeasurement], seeds: Sequence[int]) -> Sequence[int]:
    """Return the seeds, or a single seed if no measurement depends on the seed."""
    return [1] if all(get_measure(each.measure).seedless for each in required) else seeds


# ---------------------------------------------------------------------- over stored measurements


def measured_seeds(shelf: Shelf, case: Case, model: str, seeds: Sequence[int] | None) -> Sequence[int]:
    """Return the seeds with complete measurements for a case. Return no seeds if one of `seeds` is incomplete."""
    if seeds is not None:
        return seeds if is_measured(shelf, case, model, seeds) else ()
    return [seed for seed in shelf.seeds().get(model, []) if is_measured(shelf, case, model, [seed])]


def is_measured(shelf: Shelf, case: Case, model: str, seeds: Sequence[int]) -> bool:
    """Return whether the shelf contains all measurements that a case needs for these seeds."""
    try:
        required = required_measurements(shelf, case)
    except MissingError:
        return False
    return all(
        (measurement := shelf.find(each.measure, each.subject(model, seed), each.options)) is not None
        and case.applies_to(measurement.provenance.architecture)
        for seed in _seeds(required, seeds)
        for each in required
    )
