"""The base class of all measures: options, requirements, key, run, figures and remarks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from bertsecrets.errors import UserError
from bertsecrets.measures.base.figures import Figure, PaperFigure, Repeats
from bertsecrets.measures.base.needs import Requirement, Resources
from bertsecrets.models import opening
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import OpenModel
from bertsecrets.provenance import made_by
from bertsecrets.settings import Params
from bertsecrets.store.entries import Key
from bertsecrets.texts.glue import Split
from bertsecrets.texts.rows import public_origin, text_clusters
from bertsecrets.texts.tasks import TASKS, Task, task
from bertsecrets.types import InitialisationName, Measurement, Subject

Result = tuple[dict[str, Any], dict[str, np.ndarray]]  # values and samples
Section = Literal["attention", "scores"]
Results = tuple[dict[str, Result], int]  # by measure, and the number of examples


class MeasureOptions(BaseModel):
    """The options of a measure, which change what is measured. They validate the command line and the claims."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain data."""
        return self.model_dump(exclude_defaults=True)


@dataclass(frozen=True)
class Run:
    """One measurement to be made.

    `model` is the subject's model, `folder` the checkpoint (or the bare encoder) that is measured; both are None for a
    measure without model. `grid` is the folder that keeps finished parts of an ablation.
    """

    subject: Subject
    options: Any
    resources: Resources
    model: ModelRef | None = None
    folder: Path | None = None
    grid: Path | None = None

    @property
    def task(self) -> Task:
        """The subject's task."""
        return task(self.subject.task)

    @property
    def base(self) -> ModelRef:
        """The subject's model, before any training."""
        assert self.model is not None
        return self.model

    @property
    def checkpoint(self) -> Path:
        """The folder that is measured."""
        assert self.folder is not None
        return self.folder

    def open(self, attention: str) -> OpenModel:
        """Open the checkpoint, on the device, with the attention implementation named."""
        opened = opening.open_checkpoint(self.checkpoint, self.task, self.base, attention)
        return opened.to(self.resources.device)


class Measure(ABC):
    """The base class of all measures.

    Attributes:
        name: set by the decorator `measure`, as are `title`, `source` and `version`.
        section: the section of `params.yaml` that changes the result; None if no setting does.
        needs: what the measure needs besides rows and a checkpoint.
        kernel: the attention implementation that it opens models with; only `eager` exposes maps.
        on_task: it is measured on a task's rows.
        reads_model: it is measured on a model.
        reads_training_rows: it needs a task's training rows.
        seedless: no seed can change it.
        shared: several processes can work on one measurement together.
        common: all that it needs is shipped, so `measure all` runs it.
        companions: other measures that the same pass can feed.
        curves: the values that are plotted over the layers.
        passes: its approximate cost in forward passes over its examples, for plans.
        gradients: it takes gradients, so it does not run in torch's inference mode.
        paper: the figure of K19 that it replicates.
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
    reads_training_rows: ClassVar[bool] = False
    seedless: ClassVar[bool] = False
    shared: ClassVar[bool] = False
    common: ClassVar[bool] = False
    companions: ClassVar[tuple[str, ...]] = ()
    curves: ClassVar[tuple[str, ...]] = ()
    passes: ClassVar[float] = 1
    gradients: ClassVar[bool] = False
    paper: ClassVar[PaperFigure | None] = None

    # ------------------------------------------------------------------ the request

    def check_options(self, given: dict[str, Any]) -> MeasureOptions:
        """Return the options as an instance of `Options`.

        Raises:
            UserError: the measure does not have such an option, or a value is impossible.
        """
        try:
            return self.Options.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                known = ", ".join(self.Options.model_fields) or "none"
                raise UserError(f"measure {self.name} has no option {name}: it takes {known}") from error
            reason = first["msg"][:1].lower() + first["msg"][1:]
            raise UserError(f"option {name} of measure {self.name}: {reason}") from error

    def shared_options(self, options: Any) -> dict[str, Any]:
        """Return the options that companions in the same pass share; by default none."""
        return {}

    @property
    def compares(self) -> bool:
        """True if the measure compares the subject's checkpoint with the pretrained model."""
        return any(need.compares for need in self.needs)

    def fits(self, initialisation: InitialisationName) -> bool:
        """Return whether subjects of this initialisation can be measured."""
        return get_initialisation(initialisation).trains or not self.compares

    def check_request(
        self, task_name: str | None, initialisation: InitialisationName, seed: int, *, checkpoint: Path | None
    ) -> None:
        """Check that task, initialisation, seed and checkpoint make sense for this measure.

        Args:
            task_name: None if no task was named.
            checkpoint: the folder to measure instead of the subject's own checkpoint, if there is one.

        Raises:
            UserError: they do not.
        """
        if self.on_task and task_name is None:
            raise UserError(f"measure {self.name} needs --task: give one of {', '.join(TASKS)}")
        if not self.on_task and (task_name, initialisation, seed) != (None, "pretrained", 1):
            raise UserError(f"measure {self.name} uses no task and no training: leave out --task, --init and --seed")
        if not self.reads_model and checkpoint is not None:
            raise UserError(f"measure {self.name} uses no model: leave out --checkpoint")
        if not self.fits(initialisation) and checkpoint is None:
            raise UserError(f"measure {self.name} compares with the untrained model: choose another --init")

    def variants(self, settings: Params) -> list[dict[str, Any]]:
        """Return the sets of options with which `measure all` runs this measure."""
        return [{}]

    def missing(self, resources: Resources, task_name: str) -> str | None:
        """Return why the measure cannot be run on a task; None if it can."""
        training = True if self.reads_training_rows else None
        if self.on_task and (problem := resources.rows.missing(task_name, training=training)):
            return problem
        return next(filter(None, (need.missing(resources) for need in self.needs)), None)

    def check_model(self, classifier: OpenModel) -> None:  # noqa: B027 - some measures need nothing of it
        """Check on two short examples that the measure is possible on a model.

        Args:
            classifier: opened with the measure's `kernel`, trained or not.

        Raises:
            UserError: it is not.
        """

    # ------------------------------------------------------------------ the key

    def most(self, settings: Params) -> int | None:
        """Return how many rows are measured at most, whatever the limits of a run; None for all."""
        return None

    def rows(self, run: Run) -> Split:
        """Return the validation rows that are measured."""
        return run.resources.rows.split(run.subject.task, "dev", self.most(run.resources.settings))

    def fingerprint(self, run: Run) -> str:
        """Return a digest of the texts that are measured."""
        return self.rows(run).fingerprint

    def own_settings(self, settings: Params) -> dict[str, Any]:
        """Return the part of `params.yaml` that changes the result."""
        return getattr(settings, self.section).model_dump() if self.section else {}

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return the settings that change the result, including the facts of all requirements."""
        facts = [need.settings(resources) for need in self.needs]
        return self.own_settings(resources.settings) | {
            name: fact for requirement in facts for name, fact in requirement.items()
        }

    def inputs(self, run: Run) -> dict[str, Any]:
        """Return everything that determines the result except the code and device, as data."""
        inputs: dict[str, Any] = {
            "measure": self.name,
            "version": self.version,
            "data": self.fingerprint(run),
            "settings": self.settings(run.resources),
        }
        if not self.reads_model:  # measured once, since no model changes it
            return inputs
        checkpoint = ModelRef.in_folder(run.checkpoint)
        return inputs | {
            "task": run.subject.task,
            "checkpoint": checkpoint.identity(),
            "tokenizer": checkpoint.tokenizer() or run.base.tokenizer(),
            "base": [run.base.identity(), run.base.tokenizer()] if self.compares else None,
            "options": run.options.given(),
            "device": run.resources.device.type,
        }

    def made_by(self, device: torch.device | None) -> dict[str, Any]:
        """Return what computes the result: code, libraries and, if it reads a model, the device."""
        return made_by(type(self).__module__, device if self.reads_model else None)

    def key(self, run: Run) -> Key:
        """Return everything that determines the result."""
        return Key(self.inputs(run), self.made_by(run.resources.device))

    def data_facts(self, run: Run) -> dict[str, Any]:
        """Return origin, fingerprint, status and limit of the data, for the provenance.

        The limit is the number of rows if limits of the run leave some out.
        """
        rows, whole = self.rows(run), len(run.resources.rows.whole(run.subject.task, "dev"))
        unlimited = min(whole, self.most(run.resources.settings) or whole)
        return {
            "data": public_origin(rows),
            "data_fingerprint": rows.fingerprint,
            "official_data": rows.official,
            "made_up_data": rows.made_up,
            "limit": len(rows) if len(rows) < unlimited else None,
        }

    # ------------------------------------------------------------------ the result

    @abstractmethod
    def run(self, run: Run) -> Results:
        """Return values and samples, by measure (this one and its companions), and the number of examples.

        Raises:
            UserError: the measure is impossible on this model or these data.
        """

    def results(self, run: Run) -> Results:
        """Return what `run` returns; results on a task's rows also have `cluster`, which marks rows that share a text.

        Raises:
            UserError: as `run`.
        """
        results, examples = self.run(run)
        if not self.on_task or len(rows := self.rows(run)) != examples:
            return results, examples
        clusters = text_clusters(rows)
        marked = {name: (values, {**samples, "cluster": clusters}) for name, (values, samples) in results.items()}
        return marked, examples

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        """Yield the figures of a measurement, as data; the report draws them."""
        yield from ()

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        """Yield the paper's figure (`paper`) and the same figure of these measurements, the mean over their seeds."""
        yield from ()

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return why the measured model has collapsed, so that no claim can be judged on it; None if it has not."""
        return None

    def remarks(self, measurement: Measurement) -> list[str]:
        """Return remarks for every verdict on this measurement."""
        return []
