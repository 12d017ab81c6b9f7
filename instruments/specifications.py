"""Specification curves: verdicts on a claim under every combination of choices that the paper leaves open.

For example, K19's text does not specify how maps are cropped or which rows are used. K19's code makes some of these
choices. `CHOICES` lists each choice with this suite's option and an alternative. `OF_CLAIMS` lists the choices that
affect a claim's quantity. A claim is robust to these choices if it holds under all combinations.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bertsecrets.claims.expectations import Order
from bertsecrets.claims.judge import judge
from bertsecrets.claims.loading import find_cases
from bertsecrets.claims.requirements import Bench, required_measurements
from bertsecrets.claims.schema import Case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.errors import NotApplicableError, UserError, near_matches
from bertsecrets.formats import PASSES
from bertsecrets.measures.base import AttentionMeasure, MeasureContext, Resources
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import configuration
from bertsecrets.models.encoding import cased, encode
from bertsecrets.models.locations import ModelRef
from bertsecrets.session import Session
from bertsecrets.settings import JudgeParams
from bertsecrets.store.files import digest
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject

Combination = Mapping[str, bool]  # whether the alternative is used, keyed by choice


@dataclass(frozen=True)
class Choice:
    """A choice that the paper leaves open.

    `ours` and `other` name this suite's option and the alternative, which is often the choice in K19's code. `options`
    of measures and `arguments` of quantities select the alternative.
    """

    name: str
    question: str
    ours: str
    other: str
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def way(self, alternative: bool) -> str:
        """Return the name of the alternative or, if `alternative` is False, of this suite's option."""
        return self.other if alternative else self.ours


CHOICES: dict[str, Choice] = {
    choice.name: choice
    for choice in (
        Choice("padding", "which part of a map is compared", "cropped", "padded to 200", {"padded_to": 200}),
        Choice("length", "maximum number of word-pieces", "200", "128", {"max_length": 128}),
        Choice("rows", "which rows are read if there are too many", "drawn", "first", {"rows": "first"}),
        Choice("quoting", "how files are parsed", "as text", "csv quoting", {"quoted": True}),
        Choice("casing", "case of an uncased model's inputs", "lower", "cased", {"cased": True}),
        Choice("separators", "which of two [SEP]s counts", "larger", "sum", arguments={"kind": "sep_sum"}),
        Choice("pairing", "which verb is paired with which subject", "its own", "zipped", {"zipped": True}),
        Choice(
            "third relation",
            "which pairs form a relation other than verb and subject",
            "its own",
            "subject to verb",
            arguments={"relations": ["verb_subject", "subject_verb"]},
        ),
        Choice("negation", "what is a negation", "words", "substrings", {"substrings": True}),
        Choice("absent", "value of inputs without the feature", "left out", "zero", {"absent": "zero"}),
    )
}
INPUTS = ("length", "rows", "quoting", "casing")  # choices that change the inputs of the model in every measure
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
    """The verdict on a claim for one combination of choices."""

    combination: Combination
    verdict: Verdict

    @property
    def ways(self) -> dict[str, str]:
        """The selected option of each choice, by name."""
        return {name: CHOICES[name].way(alternative) for name, alternative in self.combination.items()}

    @property
    def holds(self) -> bool:
        """Whether the claim is reproduced or compatible."""
        return self.verdict.outcome in PASSES

    @property
    def agrees(self) -> bool:
        """Whether the observed value is on the claim's side of the threshold or in the band. Intervals are ignored."""
        expect, observed = self.verdict.case.claim.expect, self.verdict.observed
        if observed is None:
            return False
        if isinstance(expect, Order):
            return not expect.contradicts(observed)
        low, high = self.verdict.band or (observed, observed)
        return low <= observed <= high

    def as_json(self) -> dict[str, Any]:
        """Return the specification as data."""
        verdict = self.verdict
        return {
            "choices": self.ways,
            "observed": verdict.observed,
            "interval": list(verdict.interval) if verdict.interval else None,
            "verdict": verdict.outcome,
            "holds": self.holds,
            "agrees": self.agrees,
            "reason": verdict.reason,
        }


@dataclass(frozen=True)
class Curve:
    """All specifications of a claim on a task, in the order of judging.

    Args:
        idle: Choices that have no effect on this task, such as `rows` if all rows are used.
    """

    case: Case
    specifications: tuple[Specification, ...]
    idle: tuple[str, ...] = ()

    @property
    def share_holds(self) -> float:
        """The fraction of specifications under which the claim is reproduced or compatible."""
        return float(np.mean([each.holds for each in self.specifications]))

    @property
    def share_agrees(self) -> float:
        """The fraction of specifications with the observed quantity on the claim's side of the threshold."""
        return float(np.mean([each.agrees for each in self.specifications]))

    def medians(self) -> dict[str, dict[str, float | None]]:
        """Return the median of the quantity for each option of each choice, over all other choices."""
        names = self.specifications[0].combination
        return {
            name: {
                CHOICES[name].way(alternative): _median(
                    each for each in self.specifications if each.combination[name] == alternative
                )
                for alternative in (False, True)
            }
            for name in names
        }

    def as_json(self) -> dict[str, Any]:
        """Return the curve as data."""
        return {
            "id": str(self.case),
            "claim": self.case.claim.id,
            "task": self.case.task,
            "statement": self.case.claim.statement,
            "unit": self.case.unit,
            "published": self.case.figure.published,
            "specifications": len(self.specifications),
            "share_passing": self.share_holds,
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
    """Return the cases of claims with specifications on a task.

    Args:
        names: Claim ids. By default, the claims in `DEFAULT_CLAIMS` that are about the task.

    Raises:
        UserError: If the task or a claim is unknown, or a claim is not about the task or has no specifications.
    """
    wanted, chosen = task(task_name).name, []
    for name in names or DEFAULT_CLAIMS:
        cases = [case for case in find_cases(name) if case.claim.name in OF_CLAIMS]
        if not cases:
            raise UserError(f"claim {name} has no specifications: give one of {', '.join(OF_CLAIMS)}")
        on_task = [case for case in cases if case.task == wanted]
        chosen += on_task
        if names and not on_task:
            tasks = dict.fromkeys(case.task for case in cases)
            raise UserError(f"{name} is not about {wanted}: its tasks are {', '.join(tasks)}")
    return chosen


def choices_of(case: Case, wanted: Sequence[str] | None = None) -> tuple[Choice, ...]:
    """Return the choices that affect a claim's quantity.

    Args:
        wanted: Return only these choices.

    Raises:
        UserError: If a wanted choice does not exist.
    """
    for name in wanted or ():
        if name not in CHOICES:
            raise UserError(f"unknown choice {name!r}: {near_matches(name, CHOICES)}")
    return tuple(CHOICES[name] for name in OF_CLAIMS[case.claim.name] if wanted is None or name in wanted)


def combinations(choices: Sequence[Choice]) -> Iterator[dict[str, bool]]:
    """Yield every combination, ordered by the number of selected alternatives."""
    names = [choice.name for choice in choices]
    every = itertools.product((False, True), repeat=len(names))
    yield from (dict(zip(names, alternatives, strict=True)) for alternatives in sorted(every, key=sum))


def specified(case: Case, combination: Combination) -> Case:
    """Return a case whose quantity is computed under a combination of choices."""
    arguments = dict(case.claim.arguments)
    for name, alternative in combination.items():
        arguments |= CHOICES[name].arguments if alternative else {}
    return Case(case.claim.model_copy(update={"arguments": arguments}), case.task)


def options_for(measure: str, combination: Combination) -> dict[str, Any]:
    """Return the options of a measure under a combination of choices."""
    known = get_measure(measure).Options.model_fields
    taken = [CHOICES[name].options for name, alternative in combination.items() if alternative]
    return {name: value for options in taken for name, value in options.items() if name in known}


def specification(
    bench: Bench, case: Case, combination: Combination, model: str, seeds: Sequence[int], settings: JudgeParams
) -> Specification:
    """Judge a claim under a combination of choices, with stored measurements where available.

    Raises:
        UserError: If an input is missing, or a measurement fails.
    """
    own = specified(case, combination)
    by_seed = [
        {
            each.need: bench.measurement(
                each.measure,
                each.subject(model, seed),
                **{**each.options, **options_for(each.measure, combination)},
            )
            for each in required_measurements(bench, own)
        }
        for seed in seeds
    ]
    return Specification(combination, judge(own, by_seed, settings))


def curve(session: Session, case: Case, choices: Sequence[Choice]) -> Curve:
    """Return a claim's curve over all combinations of choices. Combinations with equal inputs are measured once.

    Raises:
        UserError: If an input is missing, or a measurement fails.
    """
    inputs = Inputs(session.resources, session.ref(session.model), case.task)
    idle = inputs.idle(choices)
    seen: dict[tuple[Any, ...], Verdict] = {}
    specifications = []
    for combination in combinations([choice for choice in choices if choice.name not in idle]):
        others = [alternative for name, alternative in combination.items() if name not in INPUTS]
        key = (inputs.digest(combination), *others)
        if key not in seen:
            settings, seeds = session.settings.judge, session.interims[0]
            seen[key] = specification(session, case, combination, session.model, seeds, settings).verdict
        specifications.append(Specification(combination, seen[key]))
    return Curve(case, tuple(specifications), tuple(idle))


class Inputs:
    """The model inputs on a task under each combination of choices."""

    def __init__(self, resources: Resources, model: ModelRef, task_name: str):
        self.resources, self.model, self.task = resources, model, task(task_name)
        self._digests: dict[tuple[str, ...], str | None] = {}

    def digest(self, combination: Combination) -> str | None:
        """Return a digest of the inputs under a combination, or None if the data rule out the combination."""
        key = tuple(name for name in INPUTS if combination.get(name))
        if key not in self._digests:
            self._digests[key] = self._computed(
                {name: value for choice in key for name, value in CHOICES[choice].options.items()}
            )
        return self._digests[key]

    def _computed(self, options: dict[str, Any]) -> str | None:
        measure = get_measure("special-tokens")
        assert isinstance(measure, AttentionMeasure)
        chosen = measure.check_options(options)
        try:
            rows = measure.rows(MeasureContext(Subject("", self.task.name), chosen, self.resources))
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
        """Return the choices that are impossible or never change the inputs, regardless of all other choices."""
        of_inputs = [choice for choice in choices if choice.name in INPUTS]
        idle = []
        for choice in of_inputs:
            same = [
                self.digest({**combination, choice.name: True}) in (None, self.digest(combination))
                for combination in combinations(of_inputs)
                if not combination[choice.name] and self.digest(combination) is not None
            ]
            if all(same):
                idle.append(choice.name)
        if self.task.sentence2 is None and any(choice.name == "separators" for choice in choices):
            idle.append("separators")  # an input with a single text has only one separator
        return idle
