"""The specification curve: a claim judged under every combination of choices that the paper leaves open.

K19's text does not say how maps are cropped, which rows are read and so on; its code makes some of these choices.
`CHOICES` lists each choice with this suite's way and the other one. `OF_CLAIMS` lists the choices that a claim's
quantity depends on. A claim that holds under all combinations depends on none of them.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bertsecrets.claims.judge import judge
from bertsecrets.claims.plan import Bench, Wanted, plan
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case, find_cases
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError, UserError, near_matches
from bertsecrets.measures.base import AttentionMeasure, Resources, Run
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import configuration
from bertsecrets.models.encoding import cased, encode
from bertsecrets.models.locations import ModelRef
from bertsecrets.settings import JudgeParams
from bertsecrets.store.files import digest
from bertsecrets.texts.tasks import task
from bertsecrets.types import Measurement, Subject


@dataclass(frozen=True)
class Way:
    """One way to make a choice: options of measures, and arguments of quantities."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """A choice that the paper leaves open: this suite's way and the other one, often that of K19's code."""

    name: str
    question: str
    ours: Way
    other: Way

    @property
    def ways(self) -> tuple[Way, Way]:
        """Both ways."""
        return self.ours, self.other


CHOICES: dict[str, Choice] = {
    choice.name: choice
    for choice in (
        Choice("padding", "which part of a map is compared", Way("cropped"), Way("padded to 200", {"padded_to": 200})),
        Choice("length", "where inputs are cut, in word-pieces", Way("200"), Way("128", {"max_length": 128})),
        Choice("rows", "which rows are read, of more than are wanted", Way("drawn"), Way("first", {"rows": "first"})),
        Choice("quoting", "how files are read", Way("as text"), Way("csv quoting", {"quoted": True})),
        Choice("casing", "how the uncased model's inputs are written", Way("lower"), Way("cased", {"cased": True})),
        Choice("separators", "which of two [SEP] counts", Way("larger"), Way("sum", arguments={"kind": "sep_sum"})),
        Choice("pairing", "which verb goes with which subject", Way("its own"), Way("zipped", {"zipped": True})),
        Choice(
            "third relation",
            "which pairs a relation other than verb and subject gets",
            Way("its own", arguments={"relations": ["verb_subject", "noun_pronoun"]}),
            Way("subject to verb", arguments={"relations": ["verb_subject", "subject_verb"]}),
        ),
        Choice("negation", "what is a negation", Way("words"), Way("substrings", {"substrings": True})),
        Choice("absent", "what inputs without a feature count", Way("left out"), Way("zero", {"absent": "zero"})),
    )
}
INPUTS = ("length", "rows", "quoting", "casing")  # say what a model reads, whatever is measured of it
OF_CLAIMS: dict[str, tuple[str, ...]] = {
    "C1": ("padding", *INPUTS),
    "C3": ("separators", *INPUTS),
    "E1": ("separators", *INPUTS),
    "E4": ("negation", "absent", *INPUTS),
    "F1": ("pairing", "third relation", *INPUTS),
    "F2": ("negation", "absent", *INPUTS),
}
DEFAULT_CLAIMS = ("C1", "C3", "E1", "F1")


@dataclass(frozen=True)
class Specification:
    """The verdict of a claim under one combination of choices."""

    ways: Mapping[str, Way]
    verdict: Verdict

    @property
    def holds(self) -> bool:
        """Whether the claim is reproduced."""
        return self.verdict.outcome == "reproduced"

    @property
    def agrees(self) -> bool:
        """Whether the observed quantity is on the claim's side of the threshold, significantly or not."""
        expect, observed = self.verdict.case.claim.expect, self.verdict.observed
        assert expect is not None
        if observed is None:
            return False
        return observed > expect.value if expect.kind == "above" else observed < expect.value

    def as_json(self) -> dict[str, Any]:
        """Return the specification as data."""
        verdict = self.verdict
        return {
            "choices": {name: way.name for name, way in self.ways.items()},
            "observed": verdict.observed,
            "interval": list(verdict.interval) if verdict.interval else None,
            "verdict": verdict.outcome,
            "holds": self.holds,
            "agrees": self.agrees,
            "reason": verdict.reason,
        }


@dataclass(frozen=True)
class Curve:
    """All specifications of a claim on a task, in the order in which they were judged.

    Args:
        idle: choices without effect here, such as which rows are read if all are.
    """

    case: Case
    specifications: tuple[Specification, ...]
    idle: tuple[str, ...] = ()

    @property
    def share_holds(self) -> float:
        """The share of specifications in which the claim is reproduced."""
        return float(np.mean([each.holds for each in self.specifications]))

    @property
    def share_agrees(self) -> float:
        """The share in which the observed quantity is on the claim's side of the threshold."""
        return float(np.mean([each.agrees for each in self.specifications]))

    def medians(self) -> dict[str, dict[str, float | None]]:
        """Return the median of the quantity by choice and way, over all other choices."""
        names = self.specifications[0].ways if self.specifications else {}
        return {
            name: {way.name: _median(each for each in self.specifications if each.ways[name] == way) for way in both}
            for name in names
            if (both := CHOICES[name].ways)
        }

    def as_json(self) -> dict[str, Any]:
        """Return the curve as data."""
        return {
            "id": str(self.case),
            "claim": self.case.claim.id,
            "task": self.case.task,
            "statement": self.case.claim.statement,
            "unit": QUANTITIES[self.case.claim.quantity or ""].unit,
            "published": self.case.figure.published,
            "specifications": len(self.specifications),
            "share_reproduced": self.share_holds,
            "share_sign": self.share_agrees,
            "median": _median(self.specifications),
            "medians": self.medians(),
            "without_effect": list(self.idle),
            "curve": [each.as_json() for each in self.specifications],
        }


def _median(specifications: Iterable[Specification]) -> float | None:
    observed = [each.verdict.observed for each in specifications if each.verdict.observed is not None]
    return float(np.median(observed)) if observed else None


def chosen_cases(names: Sequence[str] | None, task_name: str) -> list[Case]:
    """Return the cases of claims that have specifications on a task.

    Args:
        names: ids of claims; by default those of `DEFAULT_CLAIMS` that are about the task.

    Raises:
        UserError: the task or a claim is unknown, or the claim is not about the task or has no specifications.
    """
    chosen, on_the_task = task(task_name).name, []
    for name in names or DEFAULT_CLAIMS:
        cases = [case for case in find_cases(name) if case.claim.name in OF_CLAIMS]
        if not cases:
            raise UserError(f"claim {name} has no specifications: give one of {', '.join(OF_CLAIMS)}")
        on_task = [case for case in cases if case.task == chosen]
        on_the_task += on_task[:1]
        if names and not on_task:
            tasks = dict.fromkeys(case.task for case in cases)
            raise UserError(f"{name} is not about {chosen}: its tasks are {', '.join(tasks)}")
    return on_the_task


def choices_of(case: Case, wanted: Sequence[str] | None = None) -> tuple[Choice, ...]:
    """Return the choices on which a claim's quantity depends.

    Args:
        wanted: only these; for the others, this suite's way is taken.

    Raises:
        UserError: a wanted choice does not exist.
    """
    for name in wanted or ():
        if name not in CHOICES:
            raise UserError(f"unknown choice {name!r}: {near_matches(name, CHOICES)}")
    return tuple(CHOICES[name] for name in OF_CLAIMS[case.claim.name] if wanted is None or name in wanted)


def combinations(choices: Sequence[Choice]) -> Iterator[dict[str, Way]]:
    """Yield every combination of ways, ordered by the number of differences from this suite's."""
    every = itertools.product(*(choice.ways for choice in choices))
    named = [dict(zip((choice.name for choice in choices), ways, strict=True)) for ways in every]
    yield from sorted(named, key=lambda ways: sum(way is CHOICES[name].other for name, way in ways.items()))


def specified(case: Case, ways: Mapping[str, Way]) -> Case:
    """Return a case whose quantity is computed in these ways."""
    arguments = dict(case.claim.arguments)
    for way in ways.values():
        arguments |= way.arguments
    return Case(case.claim.model_copy(update={"arguments": arguments}), case.task)


def options_for(measure: str, ways: Mapping[str, Way]) -> dict[str, Any]:
    """Return the options of these ways that a measure has."""
    known = get_measure(measure).Options.model_fields
    return {name: value for way in ways.values() for name, value in way.options.items() if name in known}


def specification(
    bench: Bench, case: Case, ways: Mapping[str, Way], model: str, seeds: Sequence[int], settings: JudgeParams
) -> Specification:
    """Return a claim judged in these ways; its measurements are made now, or come from the store.

    Raises:
        UserError: an input is missing, or a measurement fails.
    """
    own = specified(case, ways)
    wanted = plan(bench, own)
    by_seed = [{each.need: _measured(bench, each, ways, model, seed) for each in wanted} for seed in seeds]
    return Specification(ways, judge(own, by_seed, settings))


def _measured(bench: Bench, wanted: Wanted, ways: Mapping[str, Way], model: str, seed: int) -> Needed:
    options = {**wanted.options, **options_for(wanted.measure, ways)}
    measurement: Measurement = bench.measurement(wanted.measure, wanted.subject(model, seed), **options)
    return measurement


def curve(
    choices: Sequence[Choice],
    case: Case,
    judged: Callable[[Mapping[str, Way]], Specification],
    idle: Sequence[str] = (),
) -> Curve:
    """Return the curve of a claim over all combinations of choices.

    Args:
        judged: returns the claim's specification under one combination.
        idle: the choices without effect here, for which this suite's way is taken.
    """
    active = [choice for choice in choices if choice.name not in idle]
    return Curve(case, tuple(judged(ways) for ways in combinations(active)), tuple(idle))


class Inputs:
    """What a model reads on a task under each combination of choices; equal inputs are measured once."""

    def __init__(self, resources: Resources, model: ModelRef, task_name: str):
        self.resources, self.model, self.task = resources, model, task(task_name)
        self._digests: dict[tuple[str, ...], str | None] = {}

    def digest(self, ways: Mapping[str, Way]) -> str | None:
        """Return a digest of the inputs under these ways; None if the ways are impossible for these data."""
        own = {name: way for name, way in ways.items() if name in INPUTS}
        key = tuple(way.name for way in own.values())
        if key not in self._digests:
            self._digests[key] = self._made(
                {name: value for way in own.values() for name, value in way.options.items()}
            )
        return self._digests[key]

    def _made(self, options: dict[str, Any]) -> str | None:
        measure = get_measure("special-tokens")
        assert isinstance(measure, AttentionMeasure)
        chosen = measure.check_options(options)
        try:
            rows = measure.rows(Run(Subject("", self.task.name), chosen, self.resources))
        except NotApplicableError:
            return None
        tokenizer = cased(self._tokenizer) if chosen.cased else self._tokenizer  # type: ignore[attr-defined]
        length = chosen.max_length or self.resources.settings.attention.max_length  # type: ignore[attr-defined]
        encoded = encode(rows, tokenizer, min(length, tokenizer.model_max_length))
        return digest([encoded.input_ids, encoded.segments])

    @cached_property
    def _tokenizer(self) -> Any:
        return configuration.open_tokenizer(self.model)

    def idle(self, choices: Sequence[Choice]) -> list[str]:
        """Return the choices that are impossible here, or change no input whatever the other choices are."""
        of_inputs = [choice for choice in choices if choice.name in INPUTS]
        idle = []
        for choice in of_inputs:
            same = [
                self.digest({**ways, choice.name: choice.other}) in (None, self.digest(ways))
                for ways in combinations(of_inputs)
                if ways[choice.name] is choice.ours and self.digest(ways) is not None
            ]
            if all(same):
                idle.append(choice.name)
        if self.task.sentence2 is None and any(choice.name == "separators" for choice in choices):
            idle.append("separators")  # a single text has one separator
        return idle
