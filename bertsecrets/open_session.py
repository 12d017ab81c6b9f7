"""An open session: options, data, models and store, and the measurements made with them.

Before anything is trained or measured, the session's caches (`bertsecrets.caches`) look for the result in the store, so
that no work is repeated.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, Self

from torch import nn

from bertsecrets.arguments import checked
from bertsecrets.caches import CheckpointCache, MeasurementCache
from bertsecrets.cores import share_cores, use_threads
from bertsecrets.devices import best_device, in_precision
from bertsecrets.errors import MissingError, NotApplicableError, NotGivenError, UserError, near_matches
from bertsecrets.measures.base import Measure, Resources
from bertsecrets.measures.base.needs import pipeline_facts
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import configuration, opening
from bertsecrets.models.families import full_name
from bertsecrets.models.in_memory import Held, check_tokenizer
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import locate, locator
from bertsecrets.option_checks import check_threads
from bertsecrets.options import DEFAULT_PIPELINE, RunOptions, several
from bertsecrets.progress import log
from bertsecrets.provenance import suite_commit
from bertsecrets.reading import expanded, working_directory
from bertsecrets.settings import Params, load_settings
from bertsecrets.store.entries import Store
from bertsecrets.store.files import copy_whole, temporary_folder
from bertsecrets.store.locks import one_thread
from bertsecrets.texts.framenet_xml import check_frames
from bertsecrets.texts.rows import TaskRows
from bertsecrets.texts.tasks import register_tasks
from bertsecrets.texts.tasks import task as task_named
from bertsecrets.types import AUTO, Measurement, Request, Subject

TRIED_ROWS = 1  # number of rows on which to try a model in memory that has custom code


def log_unstored(*objects: Held) -> None:
    reason = next(held.difference for held in objects if held.difference)
    log.info(f"the object in memory itself is measured, because {reason}: results are not stored")


def with_absolute_paths(options: RunOptions) -> RunOptions:
    """Return the options with absolute paths, so that they work in any working directory."""
    folders = {name: getattr(options, name) for name in ("model", "spacy")}
    return replace(
        options,
        store=os.path.abspath(options.store_folder),
        glue=tuple(map(os.path.abspath, options.glue_folders)) or options.glue,
        task_file=tuple(os.path.abspath(expanded(file)) for file in several(options.task_file)) or None,
        frames=os.path.abspath(options.frames_path) if options.frames_path else None,
        **{name: os.path.abspath(value) for name, value in folders.items() if value and os.path.isdir(value)},
    )


class OpenSession:
    """The part of a `Session` that opens its data, models and store, and that makes measurements."""

    @checked
    def __init__(
        self, options: RunOptions | None = None, *, settings: Params | None = None, tokenizer: Any = None, **given: Any
    ):
        """Open a session.

        Args:
            options: Options of the run.
            given: Options as keyword arguments (`model`, `glue`, `limit`, ...), which override `options`. `model` and
                `checkpoint` can also be models in memory.
            settings: Settings to use instead of those in `params.yaml`.
            tokenizer: The tokenizer of a model in memory. By default, a checkpoint uses the tokenizer of its
                pretrained model.

        Raises:
            UserError: If an option is invalid, or names something that does not exist.
        """
        names = {field.name: None for field in fields(RunOptions)}
        for name in given.keys() - names:
            raise UserError(f"unknown option {name!r}: {near_matches(name, names)}")
        objects = {name: given[name] for name in ("model", "checkpoint") if isinstance(given.get(name), nn.Module)}
        given |= {name: f"{type(model).__name__}-in-memory" for name, model in objects.items()}
        check_tokenizer(tokenizer)
        if tokenizer is not None and not objects:
            raise UserError("the option `tokenizer` has no effect unless the model is in memory: leave out `tokenizer`")
        self.options = replace(options, **given) if options else RunOptions(**given)
        options, self.settings = self.options, settings or load_settings()
        if options.budget is not None and self.wanted_seeds != AUTO:
            raise UserError(
                f"the option `budget` has no effect unless `seeds` is {AUTO}: set `seeds` to {AUTO}, or leave out "
                "`budget`"
            )
        device = best_device(options.device)
        self.settings = in_precision(self.settings, options.precision, device)
        check_threads(options.threads)
        self.jobs, threads = share_cores(options.wanted_jobs, options.threads, device)
        self.options = options = replace(options, threads=threads)
        use_threads(threads)  # part of the cache keys
        if options.spacy:
            pipeline_facts(options.spacy)
        register_tasks(options.tasks)
        self.folder = working_directory()  # where relative paths start, even if the process changes it later
        options.source()  # checks the folders, and names the environment variable if one of them is missing
        lasting = self._lasting_options = with_absolute_paths(options)
        source, frames = lasting.source(), lasting.frames_path
        if options.frames_path is not None:
            with options.errors_about("frames"):
                check_frames(options.frames_path, read=options.frames is not None)
        if os.path.lexists(options.store_folder) and not options.store_folder.is_dir():
            with options.errors_about("store"):
                problem = "a file exists where a folder is needed: choose another location"
                raise UserError(f"cannot use the store {options.store_folder}: {problem}")
        trains = options.checkpoint is None
        rows = TaskRows(source, options.limit, options.train_limit, options.grid_limit, trains=trains)
        self._judged_folder = None if options.checkpoint is None else Path(options.checkpoint).absolute()
        self._objects: dict[str, Held] = {}
        base: Path | str | None = options.model
        if "model" in objects:
            self._objects["model"] = Held(objects["model"], tokenizer)
            base = self._objects["model"].folder
        if "checkpoint" in objects:
            ref = locate(str(base), options.offline) if base else None
            tried = rows.split(options.scope[0], "dev", TRIED_ROWS)
            self._objects["checkpoint"] = Held(objects["checkpoint"], tokenizer, ref, tried)
            self._judged_folder = self._objects["checkpoint"].folder
            base = base or self._judged_folder
        self.ref = locator({options.judged: str(base)} if options.judged and base else {}, options.offline)
        self.store = Store(lasting.store_folder)
        self._storable = all(held.storable for held in self._objects.values())
        if not self._storable:
            log_unstored(*self._objects.values())
            self.store = Store(temporary_folder(self))
        self.resources = Resources(
            rows=rows,
            settings=self.settings,
            device=device,
            kept=self.store.root,
            frames=frames,
            spacy=lasting.spacy or DEFAULT_PIPELINE,
            grid_precision="bfloat16" if options.precision == "bfloat16" else "float32",  # `auto` means float32 here
        )
        self._complete: set[tuple[str, str]] = set()  # measures and tasks for which nothing is missing
        self.checkpoints = CheckpointCache(self.store, self.resources, self.ref, self._refusal())
        self.measurements = MeasurementCache(self.checkpoints, self._measured_folder)
        self._measuring = False  # whether the models in memory are available, see `_measured`

    def __repr__(self) -> str:
        return f"<Session of {self.model}, store {self.store.root}>"

    def __copy__(self) -> Self:
        session = object.__new__(type(self))
        vars(session).update(vars(self))
        return session

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be sent to another process: send its options, and open a session there")

    @property
    def model(self) -> str:
        """The judged model: the checkpoint or model in the options, otherwise the model in `params.yaml`."""
        return self.options.judged or full_name(self.settings.model)

    @property
    def commits(self) -> list[str]:
        """The git commit of the suite; empty if it is unknown."""
        commit, _ = suite_commit()
        return [commit] if commit else []

    @property
    def wanted_seeds(self) -> int | str | list[int]:
        """The seeds as given in the options or in `params.yaml`: a number of seeds, a list, or `auto`."""
        return [1] if self.options.checkpoint is not None else self.options.seeds or self.settings.seeds

    @property
    def shape(self) -> tuple[int, int] | None:
        """The model's number of layers and of heads per layer; None if they are unknown."""
        try:
            return configuration.shape_of(self.ref(self.model))
        except UserError:
            return None

    def check_model(self, model: str | None = None) -> None:
        """Check, before long work starts, that a model is available. The default is the judged model or checkpoint.

        Raises:
            UserError: If the model is not available, or if the checkpoint was not trained for the task of the session.
        """
        if (checkpoint := self._judged_folder) is None or model is not None:
            configuration.open_config(self.ref(model or self.model))
            return
        of_task = task_named(self.options.scope[0])
        opening.open_checkpoint_config(checkpoint, of_task)  # the folder may be missing
        opening.check_base(checkpoint, of_task, self.ref(self.model))
        opening.open_checkpoint(checkpoint, of_task, self.ref(self.model))  # reads all weights

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return what a measure on a task lacks (data, frames or spaCy), or None if nothing is missing."""
        if (measure, task_name) in self._complete:
            return None
        problem = get_measure(measure).missing(self.resources, task_name)
        if problem is None:
            self._complete.add((measure, task_name))
        return problem

    def checkpoint(self, subject: Subject) -> Path:
        """Return the folder of a subject's checkpoint, training it if it is not in the store."""
        return self.checkpoints.get(subject)

    def export_checkpoint(self, subject: Subject, folder: Path) -> Path:
        """Write a subject's checkpoint to a folder, completely or not at all."""
        with self.checkpoints.in_use(subject) as source:
            copy_whole(source, folder)
        return folder

    def measurement(
        self, measure: str, subject: Subject, checkpoint: Path | None = None, **options: Any
    ) -> Measurement:
        """Return a subject's measurement, making it if it is not in the store.

        Args:
            checkpoint: Folder of a model to measure instead of the subject's checkpoint.
            options: Options for the measure, such as `padded_to=200` for `attention-change`.

        Raises:
            UserError: If the measure or an option is unknown, or if data, a model or a tool is missing.
        """
        with self._measured():
            measurement = self.measurements.get(Request(measure, subject, tuple(options.items())), checkpoint)
        return measurement if self._storable else without_place(measurement)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Make the session's models in memory available, and their results reusable, until the outermost block ends."""
        if not self._objects:
            yield
            return
        with one_thread(), ExitStack() as stack:
            if self._measuring:
                yield
                return
            for held in self._objects.values():
                stack.enter_context(held.measured())
            if not self._storable:
                self.measurements = MeasurementCache(self.checkpoints, self._measured_folder)
                self.measurements.store = Store(Path(stack.enter_context(TemporaryDirectory())))
            self._measuring = True
            stack.callback(setattr, self, "_measuring", False)
            yield

    def _refusal(self) -> str:
        """Return why the session's model cannot be trained, or "" if it can. Training opens the model's saved files."""
        held = self._objects.get("model")
        if held is None or held.storable:
            return ""
        return (
            f"{held.name} cannot be fine-tuned from its saved form, because {held.difference}: fine-tune the model "
            "yourself, and give the fine-tuned model as the checkpoint"
        )

    def example_maps(self, subject: Subject) -> Measurement:
        """Return a subject's attention maps for the attention viewer of the report page, without training a checkpoint.

        Raises:
            UserError: If the checkpoint was not kept, or if the maps cannot be measured.
        """
        stored = self.measurements.stored(Request("example-maps", subject)) or self.checkpoints.find(
            subject, verify=False
        )
        if self.options.checkpoint is None and stored is None:
            raise MissingError("its checkpoint was not kept")
        return self.measurement("example-maps", subject)

    def delete_checkpoints(self, subjects: Iterable[Subject]) -> None:
        """If `keep_checkpoints` is `none`, delete the checkpoints of these subjects unless they are still needed."""
        if self.options.keep_checkpoints == "none":
            self.checkpoints.delete(subjects)

    def close(self) -> None:
        """If `keep_checkpoints` is `none`, delete all measured checkpoints. A `with` block calls `close` at its end."""
        self.delete_checkpoints(list(self.checkpoints.used))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _measured_folder(self, measure: Measure, subject: Subject) -> Path | None:
        """Return the folder of the judged checkpoint, or None if the measure does not read this checkpoint."""
        if self._judged_folder is None or not measure.reads_model:
            return None
        initial = get_initialisation(subject.initialisation)
        of_base = not measure.on_task or not initial.trains
        if (of_base or measure.compares) and self.options.model is None:
            raise NotGivenError("needs the pretrained model: name it with the option `model`")
        if measure.on_task and [subject.task] != self.options.scope:
            raise NotApplicableError(f"needs another checkpoint, fine-tuned on {task_named(subject.task).title}")
        if initial.trains and initial.name != "pretrained":
            raise NotApplicableError(f"needs {initial.title}, not the given checkpoint")
        return None if of_base else self._judged_folder


def without_place(measurement: Measurement) -> Measurement:
    """Return a copy of an unstored measurement without its temporary folder and the identity of its weights."""
    return replace(measurement, provenance=replace(measurement.provenance, weights=None), origin="")
