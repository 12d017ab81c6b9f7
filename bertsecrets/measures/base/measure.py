"""Base classes for all measures and their options, and a class that describes a measurement to run."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from bertsecrets.errors import UserError
from bertsecrets.measures.base.figures import Figure, PaperFigure, Repeats
from bertsecrets.measures.base.needs import Requirement, Resources
from bertsecrets.measures.base.observers import heads_without_numbers
from bertsecrets.models import opening
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import OpenModel
from bertsecrets.provenance import made_by
from bertsecrets.settings import Params
from bertsecrets.store.code import has_source
from bertsecrets.store.entries import Key
from bertsecrets.texts.glue import Split
from bertsecrets.texts.rows import public_origin, text_clusters
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, Task, task
from bertsecrets.types import InitialisationName, Measurement, Subject, plain

Result = tuple[dict[str, Any], dict[str, np.ndarray]]  # values and samples
Section = Literal["attention", "scores"]
Results = tuple[dict[str, Result], int]  # results by measure, and the number of examples


class MeasureOptions(BaseModel):
    """Options that change what is measured. Values from the command line and from claims are validated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any, checked: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(checked.field_name)].annotation is not bool:
            raise PydanticCustomError("bool", "it must be a number or a name, not {value}", {"value": str(value)})
        return plain(value)

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain data."""
        return self.model_dump(exclude_defaults=True)


@dataclass(frozen=True)
class MeasureContext:
    """A measurement to run, with everything that it needs.

    `model` is the subject's model, or None for measures that use no model. For a checkpoint made by the suite, `recipe`
    is the checkpoint's cache key, and `folder` is None until the checkpoint is needed. In all other cases, `recipe` is
    None, and `folder` contains the measured checkpoint or encoder. `grid` is the folder in which an ablation stores
    the predictions that it has already computed.
    """

    subject: Subject
    options: Any
    resources: Resources
    model: ModelRef | None = None
    folder: Path | None = None
    grid: Path | None = None
    recipe: Key | None = None

    @property
    def task(self) -> Task:
        """The subject's task."""
        return task(self.subject.task)

    @property
    def measured(self) -> str:
        """The name of the subject. For checkpoints trained by another program, the name of the checkpoint's folder."""
        own = self.recipe is not None or self.folder is None or self.subject.task == ALL_TASKS
        return str(self.subject) if own or self.folder is None else self.folder.name

    @property
    def base(self) -> ModelRef:
        """The subject's model, before any training."""
        assert self.model is not None
        return self.model

    @property
    def checkpoint(self) -> Path:
        """The folder of the measured checkpoint or encoder."""
        assert self.folder is not None
        return self.folder

    def open(self, attention: str) -> OpenModel:
        """Open the checkpoint on the device, with the given attention implementation."""
        opened = opening.open_checkpoint(self.checkpoint, self.task, self.base, attention)
        return opened.to(self.resources.device)


class Measure(ABC):
    """The base class of all measures.

    Attributes:
        name: Name of the measure. Like `title`, `source` and `version`, the name is set by the decorator `measure`.
        section: Section of `params.yaml` that affects the result, or None if no section does.
        needs: What the measure requires in addition to rows and a checkpoint.
        kernel: Attention implementation for opening models. Only `eager` exposes maps.
        on_task: Whether the measure uses a task's rows.
        reads_model: Whether the measure uses a model.
        compares: Whether the measure compares the subject's checkpoint with the pretrained model.
        seedless: Whether the measure is independent of the seed.
        shared: Whether multiple processes can work on the same measurement.
        common: Whether `measure all` includes the measure. This must be False for measures with external requirements,
            such as a spaCy pipeline.
        companions: Other measures that can share the same pass.
        curves: Names of the values that are plotted by layer.
        gradients: Whether the measure needs gradients, and so cannot run in torch's inference mode.
        paper: Figure of K19 that the measure replicates.
        axes: Names of the dimensions of array values. `Measurement.to_frame` uses these names to identify rows.
        other_axes: For each value whose dimensions are not those in `axes`, the names of the value's dimensions.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[int]
    Options: ClassVar[type[MeasureOptions]] = MeasureOptions
    section: ClassVar[Section | None]
    needs: ClassVar[tuple[Requirement, ...]] = ()
    kernel: ClassVar[str] = "sdpa"
    on_task: ClassVar[bool] = True
    reads_model: ClassVar[bool] = True
    compares: ClassVar[bool] = False
    seedless: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    common: ClassVar[bool] = False
    companions: ClassVar[tuple[str, ...]] = ()
    curves: ClassVar[tuple[str, ...]] = ()
    gradients: ClassVar[bool] = False
    paper: ClassVar[PaperFigure | None] = None
    axes: ClassVar[tuple[str, ...]] = ()
    other_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    # ------------------------------------------------------------------ the request

    def check_options(self, given: dict[str, Any]) -> MeasureOptions:
        """Return the options as an instance of `Options`.

        Raises:
            UserError: an option does not exist, or its value is invalid.
        """
        try:
            return self.Options.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                known = ", ".join(self.Options.model_fields) or "none"
                raise UserError(f"measure {self.name} has no option {name}; available options: {known}") from error
            reason = first["msg"][:1].lower() + first["msg"][1:]
            raise UserError(f"option {name} of measure {self.name}: {reason}") from error

    def shared_options(self, options: Any) -> dict[str, Any]:
        """Return the options that also apply to the other measures in the same pass. By default, no option does."""
        return {}

    def fits(self, initialisation: InitialisationName) -> bool:
        """Return whether subjects with this initialisation can be measured."""
        return get_initialisation(initialisation).trains or not self.compares

    def check_request(
        self, task_name: str | None, initialisation: InitialisationName, seed: int, *, checkpoint: object
    ) -> None:
        """Check that the measure supports this combination of task, initialisation, seed and checkpoint.

        Args:
            task_name: Name of the task, or None if no task was given.
            checkpoint: Checkpoint to measure instead of the subject's own checkpoint, or None.

        Raises:
            UserError: the combination is not supported.
        """
        if self.on_task and task_name is None:
            raise UserError(f"measure {self.name} needs a task: choose one of {', '.join(TASKS)}")
        if not self.on_task and (task_name, initialisation, seed) != (None, "pretrained", 1):
            raise UserError(f"measure {self.name} uses no task and no training: leave out task, init and seed")
        if not self.reads_model and checkpoint is not None:
            raise UserError(f"measure {self.name} uses no model: leave out checkpoint")
        if not self.fits(initialisation) and checkpoint is None:
            raise UserError(
                f"measure {self.name} compares a trained model with the pretrained one: "
                "choose an initialisation that involves training"
            )

    def variants(self, settings: Params) -> list[dict[str, Any]]:
        """Return the option sets that `measure all` uses for this measure."""
        return [{}]

    def missing(self, resources: Resources, task_name: str) -> str | None:
        """Return why the measure cannot run on a task, or None if it can."""
        if self.on_task and (problem := resources.rows.missing(task_name)):
            return problem
        try:
            for need in self.needs:
                need.check(resources)
        except UserError as error:
            return str(error)
        return None

    def check_model(self, classifier: OpenModel) -> None:  # noqa: B027 - some measures have nothing to check
        """Check on two short examples that the measure supports a model.

        Args:
            classifier: Trained or untrained classifier, opened with the measure's `kernel`.

        Raises:
            UserError: the measure does not support the model.
        """

    # ------------------------------------------------------------------ the key

    def most(self, settings: Params) -> int | None:
        """Return the maximum number of rows that the settings allow, or None if they set no maximum.

        Limits set for a particular run are ignored. By default, only the section `attention` sets a maximum.
        """
        return settings.attention.examples if self.section == "attention" else None

    def rows(self, context: MeasureContext) -> Split:
        """Return the validation rows to measure."""
        return context.resources.rows.split(context.subject.task, "dev", self.most(context.resources.settings))

    def fingerprint(self, context: MeasureContext) -> str:
        """Return a digest of the measured texts."""
        return self.rows(context).fingerprint

    def own_settings(self, settings: Params) -> dict[str, Any]:
        """Return the settings in `params.yaml` that affect the result."""
        return getattr(settings, self.section).model_dump() if self.section else {}

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return all settings that affect the result, and the facts about all requirements."""
        settings = self.own_settings(resources.settings)
        for need in self.needs:
            settings |= need.settings(resources)
        return settings

    def inputs(self, context: MeasureContext) -> dict[str, Any]:
        """Return the facts that determine the result, as JSON data. Facts from `made_by` are not included."""
        inputs: dict[str, Any] = {
            "measure": self.name,
            "version": self.version,
            "data": self.fingerprint(context),
            "settings": self.settings(context.resources),
        }
        if not self.reads_model:  # measured once for all models
            return inputs
        inputs |= {
            "task": context.subject.task,
            "options": context.options.given(),
            "device": context.resources.device.type,
        }
        if context.recipe is not None:  # contains the model, its tokenizer, the initialisation and the seed
            return inputs | {"checkpoint": context.recipe.as_json()}
        checkpoint = ModelRef.in_folder(context.checkpoint)
        return inputs | {
            "checkpoint": checkpoint.identity(),
            "tokenizer": checkpoint.tokenizer() or context.base.tokenizer(),
            "base": [context.base.identity(), context.base.tokenizer()] if self.compares else None,
        }

    def made_by(self, device: torch.device | None) -> dict[str, Any]:
        """Return facts about the code and the libraries and, for measures that use a model, about the device."""
        facts = made_by(type(self).__module__, device if self.reads_model else None)
        return facts if has_source(type(self)) else facts | {"code": None}

    def key(self, context: MeasureContext) -> Key:
        """Return the cache key of a measurement."""
        return Key(self.inputs(context), self.made_by(context.resources.device))

    def data_facts(self, context: MeasureContext) -> dict[str, Any]:
        """Return the data's origin, fingerprint, status and limit for the provenance record.

        If fewer rows were measured than the settings allow, the limit is the number of measured rows. Otherwise, the
        limit is None.
        """
        rows, available = self.rows(context), len(context.resources.rows.whole(context.subject.task, "dev"))
        unlimited = min(available, self.most(context.resources.settings) or available)
        return {
            "data": public_origin(rows),
            "data_fingerprint": rows.fingerprint,
            "official_data": rows.official,
            "made_up_data": rows.made_up,
            "limit": len(rows) if len(rows) < unlimited else None,
        }

    # ------------------------------------------------------------------ the result

    def axes_of(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the `axes` of a measurement, given its options."""
        return self.axes

    @abstractmethod
    def run(self, context: MeasureContext) -> Results:
        """Return the values and samples of this measure and its companions, and the number of examples.

        Raises:
            UserError: the measure cannot be computed for this model or data.
        """

    def results(self, context: MeasureContext) -> Results:
        """Run the measure. Add the sample `cluster` to measures of a task: equal numbers for rows that share a text."""
        results, examples = self.run(context)
        if not self.on_task or len(rows := self.rows(context)) != examples:
            return results, examples
        clusters = text_clusters(rows)
        marked = {name: (values, {**samples, "cluster": clusters}) for name, (values, samples) in results.items()}
        return marked, examples

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield a measurement's charts as data. The report draws them."""
        yield from ()

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield the chart that K19 published, and then a chart of the same kind for the mean of these measurements."""
        yield from ()

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return a description of how the model has collapsed, or None if it has not.

        Claims about collapsed models are not judged. By default, a model has collapsed if, for any example, some heads
        have a value and other heads have none.
        """
        return heads_without_numbers(measurement)

    def remarks(self, measurement: Measurement) -> list[str]:
        """Return remarks that accompany every verdict on this measurement."""
        return []
