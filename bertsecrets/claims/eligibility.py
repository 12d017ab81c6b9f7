"""Whether a case can be judged. `requirements.eligibility` determines this before anything is measured."""

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from bertsecrets.claims.reasons import Cause, Grounds
from bertsecrets.claims.schema import Case
from bertsecrets.models.locations import published_identities
from bertsecrets.texts.tasks import TASKS, own_task_names
from bertsecrets.types import Measurement


@dataclass(frozen=True)
class Eligible:
    """The case can be judged."""


@dataclass(frozen=True)
class Skipped:
    """The case cannot be judged because data or a tool is missing."""

    reason: str


@dataclass(frozen=True)
class NotApplicable:
    """The case does not apply to this model."""

    cause: Cause

    @property
    def reason(self) -> str:
        """The cause as text."""
        return str(self.cause)


Eligibility = Eligible | Skipped | NotApplicable


def about_other_architecture(answer: Eligibility) -> TypeGuard[NotApplicable]:
    """Return whether a case is only about architectures other than the model's. Reports leave out such cases."""
    return isinstance(answer, NotApplicable) and answer.cause.grounds == Grounds.OTHER_ARCHITECTURE


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model that claims may depend on: its architecture, weights, and numbers of layers and heads.

    A fact is None if it is unknown or not required. If the shape is unknown, the model is assumed to fit every required
    shape until it is `measured`, and none afterwards.
    """

    architecture: str | None = None
    weights: str | None = None
    shape: tuple[int, ...] | None = None  # only layers if the number of heads is unknown
    measured: bool = False

    @classmethod
    def of_measurement(cls, measurement: Measurement, measure: str = "") -> "ModelFacts":
        """Return the facts that a measurement records. `measure` defaults to `measurement.measure`."""
        recorded = measurement.provenance
        shape = next((np.shape(value) for value in measurement.values.values() if np.ndim(value) == 2), None)
        if (measure or measurement.measure) == "layer-ablation":  # one value per layer
            shape = (int(np.size(measurement.value("score"))),)
        return cls(recorded.architecture, recorded.weights, shape, measured=True)

    def fits(self, wanted: tuple[int, int]) -> bool:
        """Return whether the model has the wanted numbers of layers and, if known, of heads per layer."""
        if self.shape is None:
            return not self.measured
        return self.shape == wanted[: len(self.shape)]


def applicability(case: Case, model: ModelFacts) -> Eligible | NotApplicable:
    """Return whether a case applies to a model and, if not, why."""
    claim = case.claim
    if not case.applies_to(model.architecture):
        wanted, architecture = " and ".join(claim.architectures), model.architecture or "unknown"
        return NotApplicable(Grounds.OTHER_ARCHITECTURE(wanted=wanted, architecture=architecture))
    if case.task in own_task_names() and claim.about_published_figures:
        title = TASKS[case.task].title
        return NotApplicable(Grounds.NOT_APPLICABLE(message=f"compares with published figures, which {title} lacks"))
    instead = f"; {claim.relative} is the same claim for any " if claim.relative else ""
    if claim.needs_weights and model.weights not in (None, *published_identities(claim.needs_weights)):
        instead = instead and f"{instead}model"
        return NotApplicable(Grounds.OTHER_WEIGHTS(wanted=claim.needs_weights, instead=instead))
    if claim.needs_shape and not model.fits(claim.needs_shape):
        layers, heads = claim.needs_shape
        has = "the model has " + " x ".join(map(str, model.shape)) if model.shape else "the model's are unknown"
        has += " layers" if model.shape and len(model.shape) == 1 else ""
        instead = instead and f"{instead}shape"
        return NotApplicable(Grounds.OTHER_SHAPE(layers=layers, heads=heads, has=has, instead=instead))
    return Eligible()
