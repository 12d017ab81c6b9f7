"""The claims of the paper as data, read from `expected/` and checked; mistakes are reported with file and line.

A claim is one YAML entry; a `Case` is that claim on one task, which is what a benchmark runs and a table shows.
"""

import functools
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, PositiveInt, ValidationError, model_validator

from bertsecrets.claims.figure import Cited, Expectation, SmallestEffect, TaskFigure
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.errors import UserError, near_matches
from bertsecrets.measures.registry import is_seedless, measure_names
from bertsecrets.models.families import PUBLISHED, full_name
from bertsecrets.reading import YAML_LIMIT, YamlError, read_text, read_yaml
from bertsecrets.settings import Section, first_problem, project_path
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task
from bertsecrets.types import InitialisationName

OF_CLASSIFIER = (  # measures that depend on the classifier, which has random weights if it is untrained
    "scores", "head-ablation", "layer-ablation", "head-pruning", "weight-pruning", "attention-gradients",
)  # fmt: skip
ANY_MODEL = "any"  # a deviation that does not depend on the model, such as one of the suite's own classifier


class Known(Section):
    """An outcome already known for a model on a task, with its evidence.

    Where a deviation is known, the benchmark is expected to fail, and reports it when it does not.
    """

    model: Annotated[str, AfterValidator(full_name)]
    task: str
    evidence: str = Field(min_length=10)
    status: Literal["deviates", "reproduces"] = "deviates"


class Claim(Section):
    """One claim, as its entry in `expected/` says it.

    `options` go to the measure (how it is measured), `arguments` to the quantity (how it is computed from that).
    Numbers that have another source are taken from there by reference (`figure.Cited`), for every task: `published`
    (`P20`, `D1-pretrained`, or the difference of two), `seeds_of` (whose spreads over seeds), `doubt_of` (whose spreads
    make the published figure doubtful) and `second` (the second source).
    `over_tasks` says of how many of its tasks the claim speaks, where it speaks of them together; those on which it
    says the opposite are a claim of their own, whose variant ends in `not`.
    `needs_shape` are the layers and heads of the only models for which a claim about numbered heads, or about a map of
    all heads, has a meaning; `relative` is the claim, if there is one, that asks the same of a model of any shape.
    `needs_weights` is the pinned hub model whose encoder the claim is about, if it is about numbers that only those
    weights have; `needs_shape` then says the same of measurements that do not name their weights.
    `existence` says that some head or layer has the property. A choice that does not transfer to other examples leaves
    open whether another head has it, so such a claim can be reproduced but cannot deviate.
    `on_request` says that the claim costs so much that it is judged only where a command names it.
    `architectures` are those of which the claim speaks, as transformers names them (`gpt2`); by default every one.
    """

    id: str = Field(pattern=r"^[A-J][0-9]+[bp]?$")
    source: str
    statement: str
    how: str = ""
    unit: str = ""
    measure: str | None = None
    quantity: str | None = None
    variant: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    arguments: dict[str, Any] = Field(default_factory=dict)
    initialisation: InitialisationName = "pretrained"
    against: InitialisationName | None = None
    expect: Expectation | None = None
    smallest_effect: SmallestEffect | None = None
    existence: bool = False
    published: str | None = None
    seeds_of: tuple[str, ...] = ()
    doubt_of: tuple[str, ...] = ()
    second: Literal["P20"] | None = None
    tasks: dict[str, TaskFigure] = Field(min_length=1)
    over_tasks: Literal["all", "most"] | None = None
    needs_shape: tuple[PositiveInt, PositiveInt] | None = None
    needs_weights: str | None = None
    relative: str | None = None
    architectures: tuple[str, ...] = ()
    on_request: bool = False
    known: tuple[Known, ...] = ()
    note: str = ""

    @model_validator(mode="after")
    def _sound(self) -> "Claim":
        unknown = [name for name in self.tasks if name not in TASKS and name != ALL_TASKS]
        if unknown:
            raise ValueError(f"unknown task {unknown[0]!r}: {near_matches(unknown[0], TASKS)}")
        if self.measure is not None and self.measure not in measure_names():
            raise ValueError(f"unknown measure {self.measure!r}: {near_matches(self.measure, measure_names())}")
        if (self.quantity is None) != (self.expect is None):
            raise ValueError("give both quantity and expect, or neither if the claim is not implemented")
        if self.quantity is not None and self.quantity not in QUANTITIES:
            raise ValueError(f"unknown quantity {self.quantity!r}: {near_matches(self.quantity, QUANTITIES)}")
        if self.quantity is not None:
            try:
                QUANTITIES[self.quantity].check_arguments(self.arguments)
            except TypeError as error:
                raise ValueError(f"arguments of quantity {self.quantity}: {error}") from error
        if self.expect is not None and self.expect.kind == "around" and self.published is None:
            bare = [name for name, figure in self.tasks.items() if figure.published is None]
            if bare:
                raise ValueError(f"task {bare[0]} needs a published figure, because the claim expects `around`")
        if self.relative and not self.needs_shape:
            raise ValueError("relative is for a claim with needs_shape")
        if self.needs_weights and full_name(self.needs_weights) not in PUBLISHED:
            hint = near_matches(self.needs_weights, PUBLISHED)
            raise ValueError(f"needs_weights: no published digests of {self.needs_weights!r}: {hint}")
        if self.over_tasks and (len(self.tasks) < 2 or self.expect is None or self.expect.kind == "around"):
            raise ValueError("over_tasks is for an order on several tasks")
        if self.smallest_effect and (self.expect is None or self.expect.kind == "around"):
            raise ValueError("smallest_effect is for an order or an equality")
        if self.existence and (self.expect is None or self.expect.kind not in ("above", "below")):
            raise ValueError("existence is for an order")
        for known in self.known:
            if known.task not in self.tasks:
                raise ValueError(f"a known outcome on {known.task}, which is not among the claim's tasks")
        return self

    def filled(self, figures: Mapping[str, Mapping[str, TaskFigure]]) -> "Claim":
        """Return the claim with the numbers that it takes by reference.

        Args:
            figures: the typed figures of all claims, by name and task.

        Raises:
            ValueError: a reference is wrong, or a number is typed as well.
        """
        if not (self.published or self.seeds_of or self.doubt_of or self.second):
            return self
        cited = Cited(self.quantity or "", self.arguments, figures)
        tasks = {
            name: cited.filled(
                figure,
                name,
                published=self.published,
                seeds_of=self.seeds_of,
                doubt_of=self.doubt_of,
                second=self.second is not None,
            )
            for name, figure in self.tasks.items()
        }
        return self.model_copy(update={"tasks": tasks})

    @property
    def implemented(self) -> bool:
        """True if the claim has a quantity, so that a benchmark of it can run and fail."""
        return self.quantity is not None

    @property
    def seedless(self) -> bool:
        """True if nothing that the claim needs is trained, so that seeds make no difference.

        That is so for measures without seeds, and for those of an untrained model's encoder, not of its classifier.
        """
        assert self.quantity is not None
        own = {"own": self.initialisation, "against": self.against}
        return all(
            is_seedless(need.measure)
            or (own.get(need.whose, need.whose) == "untrained" and need.measure not in OF_CLASSIFIER)
            for need in QUANTITIES[self.quantity].needs.values()
        )

    @property
    def name(self) -> str:
        """The id with the variant, such as `D1-untrained`."""
        return "-".join(filter(None, (self.id, self.variant)))

    @property
    def family(self) -> str:
        """The letter with which the id begins; claims of one section of the paper share it."""
        return self.id[0]

    @property
    def cases(self) -> list["Case"]:
        """The claim on each of its tasks."""
        return [Case(self, name) for name in self.tasks]

    @property
    def case_ids(self) -> dict[str, str]:
        """The ids of its cases, such as `D1-rte-untrained`, each with its task."""
        return {str(case): case.task for case in self.cases}


@dataclass(frozen=True, repr=False)
class Case:
    """One claim on one task."""

    claim: Claim
    task: str

    def __str__(self) -> str:
        return "-".join(filter(None, (self.claim.id, self.task, self.claim.variant)))

    __repr__ = __str__

    @property
    def figure(self) -> TaskFigure:
        """The published figure."""
        return self.claim.tasks[self.task]

    @property
    def unit(self) -> str:
        """The unit of the claim, or that of its quantity."""
        quantity = self.claim.quantity
        return self.claim.unit or (QUANTITIES[quantity].unit if quantity else "")

    @property
    def on_tasks(self) -> tuple[str, ...]:
        """The tasks on which it is measured; none if it is about the bare encoder or the suite's own parts."""
        needs = QUANTITIES[self.claim.quantity].needs.values() if self.claim.quantity else ()
        names = (name for need in needs for name in need.tasks or (need.task or self.task,))
        return tuple(dict.fromkeys(name for name in names if name != ALL_TASKS))

    def belongs_to(self, tasks: Collection[str]) -> bool:
        """Return whether the case is part of the replication on some tasks.

        So are the cases of these tasks, those of the bare encoder, and those over several tasks that include one of
        them.
        """
        if self.task in tasks:
            return True
        return self.task == ALL_TASKS and (not self.on_tasks or not set(self.on_tasks).isdisjoint(tasks))

    def speaks_of(self, architecture: str | None) -> bool:
        """Return whether the claim is about models of an architecture, named as transformers does."""
        return not self.claim.architectures or architecture in self.claim.architectures

    def known_deviation(self, model: str) -> Known | None:
        """Return the deviation on record for this model, if any."""
        deviations = (known for known in self.claim.known if (known.task, known.status) == (self.task, "deviates"))
        return next((known for known in deviations if known.model in (full_name(model), ANY_MODEL)), None)


@functools.cache
def load_claims(folder: Path | None = None) -> tuple[Claim, ...]:
    """Return every claim, in the order of the files' names and of their entries.

    `BERTSECRETS_EXPECTED` names another folder.

    Raises:
        UserError: a malformed file (with its line), an id that is used twice, or a reference to what does not exist.
    """
    folder = folder or Path(os.environ.get("BERTSECRETS_EXPECTED") or project_path("expected"))
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise UserError(f"no claims in {folder}: it should hold YAML files such as C-change.yaml")
    claims: dict[str, tuple[str, Claim]] = {}
    for file in files:
        for line, claim in _read(file):
            place = f"{file}, line {line}"
            if claim.name in claims:
                raise UserError(f"{place}: claim {claim.name} is defined twice: give each its own id or variant")
            claims[claim.name] = (place, claim)
    figures = {name: claim.tasks for name, (_, claim) in claims.items()}
    return tuple(_filled(place, claim, figures) for place, claim in claims.values())


def _filled(place: str, claim: Claim, figures: Mapping[str, Mapping[str, TaskFigure]]) -> Claim:
    if claim.relative is not None and claim.relative not in figures:
        hint = near_matches(claim.relative, figures)
        raise UserError(f"{place}: {claim.name}: relative: unknown claim {claim.relative!r}: {hint}")
    try:
        return claim.filled(figures)
    except ValueError as error:
        raise UserError(f"{place}: {claim.name}: {error}") from error


def _read(file: Path) -> list[tuple[int, Claim]]:
    """Return the claims of a file, each with its line.

    Raises:
        UserError: the file cannot be read, or an entry is not a claim.
    """
    try:
        node, data = read_yaml(read_text(file, YAML_LIMIT))
    except YamlError as error:
        raise UserError(f"{file}, line {error.line}: {error}") from error
    if not isinstance(data, list) or node is None:
        raise UserError(f"{file}, line 1: expected a list of claims, each starting with `- id:`")
    claims = []
    for entry, entry_node in zip(data, node.value, strict=True):
        line = entry_node.start_mark.line + 1
        try:
            claims.append((line, Claim.model_validate(entry)))
        except ValidationError as error:
            line = _line_of(entry_node, error.errors()[0]["loc"]) or line
            raise UserError(f"{file}, line {line}: {first_problem(error)}") from error
    return claims


def _line_of(node: yaml.Node, path: tuple[int | str, ...]) -> int | None:
    """Return the line of the deepest part of `path` that the file contains."""
    line = node.start_mark.line + 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line


def cases(measure: str | None = None) -> list[Case]:
    """Return the implemented claims on each of their tasks, of one measure or of all."""
    return [
        case
        for claim in load_claims()
        if claim.implemented and measure in (None, claim.measure)
        for case in claim.cases
    ]


def find_cases(wanted: str) -> list[Case]:
    """Return the cases that a name stands for, as printed in any table or message; case-insensitive.

    It is a case's id (`D1-rte-pretrained`), otherwise a claim's id (`D1`, with all its variants) or name
    (`D1-pretrained`), or either with a task at its end (`D1-rte`, `D1-pretrained-RTE`), or a family (`D`): all claims
    whose ids begin with it, except those judged on request.

    Raises:
        UserError: nothing is called so.
    """
    name = wanted.lower()
    for task_name in TASKS.values():  # as tables spell it: STS-B, SST-2
        name = f"{name}-".replace(f"-{task_name.title.lower()}-", f"-{task_name.name}-")[:-1]
    named: dict[str, list[Case]] = {}
    every = [case for claim in load_claims() for case in claim.cases]
    for case in every:
        claim = case.claim
        family = () if claim.on_request else (claim.family,)
        for one in {claim.id, claim.name, f"{claim.id}-{case.task}", f"{claim.name}-{case.task}", *family}:
            named.setdefault(one, []).append(case)
    spelt = {one.lower(): one for one in named}
    found = [case for case in every if str(case).lower() == name] or named.get(spelt.get(name, ""))
    if not found:
        hint = near_matches(wanted, dict.fromkeys([*(case.claim.id for case in every), *map(str, every), *named]))
        raise UserError(f"unknown claim {wanted!r}: {hint} (bertsecrets claims lists all)")
    return found


def select_cases(claims: Iterable[str] = (), tasks: Iterable[str] = ()) -> list[Case]:
    """Return the implemented cases of some claims and tasks; by default all but those that are judged on request.

    Args:
        claims: names, as `find_cases` takes them.
        tasks: names of tasks; claims about the bare encoder, and those over several tasks of which one is named, belong
            to them. `all` is for these alone.

    Raises:
        UserError: a claim or task is unknown.
    """
    named = {str(case) for name in claims for case in find_cases(name)}
    of_tasks = {ALL_TASKS if name == ALL_TASKS else task(name).name for name in tasks}
    return [
        case
        for case in cases()
        if (not of_tasks or case.belongs_to(of_tasks)) and (str(case) in named if named else not case.claim.on_request)
    ]


def find_case(wanted: str, task_name: str | None = None) -> Case:
    """Return one claim on one task.

    Args:
        wanted: the claim's id (`C1`), with its variant if it has one (`D1-untrained`), or a case's (`C1-rte`).
        task_name: one of the claim's tasks; may be left out where there is only one.

    Raises:
        UserError: no implemented claim fits, or several do.
    """
    chosen = None if task_name is None else task_name if task_name == ALL_TASKS else task(task_name).name
    found = find_cases(wanted)
    known = [case for case in found if case.claim.implemented]
    if not known:
        raise UserError(f"claim {found[0].claim.id} is not implemented: see bertsecrets claims for those that are")
    fitting = [case for case in known if chosen in (None, case.task)]
    exact = [case for case in fitting if case.claim.name.lower() == wanted.lower()]
    if len(exact) == 1:
        return exact[0]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(f"{wanted} could mean {', '.join(map(str, fitting))}: name one of them")
    raise UserError(f"{wanted} is not about {task_name}: its cases are {', '.join(map(str, known))}")
