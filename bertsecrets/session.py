"""Sessions, used by the command line, the pytest plugin and Python code to measure subjects and judge claims.

A session holds the options, the data, the models and the store. Before anything is trained or measured, the session's
caches (`bertsecrets.caches`) look for the result in the store, so that no work is repeated.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from bertsecrets.arguments import checked
from bertsecrets.caches import CheckpointCache, MeasurementCache
from bertsecrets.claims import requirements
from bertsecrets.claims.eligibility import Eligibility, ModelFacts, Skipped
from bertsecrets.claims.judge import judge, until_replaced
from bertsecrets.claims.loading import find_case, select_cases
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import ANALYSES, MOST_REPLACED
from bertsecrets.claims.verdict import Verdict, rows_of
from bertsecrets.cores import share_cores, use_threads
from bertsecrets.devices import best_device, in_precision
from bertsecrets.errors import MissingError, NotApplicableError, NotGivenError, UserError, near_matches
from bertsecrets.judging import JudgedRun, Verdicts, skipped
from bertsecrets.measures.base import Measure, Resources
from bertsecrets.measures.base.needs import pipeline_problem
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import configuration, opening
from bertsecrets.models.families import full_name
from bertsecrets.models.in_memory import Held, check_tokenizer
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import locate, locator
from bertsecrets.option_checks import check_initialisation, check_seed, check_threads, seed_range
from bertsecrets.options import DEFAULT_PIPELINE, TRAINING_OPTIONS, RunOptions
from bertsecrets.progress import log
from bertsecrets.provenance import suite_commit
from bertsecrets.reading import expanded, seconds
from bertsecrets.report import show_in_notebooks
from bertsecrets.settings import Params, load_settings
from bertsecrets.store.entries import Store
from bertsecrets.store.files import copy_whole, temporary_folder
from bertsecrets.texts.framenet_xml import check_frames
from bertsecrets.texts.rows import TaskRows
from bertsecrets.texts.tasks import ALL_TASKS, GLUE_TASKS, register_tasks
from bertsecrets.texts.tasks import task as task_named
from bertsecrets.types import AUTO, Measurement, Request, Subject

TRIED_ROWS = 1  # number of rows on which to try a model in memory that has custom code

show_in_notebooks()


def _log_unstored(*objects: Held) -> None:
    reason = next(held.difference for held in objects if held.difference)
    log.info(f"the object in memory itself is measured, because {reason}: results are not stored")


class Session:
    """A session, which measures and judges with one set of options: model, data, device and store.

    ```python
    import bertsecrets as bs

    session = bs.Session(model="minilm", glue="GLUE")
    session.measure("attention-change", task="rte").values["cosine"]  # [layer, head]
    session.judge("C1", task="rte", seeds=3)
    ```

    Attributes:
        options: The options, including the number of CPU threads.
        jobs: The number of jobs that the command line and pytest run at once.
    """

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
        if options.spacy and (problem := pipeline_problem(options.spacy)):
            raise UserError(problem)
        register_tasks(options.tasks)
        source, frames = options.source(), options.frames_path
        if frames is not None:
            with options.errors_about("frames"):
                check_frames(frames, read=options.frames is not None)
        if os.path.lexists(options.store_folder) and not options.store_folder.is_dir():
            with options.errors_about("store"):
                raise UserError(f"cannot use the store {options.store_folder}: a file exists where a folder is needed")
        trains = options.checkpoint is None
        rows = TaskRows(source, options.limit, options.train_limit, options.grid_limit, trains=trains)
        self._judged_folder = None if options.checkpoint is None else Path(options.checkpoint)
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
        self.store = Store(options.store_folder)
        self._storable = all(held.storable for held in self._objects.values())
        if not self._storable:
            _log_unstored(*self._objects.values())
            self.store = Store(temporary_folder(self))
        self.resources = Resources(
            rows=rows,
            settings=self.settings,
            device=device,
            kept=self.store.root,
            frames=frames,
            spacy=options.spacy or DEFAULT_PIPELINE,
            grid_precision="bfloat16" if options.precision == "bfloat16" else "float32",  # `auto` means float32 here
        )
        self._complete: set[tuple[str, str]] = set()  # measures and tasks for which nothing is missing
        self.checkpoints = CheckpointCache(self.store, self.resources, self.ref, self._refusal())
        self.measurements = MeasurementCache(self.checkpoints, self._measured_folder)
        self._measuring = False  # whether the models in memory are available, see `_measured`

    def __repr__(self) -> str:
        return f"<Session of {self.model}, store {self.store.root}>"

    @property
    def model(self) -> str:
        """The judged model: the checkpoint or model in the options, otherwise the model in `params.yaml`."""
        return self.options.judged or full_name(self.settings.model)

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds in the options or in `params.yaml`; for `auto`, the seeds of the last analysis."""
        wanted = self.wanted_seeds
        if isinstance(wanted, list):
            return wanted
        return seed_range(ANALYSES[-1] if isinstance(wanted, str) else wanted)

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
    def interims(self) -> list[Sequence[int]]:
        """The seeds of each analysis.

        If seeds are added one by one, the first analysis has one seed, and each later analysis has one more. Otherwise,
        the first analysis has all requested seeds. If the seeds are given as a number, each later analysis adds a spare
        seed. Spare seeds can replace seeds with which the model learned nothing.
        """
        wanted = self.wanted_seeds
        if isinstance(wanted, list):
            return [wanted]
        first, last = (1, ANALYSES[-1]) if isinstance(wanted, str) else (wanted, wanted)
        return [seed_range(count) for count in range(first, last + MOST_REPLACED + 1)]

    @property
    def budget(self) -> float | None:
        """The time limit for adding seeds, in seconds. None if unlimited, or if no seeds are added."""
        given = self.options.budget or self.settings.budget
        return seconds(given) if given is not None and self.wanted_seeds == AUTO else None

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

    def eligibility(self, case: Case) -> Eligibility:
        """Return whether a case can be judged: whether its inputs are available, and whether it applies to the model.

        Raises:
            UserError: If the case is only about certain architectures, and the model's architecture is unknown.
        """
        claim, facts = case.claim, ModelFacts()
        if claim.architectures:
            facts = replace(facts, architecture=configuration.open_config(self.ref(self.model)).model_type)
        if claim.needs_weights:
            with suppress(UserError):
                facts = replace(facts, weights=self.ref(self.model).identity())
        if claim.needs_shape:
            facts = replace(facts, shape=self.shape)
        return requirements.eligibility(self, case, facts)

    @property
    def shape(self) -> tuple[int, int] | None:
        """The model's number of layers and of heads per layer; None if they are unknown."""
        try:
            return configuration.shape_of(self.ref(self.model))
        except UserError:
            return None

    # ------------------------------------------------------------------ in Python

    @checked
    def subject(self, task_name: str | None, init: str = "pretrained", seed: int = 1) -> Subject:
        """Return a subject: the session's model on a task or, without a task, the bare encoder.

        Raises:
            UserError: If the task or the initialisation is unknown, or if the seed is out of range.
        """
        check_seed(seed)
        name = check_initialisation(init)
        if task_name is None:
            return Subject(self.model, ALL_TASKS, "untrained", seed)
        return Subject(self.model, task_named(task_name).name, name, seed)

    @checked
    def measure(
        self,
        measure: str,
        task: str | None = None,
        *,
        init: str = "pretrained",
        seed: int = 1,
        checkpoint: "Path | nn.Module | None" = None,
        **options: Any,
    ) -> Measurement:
        """Return a measurement of the session's model, making it if it is not in the store.

        Args:
            measure: Name of the measure, such as `attention-change`.
            task: GLUE task or own task. Leave it out for measures of the bare encoder or of the suite itself. The task
                is optional if the session is about one task.
            init: Initialisation: `pretrained`, `random`, `frozen`, `untrained`, ...
            checkpoint: Folder, or model in memory, to measure instead of a checkpoint trained by the suite.
            options: Options for the measure, such as `padded_to=200`.

        Raises:
            UserError: If the measure, the task or an option is unknown, or if data, a model or a tool is missing.
        """
        found = get_measure(measure)
        if task is None and found.on_task and len(self.options.scope) == 1:
            task = self.options.scope[0]
        subject = self.subject(task, init, seed)
        found.check_request(task, check_initialisation(init), seed, checkpoint=checkpoint)
        if not isinstance(checkpoint, nn.Module):
            return self.measurement(measure, subject, expanded(checkpoint) if checkpoint else None, **options)
        rows = self.resources.rows.split(subject.task, "dev", TRIED_ROWS) if found.on_task else None
        held = Held(checkpoint, None, self.ref(self.model), rows)
        if held.storable and self._storable:
            return self.measurement(measure, subject, held.folder, **options)
        _log_unstored(held, *self._objects.values())
        with TemporaryDirectory() as place, self._measured(), held.measured():
            resources = replace(self.resources, kept=Path(place))
            cache = CheckpointCache(Store(Path(place)), resources, self.ref)
            request = Request(measure, subject, tuple(options.items()))
            return _without_place(MeasurementCache(cache).get(request, held.folder))

    @checked
    def judge(
        self,
        claim: str,
        task: str | None = None,
        *,
        seeds: int | None = None,
        checkpoint: "Path | nn.Module | None" = None,
    ) -> Verdict:
        """Return the verdict on a claim, making measurements that are not in the store.

        Args:
            claim: Claim id (`C1`), including the variant if there are several (`D1-untrained`).
            task: One of the claim's tasks. The task may be left out if the claim has only one task, or if the session
                is about a single task.
            seeds: If given, judge on seeds 1 to `seeds` instead of the session's seeds. If the session's seeds are
                `auto`, seeds are added until the claim is decided. A seed is not added if it would exceed the budget,
                assuming that it takes as long as the last seed.
            checkpoint: Folder, or model in memory, to judge instead of checkpoints that the suite trains.

        Raises:
            UserError: If the claim is unknown or ambiguous; if data, a model or a tool is missing; or if `seeds` is
                given although the session judges a single checkpoint.
        """
        session = self._with(checkpoint, task, seeds)
        case = find_case(claim, task, session.options.scope)
        with session._measured():
            result = JudgedRun(session, [case]).result(case)
        if isinstance(result, Skipped):
            raise MissingError(result.reason)
        if result.error is not None:
            raise result.error
        return result

    @checked
    def judge_all(
        self,
        task: str | None = None,
        claims: Iterable[str] | str | None = None,
        *,
        seeds: int | None = None,
        checkpoint: "Path | nn.Module | None" = None,
    ) -> Verdicts:
        """Return the verdicts on all claims that can be judged on the model, and log which claims are skipped.

        Args:
            task: Judge only claims on this task and claims about the bare encoder. The default is the task of the
                session's checkpoint. Without a checkpoint, all of the user's own tasks are judged or, if there are
                none, all GLUE tasks.
            claims: If given, only these claims or families are judged, such as `["C", "D1"]` or `"C"`.
            seeds: As in `judge`.
            checkpoint: As in `judge`.

        Raises:
            UserError: If the task or a claim is unknown, or if `claims` is empty.
        """
        wanted = [claims] if isinstance(claims, str) else [*(() if claims is None else claims)]
        if claims is not None and not wanted:
            raise UserError("`claims` is empty: name claims or families to judge, or leave out `claims` to judge all")
        session = self._with(checkpoint, task, seeds)
        names = [task] if task else session.options.scope or [glue.name for glue in GLUE_TASKS]
        tasks = {task_named(name).name for name in names}
        chosen = select_cases(wanted, tasks)
        run = JudgedRun(session, [case for case in chosen if tasks.issuperset(case.on_tasks)])
        for reason, without in run.skipped().items():
            log.info(skipped(without, reason))
        with session._measured():
            run.judge(log.info)
        if run.ended is not None:
            raise run.ended
        return Verdicts(run.verdicts)

    def _with(self, checkpoint: "Path | nn.Module | None", task: str | None, seeds: int | None) -> "Session":
        """Return a session for the given checkpoint or number of seeds. Return this session if neither is given."""
        if checkpoint is None and seeds is None:
            return self
        if checkpoint is None:
            session = copy(self)
            session.options = replace(self.options, seeds=seeds)
            return session
        given: dict[str, Any] = dict.fromkeys(TRAINING_OPTIONS) | {"keep_checkpoints": "full", "seeds": seeds}
        held, tokenizer = self._objects.get("model"), None
        if held is not None:
            given["model"], tokenizer = held.model, held.tokenizer
        elif self.options.model is None and self.options.checkpoint is None:
            given["model"] = self.settings.model
        if task is not None or self.options.checkpoint is not None:
            given["checkpoint_task"] = task or self.options.checkpoint_task
        return Session(self.options, settings=self.settings, tokenizer=tokenizer, checkpoint=checkpoint, **given)

    # ------------------------------------------------------------------ verdicts

    def judge_case(self, case: Case, seeds: Sequence[int]) -> Verdict:
        """Return the verdict on a case, based on these seeds. Make the measurements that are not stored.

        If a checkpoint was given, the verdict applies only to that checkpoint. If the number of seeds is fixed, the
        case stays open as long as a spare seed can replace a seed with which the model learned nothing. If none of the
        trained models learned anything, the case does not stay open.
        """
        measured = requirements.measure_case(self, case, self.model, seeds)
        verdict = judge(case, measured, self.settings.judge, checkpoint=self.options.checkpoint is not None)
        wanted = self.wanted_seeds
        return until_replaced(verdict, wanted, len(measured)) if isinstance(wanted, int) else verdict

    def rows_of(self, case: Case) -> dict[str, Any]:
        """Return the rows that a case will be measured on, as a verdict records them; empty if they are unknown."""
        try:
            required = requirements.required_measurements(self, case)
            wanted = [Request(each.measure, each.subject(self.model, 1), (*each.options.items(),)) for each in required]
            return rows_of([self.measurements.provenance(request) for request in wanted])
        except UserError:  # raised again when the case is judged
            return {}

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return what a measure on a task lacks (data, frames or spaCy), or None if nothing is missing."""
        if (measure, task_name) in self._complete:
            return None
        problem = get_measure(measure).missing(self.resources, task_name)
        if problem is None:
            self._complete.add((measure, task_name))
        return problem

    # ------------------------------------------------------------------ checkpoints and measurements

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
        return measurement if self._storable else _without_place(measurement)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Make the session's models in memory available for measuring until the outermost block ends.

        Results of an object that is measured itself are reused only inside the block, because its code may compute
        something else later.
        """
        if self._measuring:
            yield
            return
        with ExitStack() as stack:
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

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _measured_folder(self, measure: Measure, subject: Subject) -> Path | None:
        """Return the folder of the judged checkpoint, or None if the measure does not read this checkpoint.

        Raises:
            UserError: If the measure needs another checkpoint, or if it needs the pretrained model and none was given.
        """
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


def _without_place(measurement: Measurement) -> Measurement:
    """Return a copy of an unstored measurement without its temporary folder and the identity of its weights."""
    return replace(measurement, provenance=replace(measurement.provenance, weights=None), origin="")
