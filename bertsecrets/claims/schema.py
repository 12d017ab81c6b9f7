"""The schema of claims, which are defined in `expected/`. Error messages about entries give the file and line.

A claim is one YAML entry. A `Case` is a claim on one task, and corresponds to one benchmark and to one row in tables.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from bertsecrets.claims.band import Ends, smallest
from bertsecrets.claims.estimate import Estimate
from bertsecrets.claims.expectations import Expectation, Figure, Order
from bertsecrets.claims.figure import Cited, Known, References, SmallestEffect, TaskFigure
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.quantity import Need
from bertsecrets.errors import near_matches
from bertsecrets.measures.registry import is_seedless, measure_names
from bertsecrets.models.families import MODEL_SHA256, full_name
from bertsecrets.models.locations import recorded_name
from bertsecrets.settings import first_problem
from bertsecrets.store.files import digest
from bertsecrets.texts.tasks import ALL_TASKS, GLUE_TASKS, TASKS, Task, own_task_names
from bertsecrets.types import InitialisationName

CLASSIFIER_MEASURES = (  # measures that depend on the classifier, whose weights are random if it is untrained
    "scores", "head-ablation", "layer-ablation", "head-pruning", "weight-pruning", "attention-gradients",
)  # fmt: skip
DEFINING_FIELDS = {
    *("measure", "quantity", "options", "arguments", "initialisation", "against", "expect", "existence", "version")
}
LATER_FAMILIES = "HIJ"  # families of claims from later work and of open questions
OWN_SOURCES = ("ours", "hypothesis")  # sources of this suite's own hypotheses
ANY_MODEL = "any"  # for deviations that do not depend on the model, such as those of our pattern classifier


class Claim(References):
    """A claim, as defined by its entry in `expected/`.

    `options` are passed to the measure and `arguments` to the quantity. For an order or an equality, `band` shows the
    limit and the smallest effect of interest. `python -m instruments bands` writes this field. `over_tasks` is set if
    the claim is about several tasks together: `all` of its tasks, or `most` of them. If the source says the opposite
    about some tasks, a separate claim covers these tasks. The variant of this separate claim ends in `not`.
    `needs_shape` gives the required numbers of layers and heads for claims about numbered heads or a map of all heads.
    `relative` names the equivalent claim for models of any shape, if there is one. `needs_weights` names a pinned hub
    model if the claim is about numbers that are specific to this model's weights. If a measurement does not record the
    weights, only `needs_shape` is checked. `existence` marks claims that some head or layer has a property. If the
    selected head fails on held-out examples, another head may still have the property, so such a claim can be
    reproduced but cannot deviate. `version` increases with every change of the definition: what is measured, how it is
    judged, or what is published. `on_request` marks expensive claims, which are judged only if a command names them.
    `architectures` lists the architectures that the claim is about by their names in transformers (such as `gpt2`).
    Defaults to all.
    """

    id: str = Field(pattern=r"^[A-J][0-9]+[bp]?$", description="a letter from A to J and a number, such as C5")
    source: str = Field(pattern=r"^\s*[^\s;,]", description="a source, such as K19 section 4.3")
    statement: str = Field(pattern=r"\S", description="a sentence")
    how: str = ""
    unit: str = ""
    measure: str
    quantity: str
    variant: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    arguments: dict[str, Any] = Field(default_factory=dict)
    initialisation: InitialisationName = "pretrained"
    against: InitialisationName | None = None
    expect: Expectation
    smallest_effect: SmallestEffect | None = None
    tolerance: SmallestEffect | None = None
    existence: bool = False
    band: dict[Literal["above", "below", "equal", "smallest_effect"], float] = Field(default_factory=dict)
    tasks: dict[str, TaskFigure] = Field(min_length=1)
    over_tasks: Literal["all", "most"] | None = None
    needs_shape: tuple[PositiveInt, PositiveInt] | None = None
    needs_weights: str | None = None
    relative: str | None = None
    architectures: tuple[str, ...] = ()
    on_request: bool = False
    known: tuple[Known, ...] = ()
    note: str = ""
    version: PositiveInt = 1

    @model_validator(mode="after")
    def _sound(self) -> "Claim":
        tasks = [("task", name, TASKS) for name in self.tasks if name != ALL_TASKS]
        named = [*tasks, ("measure", self.measure, measure_names()), ("quantity", self.quantity, QUANTITIES)]
        for kind, name, known_names in named:
            if name not in known_names:
                raise ValueError(f"unknown {kind} {name!r}: {near_matches(name, known_names)}")
        taken, needs = QUANTITIES[self.quantity].arguments, QUANTITIES[self.quantity].needs.values()
        read = sorted({need.measure for need in needs})
        if self.measure not in read:
            raise ValueError(f"quantity {self.quantity} is computed from {' and '.join(read)}, not from {self.measure}")
        try:
            taken.model_validate(self.arguments)
        except ValidationError as error:
            raise ValueError(f"arguments of quantity {self.quantity}: {first_problem(error, taken)}") from error
        compares = any(need.whose == "against" for need in needs)
        if compares and self.against in (None, self.initialisation):
            raise ValueError(f"quantity {self.quantity} compares two initialisations: give another one as `against`")
        of_a_task = [need for need in needs if not (need.task or need.tasks)]
        if ALL_TASKS in self.tasks and not all(is_seedless(need.measure) for need in of_a_task):
            raise ValueError(f"quantity {self.quantity} is measured on one task: name tasks instead of {ALL_TASKS}")
        if self.tasks.keys() != {ALL_TASKS} and not of_a_task:
            raise ValueError(f"quantity {self.quantity} is about its own tasks: use only the task {ALL_TASKS}")
        around = isinstance(self.expect, Figure)
        bare = [name for name, figure in self.tasks.items() if figure.published is None]
        if around and self.published is None and bare:
            raise ValueError(f"task {bare[0]} needs a published figure, because the expectation is `around`")
        doubtful = self.doubt_of or any(figure.constant_answer or figure.doubt for figure in self.tasks.values())
        if doubtful and not around:
            raise ValueError("constant_answer, doubt and doubt_of can be used only with a figure (`around`)")
        if self.relative and not self.needs_shape:
            raise ValueError("relative can be used only together with needs_shape")
        if self.needs_weights and full_name(self.needs_weights) not in MODEL_SHA256:
            hint = near_matches(self.needs_weights, MODEL_SHA256)
            raise ValueError(f"needs_weights: no digests are known for {self.needs_weights!r}: {hint}")
        if self.over_tasks and (len(self.tasks) < 2 or around):
            raise ValueError("over_tasks can be used only with an order on several tasks")
        if self.smallest_effect and around:
            raise ValueError(
                "smallest_effect applies only to orders and equalities: with a figure, use tolerance instead"
            )
        if self.tolerance and not around:
            raise ValueError(
                "tolerance applies only to figures: with an order or an equality, use smallest_effect instead"
            )
        size = self.smallest_effect.size if self.smallest_effect else 0.0
        if size and isinstance(self.expect, Order) and not self.expect.judges(size):
            raise ValueError(f"smallest_effect is used only if the limit is between 0 and {size}: remove it")
        if self.existence and not isinstance(self.expect, Order):
            raise ValueError("existence can be used only with an order")
        observed: dict[tuple[str, str, int], str] = {}
        for known in self.known:
            of = (known.model, known.task, known.version)
            if known.status != "expected" and observed.setdefault(of, known.status) != known.status:
                raise ValueError(f"`known` has two outcomes for {known.model} on {known.task}: remove one of the two")
            if known.task not in self.tasks:
                raise ValueError(
                    f"`known` has an outcome on {known.task}, but the claim is not about this task: correct one of them"
                )
            if known.version > self.version:
                raise ValueError(
                    f"`known` has an outcome for version {known.version}, but the claim's version is only "
                    f"{self.version}: correct one of the two"
                )
        return self

    def filled(self, figures: Mapping[str, Mapping[str, TaskFigure]]) -> "Claim":
        """Return the claim with its references resolved. For `figures`, see `Cited`."""
        if not (self.published or self.seeds_of or self.doubt_of or self.second):
            return self
        cited = Cited(self.quantity, self.arguments, figures)
        tasks = {name: cited.filled(figure, name, self) for name, figure in self.tasks.items()}
        return self.model_copy(update={"tasks": tasks})

    @property
    def seedless(self) -> bool:
        """Whether seeds make no difference, because nothing that the claim needs is trained."""
        return all(
            is_seedless(need.measure)
            or (self.initialisation_of(need) == "untrained" and need.measure not in CLASSIFIER_MEASURES)
            for need in QUANTITIES[self.quantity].needs.values()
        )

    def initialisation_of(self, need: Need) -> str | None:
        """Return the initialisation that a need of the claim's quantity refers to."""
        return {"own": self.initialisation, "against": self.against}.get(need.whose, need.whose)

    @property
    def name(self) -> str:
        """The id with the variant, such as `D1-untrained`."""
        return "-".join(filter(None, (self.id, self.variant)))

    @property
    def family(self) -> str:
        """The first letter of the id, shared by the claims of a section of the paper."""
        return self.id[0]

    @property
    def beyond_k19(self) -> bool:
        """Whether the claim lies outside the replication: it comes from later work, or is a hypothesis of this suite.

        Such a claim is judged only if a command names it, and can make a run fail only with `--strict`.
        """
        return self.family in LATER_FAMILIES or self.first_source.split()[0] in OWN_SOURCES

    @property
    def by_default(self) -> bool:
        """Whether commands that name no claims judge this claim."""
        return not (self.beyond_k19 or self.on_request)

    @property
    def first_source(self) -> str:
        """The first of the claim's sources, such as `K19 section 4.3`; other sources follow a semicolon or a comma."""
        return self.source.partition(";")[0].partition(",")[0]

    @property
    def cases(self) -> list["Case"]:
        """One case for each of the claim's tasks, and for each of the user's own tasks that the claim covers."""
        return [Case(self, name) for name in (*self.tasks, *filter(self.covers, own_task_names()))]

    def covers(self, name: str) -> bool:
        """Return whether the claim is about tasks in general, and therefore also about the user's own task `name`.

        Such a claim omits at most one of the GLUE tasks. It must not omit STS-B, the only regression task of GLUE, if
        the user's task is a regression task. It must not omit SST-2 if the user's task has single texts.
        """
        own, known = TASKS[name], [each for each in GLUE_TASKS if each.name in self.tasks]
        kinds: tuple[Callable[[Task], bool], ...] = (lambda each: each.regression, lambda each: each.sentence2 is None)
        return len(known) >= len(GLUE_TASKS) - 1 and all(kind(own) in map(kind, known) for kind in kinds)

    @property
    def about_published_figures(self) -> bool:
        """Whether the claim compares measurements with published figures of its task."""
        return isinstance(self.expect, Figure) or QUANTITIES[self.quantity].published


@dataclass(frozen=True, repr=False)
class Case:
    """A claim on one task."""

    claim: Claim
    task: str

    def __str__(self) -> str:
        return "-".join(filter(None, (self.claim.id, self.task, self.claim.variant)))

    __repr__ = __str__

    @property
    def figure(self) -> TaskFigure:
        """The published figure on this task; empty for the user's own tasks."""
        return self.claim.tasks.get(self.task) or TaskFigure()

    @property
    def unit(self) -> str:
        """The unit of the claim or, by default, of its quantity."""
        return self.claim.unit or QUANTITIES[self.claim.quantity].unit

    @property
    def seedless(self) -> bool:
        """Whether the claim's result is the same for every seed."""
        return self.claim.seedless

    @property
    def within(self) -> Ends:
        """The range of possible values of the quantity."""
        return QUANTITIES[self.claim.quantity].within(self.task)

    @property
    def smallest_effect(self) -> tuple[float, str]:
        """The smallest effect of interest and the reason for it. By default, both come from the claim's unit."""
        own = self.claim.smallest_effect
        return (own.size, own.reason) if own else smallest(self.unit)

    @property
    def definition(self) -> str:
        """A digest of everything in the claim that affects the verdict."""
        fields = self.claim.model_dump(mode="json", include=DEFINING_FIELDS)
        figure = self.figure.model_dump(mode="json", exclude={"note", "band", "second_error"})
        return digest([fields, figure, self.unit, self.smallest_effect, self.tolerance])[:12]

    @property
    def stated_tolerance(self) -> float | None:
        """The claim's own tolerance; None if the tolerance of its unit applies."""
        return self.claim.tolerance.size if self.claim.tolerance else None

    @property
    def tolerance(self) -> float:
        """How much the mean over many seeds may differ from the published figure before the claim deviates.

        By default, this is the smallest effect of interest in the claim's unit. If nothing is trained or sampled, it is
        0, because the published figure should be reproduced exactly.
        """
        if self.stated_tolerance is not None:
            return self.stated_tolerance
        return 0.0 if self.seedless else smallest(self.unit)[0]

    def band(self, confidence: float, observed: Estimate | None = None, published_error: float = 0.0) -> Ends | None:
        """Return the limits between which the quantity must lie, in its unit. See the `band` of the expectation."""
        return self.claim.expect.band(self, confidence, observed, published_error)

    @property
    def on_tasks(self) -> tuple[str, ...]:
        """The tasks on which the case is measured; empty if it is about the bare encoder or the suite itself."""
        needs = QUANTITIES[self.claim.quantity].needs
        names = (name for need in needs.values() for name in need.tasks or (need.task or self.task,))
        return tuple(dict.fromkeys(name for name in names if name != ALL_TASKS))

    def belongs_to(self, tasks: Collection[str]) -> bool:
        """Return whether the case is part of a replication on the given tasks.

        A replication includes cases on its tasks, on the bare encoder, and on groups that contain one of its tasks.
        """
        if self.task in tasks:
            return True
        return self.task == ALL_TASKS and (not self.on_tasks or not set(self.on_tasks).isdisjoint(tasks))

    def applies_to(self, architecture: str | None) -> bool:
        """Return whether the claim applies to an architecture, given by its name in transformers (such as `gpt2`)."""
        return not self.claim.architectures or architecture in self.claim.architectures

    def known(self, model: str) -> list[Known]:
        """Return the outcomes on record for this model, which is recognised by its weights."""
        names = (recorded_name(model), ANY_MODEL)
        return [known for known in self.claim.known if known.task == self.task and known.model in names]

    def known_deviation(self, model: str) -> Known | None:
        """Return the deviation on record for this model, even if it was only expected, or None."""
        return next((known for known in self.known(model) if known.status != "reproduces"), None)

    def observed_deviation(self, model: str) -> bool:
        """Return whether the current version of the claim was observed to deviate for this model."""
        known = self.known_deviation(model)
        return known is not None and (known.status, known.version) == ("deviates", self.claim.version)
