"""The session, which measures subjects and judges claims: it brings together data, models, measures and the store.

The command line, the benchmarks and Python all use a `Session`. Nothing is trained or measured twice: whatever changes
a result (data, settings, limits, device) is part of its key in the store, and is recorded in its provenance.
"""

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from bertsecrets import __version__
from bertsecrets.claims import plan
from bertsecrets.claims.judge import judge
from bertsecrets.claims.looks import LOOKS, judge_in_looks
from bertsecrets.claims.quantity import Needed
from bertsecrets.claims.schema import Case, find_case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.compare.history import evidence
from bertsecrets.errors import MissingError, NotApplicableError, UserError, one_line
from bertsecrets.measures.base import Measure, Resources, Run
from bertsecrets.measures.base.needs import pipeline_problem
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import loading
from bertsecrets.models.locations import ModelRef, locate
from bertsecrets.models.memory import give_back
from bertsecrets.models.retention import drop_weights
from bertsecrets.options import DEFAULT_PIPELINE, RunOptions, check_initialisation, check_seed, seed_range
from bertsecrets.progress import in_time, tell
from bertsecrets.provenance import (
    TRAINING,
    best_device,
    best_precision,
    checkpoint_differences,
    differences,
    made_by,
    run_facts,
    warn_of_slow,
)
from bertsecrets.reading import seconds
from bertsecrets.report import notebook
from bertsecrets.settings import Params, load_settings
from bertsecrets.store.entries import CHECKPOINTS, DROPPED, Key, Store, has_weights
from bertsecrets.store.files import copy_whole, digest, remove_unused
from bertsecrets.store.locks import in_use
from bertsecrets.store.measurements import load, save
from bertsecrets.store.verdicts import keep_verdict
from bertsecrets.texts.rows import TaskRows
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task
from bertsecrets.types import AUTO, Measurement, Provenance, Subject, slug

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OTHERWISE_TRAINED = {
    "random": "a model trained from random weights",
    "frozen": "a model trained on a frozen encoder",
    "last-two-new": "a model trained with its last two layers drawn anew",
    "last-two-trained": "a model of which the last two layers alone were trained",
    "from-sep": "a model trained to classify from [SEP]",
}

notebook.show_in_notebooks()


class Session:
    """A set of options, data, device and store with which measurements and verdicts are made.

    ```python
    import bertsecrets as bs

    session = bs.Session(model="minilm", glue="GLUE")
    session.measure("attention-change", task="rte").values["cosine"]  # [layer, head]
    session.judge("C1", task="rte", seeds=3)
    ```
    """

    def __init__(self, options: RunOptions | None = None, *, settings: Params | None = None, **given: Any):
        """Open a session.

        Args:
            options: of the run.
            given: the same as keywords (`model`, `glue`, `limit`, ...), which go before `options`.
            settings: used instead of those in `params.yaml`.

        Raises:
            UserError: an option has an impossible value, or names something that does not exist.
        """
        self.options = options = replace(options, **given) if options else RunOptions(**given)
        self.settings = settings or load_settings()
        if options.budget is not None and not self.adds_seeds:
            raise UserError(f"--budget has no effect on a fixed number of seeds: give --seeds {AUTO}, or leave it out")
        device = best_device(options.device)
        self.settings = _in_precision(self.settings, options.precision, device)
        if options.threads is not None:
            torch.set_num_threads(options.threads)  # of the whole process; results' keys hold the number
        if options.spacy and (problem := pipeline_problem(options.spacy)):
            raise UserError(problem)
        source = options.source()
        frames = options.frames_path
        if frames is not None and not frames.exists():
            raise UserError(f"{frames} does not exist: --frames takes a JSONL file, or FrameNet's folder or archive")
        self.store = Store(options.store_folder, accept_older=options.accept_older)
        self.resources = Resources(
            rows=TaskRows(source, options.limit, options.train_limit, options.grid_limit),
            settings=self.settings,
            device=device,
            kept=self.store.root,
            frames=frames,
            spacy=options.spacy or DEFAULT_PIPELINE,
            grid_precision="bfloat16" if options.precision == "bfloat16" else "float32",  # never by `auto`
        )
        self._used: dict[Subject, Path] = {}  # checkpoints
        self._needed: set[Subject] = set()  # those of which something could not be measured
        self._refs: dict[str, ModelRef] = {}
        self._refused: dict[tuple[str, object], str | None] = {}  # why a test says that a model cannot be measured

    @property
    def model(self) -> str:
        """What is judged: the checkpoint or model named in the options, or the model in `params.yaml`."""
        return self.options.judged or self.settings.model

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds given by the options, or those in `params.yaml`; all that may be added where they are added."""
        if self.options.checkpoint is not None:
            return [1]
        wanted = self.settings.seeds if self.options.seeds is None else self.options.seeds
        if isinstance(wanted, str):
            return seed_range(LOOKS)
        return seed_range(wanted) if isinstance(wanted, int) else wanted

    @property
    def looks(self) -> list[Sequence[int]]:
        """The seeds after which claims are judged: all at once or, where seeds are added, after every one."""
        return [self.seeds[:count] for count in range(1, LOOKS + 1)] if self.adds_seeds else [self.seeds]

    @property
    def adds_seeds(self) -> bool:
        """Whether seeds are added one by one while they can decide a claim (`--seeds auto`)."""
        return (
            self.options.checkpoint is None
            and (self.settings.seeds if self.options.seeds is None else self.options.seeds) == AUTO
        )

    @property
    def budget(self) -> float | None:
        """The seconds in which seeds are added; None where the number of looks alone ends it."""
        given = self.options.budget or self.settings.budget
        return None if given is None else seconds(given)

    def ref(self, model: str) -> ModelRef:
        """Return the reference to a model's files; where a checkpoint is judged, to those that it was trained from.

        Raises:
            UserError: the folder does not exist, or a packaged model is not installed.
        """
        if model not in self._refs:
            named = self.options.model if model == self.options.judged else None
            self._refs[model] = locate(named or model, self.options.offline)
        return self._refs[model]

    def check_model(self, model: str | None = None) -> None:
        """Make sure that a model, or the checkpoint that is judged, is available before anything expensive starts.

        Raises:
            UserError: it is not, or the checkpoint is none of its task.
        """
        checkpoint, of_task = self.options.checkpoint, self.options.checkpoint_task
        if checkpoint is not None and of_task is not None and model is None:
            loading.open_checkpoint_config(Path(checkpoint), task(of_task))
            loading.open_checkpoint(Path(checkpoint), task(of_task), self.ref(self.model))  # reads all that it holds
            return
        loading.open_config(self.ref(model or self.model))

    def speaks_of(self, case: Case) -> bool:
        """Return whether a case is about models of this one's architecture.

        Raises:
            UserError: the case is about particular architectures, and the model is not available.
        """
        return not case.claim.architectures or case.speaks_of(loading.open_config(self.ref(self.model)).model_type)

    # ------------------------------------------------------------------ in Python

    def subject(self, task_name: str | None, init: str = "pretrained", seed: int = 1) -> Subject:
        """Return a subject: the session's model on a task or, without a task, the bare encoder.

        Raises:
            UserError: the task or the initialisation is unknown, or the seed out of range.
        """
        check_seed(seed)
        initialisation = check_initialisation(init)
        if task_name is None:
            return Subject(self.model, ALL_TASKS, "untrained", seed)
        return Subject(self.model, task(task_name).name, initialisation, seed)

    def measure(
        self,
        measure: str,
        task: str | None = None,
        *,
        init: str = "pretrained",
        seed: int = 1,
        checkpoint: "Path | str | PreTrainedModel | None" = None,
        **options: Any,
    ) -> Measurement:
        """Return a measurement of the session's model, made now unless it is in the store.

        Args:
            measure: its name, such as `attention-change`.
            task: the GLUE task; none for measures of the bare encoder and of the suite itself.
            init: `pretrained`, `random`, `frozen` or `untrained`.
            checkpoint: a folder to measure instead of the checkpoint that the suite trains, or a model in memory.
            options: of the measure, such as `padded_to=200`.

        Raises:
            UserError: the measure, task or an option is unknown, or something that is needed is missing.
        """
        subject = self.subject(task, init, seed)
        with self._in_folder(checkpoint) as folder:
            get_measure(measure).check_request(task, check_initialisation(init), seed, checkpoint=folder)
            return self.measurement(measure, subject, folder, **options)

    @contextmanager
    def _in_folder(self, checkpoint: Any) -> Iterator[Path | None]:
        """Yield the folder of a checkpoint; a model in memory is saved in one that is removed at the end of the block.

        Its tokenizer is that of the session's model.
        """
        if checkpoint is None or isinstance(checkpoint, str | os.PathLike):
            yield Path(checkpoint) if checkpoint else None
            return
        with TemporaryDirectory() as place:
            folder = Path(place) / "in-memory"
            checkpoint.save_pretrained(folder)
            loading.open_tokenizer(self.ref(self.model)).save_pretrained(folder)
            yield folder

    def judge(self, claim: str, task: str | None = None, *, seeds: int | None = None) -> Verdict:
        """Return the verdict on a claim; its measurements are made now unless they are in the store.

        Args:
            claim: an id (`C1`), with its variant if it has several (`D1-untrained`).
            task: one of the claim's tasks; may be left out if there is only one.
            seeds: judge on seeds 1 to this number, instead of the session's seeds. Where those are added one by one,
                no further one is begun that would end after the budget if it took as long as the last.

        Raises:
            UserError: the claim is unknown or ambiguous, or something that is needed is missing.
        """
        case = find_case(claim, task)
        problem = plan.missing(self, case)
        if problem:
            raise MissingError(problem)
        if seeds is None and self.adds_seeds:
            return self._judge_by_seed(case)
        chosen = self.seeds if seeds is None else seed_range(seeds)
        return self._kept(judge(case, self.measure_case(case, chosen), self.settings.judge))

    def _judge_by_seed(self, case: Case) -> Verdict:
        """Return the verdict on a claim for which seeds are added until it is decided or time is up."""
        began = time.monotonic()
        for seeds in self.looks:
            before = time.monotonic()
            verdict = self.verdict(case, self.measure_case(case, seeds), first=len(seeds))
            now = time.monotonic()
            if not verdict.open or (self.budget is not None and now - began + now - before > self.budget):
                break
        return verdict

    # ------------------------------------------------------------------ verdicts

    def measure_case(self, case: Case, seeds: Sequence[int] | None = None) -> list[dict[str, Needed]]:
        """Return, for each seed, the measurements that a case needs, by the names of its quantity's needs."""
        return plan.measure_case(self, case, self.model, self.seeds if seeds is None else seeds)

    def verdict(self, case: Case, measured: list[dict[str, Needed]], *, first: int = 1) -> Verdict:
        """Judge a case on its measurements, and keep the verdict in the store.

        Args:
            first: where seeds are added one by one, the look to begin with (`judge_in_looks`).
        """
        if self.adds_seeds:
            return self._kept(judge_in_looks(case, measured, self.settings.judge, first=first))
        return self._kept(judge(case, measured, self.settings.judge))

    def _kept(self, verdict: Verdict) -> Verdict:
        """Keep a verdict in the store, and return it."""
        limits = (of.provenance.limits for of in verdict.measurements)
        facts = run_facts() | evidence(verdict.case, verdict.measurements, self.settings, self._weights(verdict))
        keep_verdict(self.store.root, verdict.as_json(), self.model, limited=any(limits), facts=facts)
        return verdict

    def _weights(self, verdict: Verdict) -> dict[str, str | None]:
        """Return the identities of the model's weights and tokenizer; nothing if the verdict is about no model."""
        if not any(get_measure(measurement.measure).reads_model for measurement in verdict.measurements):
            return {}
        ref = self.ref(self.model)
        if self.options.checkpoint is None:
            return {"weights": ref.identity(), "tokenizer": ref.tokenizer()}
        own = ModelRef.in_folder(Path(self.options.checkpoint))
        return {"weights": own.identity(), "tokenizer": own.tokenizer() or ref.tokenizer(), "base": ref.identity()}

    def missing(self, measure: str, task_name: str) -> str | None:
        """Return why a measure cannot be run on a task (data, frames, spaCy); None if it can."""
        return get_measure(measure).missing(self.resources, task_name)

    def shape(self, model: str) -> tuple[int, int] | None:
        """Return the numbers of a model's layers and of the heads in each, by its configuration.

        None where that is not available or does not say; whoever measures the model says why.
        """
        try:
            config = loading.open_config(self.ref(model))
        except UserError:
            return None
        layers, heads = (getattr(config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
        return (layers, heads) if isinstance(layers, int) and isinstance(heads, int) else None

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(self, subject: Subject) -> Path:
        """Return the folder of a subject's checkpoint, trained now unless the store has it with its weights."""
        key = self._checkpoint_key(subject)
        states = self.store.root / "training" / digest(key.as_json())
        exact = replace(self.store, accept_older=False)
        dropped = exact.find(DROPPED, key)

        def make(folder: Path) -> dict[str, Any]:
            if dropped is not None:
                takes = (ModelRef.in_folder(dropped).manifest().get("training") or {}).get("seconds") or 0
                tell(f"{subject}: its weights were dropped, so it is trained again (last time {in_time(takes)})")
            facts = self._train(subject, folder, states)
            _check_unchanged(key, self._checkpoint_key(subject))
            return facts

        store = self.store if dropped is None else exact
        folder, reused = store.get_or_make(CHECKPOINTS, str(subject), key, make)
        if folder.name.endswith(key.marks):  # this very training has ended, here or in a process killed after it
            shutil.rmtree(states, ignore_errors=True)
        if not reused:
            if dropped is not None:
                self._announce_retrained(subject, dropped, folder)
            give_back()
        return folder

    def _announce_retrained(self, subject: Subject, dropped: Path, checkpoint: Path) -> None:
        """Say whether a checkpoint has the weights that were dropped, and delete what remained of them."""
        if ModelRef.in_folder(dropped).identity() == ModelRef.in_folder(checkpoint).identity():
            tell(f"{subject}: retraining gave the same weights")
        else:
            tell(f"{subject}: retraining gave different weights, so earlier measurements will be made again")
        remove_unused(dropped)

    def export_checkpoint(self, subject: Subject, folder: Path) -> Path:
        """Write a subject's checkpoint to a folder, completely or not at all."""
        while True:
            source = self.checkpoint(subject)
            with in_use(source) as there:
                if there:
                    copy_whole(source, folder)
                    return folder

    def let_go(self, subjects: Iterable[Subject]) -> None:
        """Drop the weights of these subjects if `keep_checkpoints` says so, except of those that are still needed."""
        if self.options.keep == "full":
            return
        done = [self._used.get(one) or self.stored_checkpoint(one) for one in subjects if one not in self._needed]
        drop_weights(folder for folder in done if folder is not None)

    def still_needed(self, subject: Subject) -> None:
        """Note that a measurement of a subject failed: a later run needs its weights."""
        self._needed.add(subject)

    def close(self) -> None:
        """Drop the weights of all measured checkpoints if `keep_checkpoints` says so: the end of a `with` block."""
        self.let_go(list(self._used))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def stored_checkpoint(self, subject: Subject) -> Path | None:
        """Return the entry of a subject's checkpoint, with or without its weights; None if the store has neither.

        Its files are not read.

        Raises:
            UserError: the model or the data are not available.
        """
        return self._stored_checkpoint(subject, Store.named)

    def _stored_checkpoint(self, subject: Subject, search: Callable[[Store, str, Key], Path | None]) -> Path | None:
        key = self._checkpoint_key(subject)
        stores = (replace(self.store, accept_older=False), self.store)
        found = (search(store, kind, key) for store in stores for kind in (CHECKPOINTS, DROPPED))
        return next(filter(None, found), None)

    def stored_measurement(self, measure: str, subject: Subject, **options: Any) -> Path | None:
        """Return the folder of a subject's measurement if it is in the store, its files unread; None if it is not.

        Raises:
            MissingError: its checkpoint is not in the store, so that its key is not known yet.
            UserError: the model or the data are not available.
        """
        own = get_measure(measure)
        folder = None
        if own.reads_model:
            folder = self.stored_checkpoint(subject) if own.on_task else self.ref(subject.model).folder()
            if folder is None:
                raise MissingError(f"the checkpoint {subject} is not in the store yet")
        ref = self.ref(subject.model) if own.reads_model else None
        run = Run(subject, own.check_options(options), self.resources, ref, folder)
        return self.store.named("measurements", own.key(run))

    def _checkpoint_key(self, subject: Subject) -> Key:
        trained, ref = subject.initialisation != "untrained", self.ref(subject.model)
        device = self.resources.device if trained else torch.device("cpu")
        inputs = {
            "model": ref.identity(),
            "tokenizer": ref.tokenizer(),
            "task": subject.task,
            "initialisation": subject.initialisation,
            "seed": subject.seed,
            "finetune": self.settings.finetune.model_dump() if trained else None,
            "train": self.resources.rows.split(subject.task, "train").fingerprint if trained else None,
            "device": device.type,
        }
        return Key(inputs, made_by(TRAINING, device))

    def _train(self, subject: Subject, folder: Path, states: Path) -> dict[str, Any]:
        """Train a subject's checkpoint into a folder, resuming from a saved state; returns the checkpoint's facts."""
        from bertsecrets.models.training.finetune import make_checkpoint  # takes seconds to import

        trained = subject.initialisation != "untrained"
        facts = make_checkpoint(
            self.ref(subject.model),
            subject,
            self.resources.rows.split(subject.task, "train") if trained else None,
            folder,
            settings=self.settings.finetune,
            device=self.resources.device,
            states=states,
        )
        return {"subject": asdict(subject), "training": facts, **self._training_data(subject)}

    # ------------------------------------------------------------------ measurements

    def measurement(
        self, measure: str, subject: Subject, checkpoint: Path | None = None, **options: Any
    ) -> Measurement:
        """Return a subject's measurement, made now unless it is in the store.

        Args:
            checkpoint: a folder to measure instead of the subject's own trained checkpoint.
            options: of the measure, e.g. `padded_to=200` for `attention-change`.

        Raises:
            UserError: the measure or an option is unknown, or something that is needed is missing.
        """
        own = get_measure(measure)
        if checkpoint is None and self.options.checkpoint is not None:
            checkpoint = self._single(own, subject, Path(self.options.checkpoint))
        try:
            with self._asked(own, subject, checkpoint, options) as (run, key):
                return self._stored_or_made(own, subject, checkpoint, run, key)
        except NotApplicableError:
            raise
        except BaseException:
            self.still_needed(subject)
            raise

    def example_maps(self, subjects: Iterable[Subject]) -> tuple[list[Measurement], list[str]]:
        """Return what the report's attention viewer shows of some subjects, and a line for each that it cannot show.

        Nothing is trained for it: a checkpoint whose weights were not kept is left out, unless it was measured before.
        """
        made, problems = [], []
        for subject in subjects:
            try:
                if self.options.checkpoint is None and self.stored_measurement("example-maps", subject) is None:
                    entry = self.stored_checkpoint(subject)
                    if entry is None or not has_weights(entry):
                        raise MissingError("its weights were not kept")
                made.append(self.measurement("example-maps", subject))
            except UserError as error:
                problems.append(f"{subject}: {one_line(error)}")
        return made, problems

    def _single(self, measure: Measure, subject: Subject, checkpoint: Path) -> Path | None:
        """Return the folder to measure where one checkpoint is judged: that one, or None for the pretrained model.

        Raises:
            NotApplicableError: one checkpoint does not give this measurement.
        """
        of_base = not measure.on_task or subject.initialisation == "untrained"
        if not measure.reads_model:
            return None
        if (of_base or measure.compares) and self.options.model is None:
            raise NotApplicableError("needs the pretrained model, which --model names beside --checkpoint")
        if measure.on_task and subject.task != self.options.checkpoint_task:
            raise NotApplicableError(f"needs a checkpoint of {task(subject.task).title} as well")
        if subject.initialisation in OTHERWISE_TRAINED:
            raise NotApplicableError(f"needs {OTHERWISE_TRAINED[subject.initialisation]}, not a single checkpoint")
        return None if of_base else checkpoint

    @contextmanager
    def _asked(
        self, measure: Measure, subject: Subject, checkpoint: Path | None, options: dict[str, Any]
    ) -> Iterator[tuple[Run, Key]]:
        """Yield a measurement's run and key; inside the block no process drops the weights that are measured.

        A checkpoint is trained first where the store has neither its weights nor the measurement.
        """
        while True:
            run = self._run(measure, subject, checkpoint, options)
            if not measure.on_task or checkpoint is not None or run.folder is None:
                yield run, measure.key(run)
                return
            with in_use(run.folder) as there:
                key = measure.key(run) if there else None
                if key and (has_weights(run.folder) or self.store.find("measurements", key)):
                    self._used[subject] = run.folder
                    yield run, key
                    return
            if there:
                self.checkpoint(subject)

    def _stored_or_made(
        self, own: Measure, subject: Subject, checkpoint: Path | None, run: Run, key: Key
    ) -> Measurement:
        """Return the measurement of this key from the store, or make it."""
        own_checkpoint = checkpoint is None
        run = replace(run, grid=self.store.root / "grids" / f"{own.name}-{key.marks}")
        made: dict[str, tuple[Measurement, Key]] = {}

        def measure_all() -> None:
            companions = [get_measure(name) for name in own.companions if name != own.name]
            runs = {
                one: replace(run, options=one.check_options(own.shared_options(run.options)))
                for one in companions
                if one.fits(subject.initialisation)
            }
            keys = {own.name: key} | {one.name: one.key(its_run) for one, its_run in runs.items()}
            results = self._measured(own, run, keys, own_checkpoint)
            for one, its_run in [(own, run), *runs.items()]:
                if one.name in results:
                    _check_unchanged(keys[one.name], one.key(its_run))
            made.update({name: (measurement, keys[name]) for name, measurement in results.items()})

        def make(target: Path) -> dict[str, Any]:
            if not made:
                measure_all()
            return save(made[own.name][0], target)

        if own.shared and self.store.find("measurements", key) is None:
            measure_all()  # before locking the entry, since processes share the work
        entry, reused = self.store.get_or_make("measurements", _entry_name(own, subject, checkpoint), key, make)
        for companion, (measurement, its_key) in made.items():  # measured in the same pass
            if companion != own.name:
                entry_name = _entry_name(get_measure(companion), subject, checkpoint)
                self.store.get_or_make("measurements", entry_name, its_key, partial(save, measurement))
        return self._present(load(entry), own, run, key, own_checkpoint=own_checkpoint, reused=reused)

    def _present(
        self, stored: Measurement, measure: Measure, run: Run, key: Key, *, own_checkpoint: bool, reused: bool
    ) -> Measurement:
        """Return a stored measurement as that of the subject asked for.

        Equal rows may come from other files, and equal weights from another checkpoint; so what is said of both is said
        of those in use now.
        """
        provenance = replace(stored.provenance, **self._facts(measure, run, own_checkpoint))
        older = differences(provenance.made_by, key.made_by)
        if run.model is not None and measure.on_task:
            provenance = replace(provenance, weights=key.inputs["checkpoint"])
        if own_checkpoint and run.model is not None and measure.on_task:
            now = self._checkpoint_key(run.subject).made_by
            older += checkpoint_differences(provenance.checkpoint_made_by, now)
        return replace(stored, subject=run.subject, provenance=provenance, older=tuple(older), reused=reused)

    def _run(self, measure: Measure, subject: Subject, checkpoint: Path | None, options: dict[str, Any]) -> Run:
        checked = measure.check_options(options)
        if not measure.reads_model:
            return Run(subject, checked, self.resources)
        ref = self.ref(subject.model)
        if not measure.on_task:
            folder = checkpoint or ref.folder()
        else:
            folder = checkpoint or self._found_checkpoint(subject, measure)
            if checkpoint is not None or has_weights(folder):
                loading.open_checkpoint_config(folder, task(subject.task))
        return Run(subject, checked, self.resources, ref, folder)

    def _found_checkpoint(self, subject: Subject, measure: Measure) -> Path:
        """Return the folder of a subject's checkpoint, trained now unless the store has it, if without its weights.

        Raises:
            NotApplicableError: the measure is not possible on the model, so that nothing is trained for it.
        """
        found = self._stored_checkpoint(subject, Store.find)
        if found is not None:
            return found
        self._check_possible(measure, subject.model)
        return self.checkpoint(subject)

    def _check_possible(self, measure: Measure, model: str) -> None:
        """Make sure that a measure is possible on a model, tried on two short examples, once.

        Raises:
            NotApplicableError: it is not.
        """
        test = type(measure).check_model
        if test is Measure.check_model:
            return
        if (model, test) not in self._refused:
            refusal: str | None = None
            try:
                measure.check_model(loading.open_classifier(self.ref(model), TASKS["rte"], "untrained"))
            except NotApplicableError as error:
                refusal = str(error)
            self._refused[model, test] = refusal
        if (refusal := self._refused[model, test]) is not None:
            raise NotApplicableError(refusal)

    def _measured(
        self, measure: Measure, run: Run, keys: dict[str, Key], own_checkpoint: bool
    ) -> dict[str, Measurement]:
        """Run a measure; returns its measurement and those made in the same pass, by measure."""
        began = time.monotonic()
        with torch.inference_mode(not measure.gradients):
            results, examples = measure.results(run)
        made: dict[str, Any] = {
            "seconds": round(time.monotonic() - began, 2),
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "bertsecrets": __version__,
        }
        return {
            name: Measurement(
                measure=name,
                subject=run.subject,
                examples=examples,
                values=values,
                samples=samples,
                settings=get_measure(name).settings(self.resources),
                options=run.options.given() if name == measure.name else measure.shared_options(run.options),
                provenance=Provenance(
                    **self._facts(get_measure(name), run, own_checkpoint), made_by=keys[name].made_by, **made
                ),
            )
            for name, (values, samples) in results.items()
        }

    def _facts(self, measure: Measure, run: Run, own_checkpoint: bool) -> dict[str, Any]:
        """Return what a measurement's provenance says of the measured data, the checkpoint and its training data."""
        facts = measure.data_facts(run)
        manifest = ModelRef.in_folder(run.folder).manifest() if run.folder else {}
        of_training = self._training_data(run.subject) if own_checkpoint and measure.on_task else manifest
        key = Key.of_manifest(manifest)
        return {
            **facts,
            "official_data": facts["official_data"] and (of_training.get("data") or {}).get("official", True),
            "train_limit": of_training.get("train_limit"),
            "architecture": ModelRef.in_folder(run.folder).model_type() if run.folder else None,
            "checkpoint": run.folder.name if run.folder else None,
            "checkpoint_made_by": key.made_by if key else None,
            "training": manifest.get("training"),
        }

    def _training_data(self, subject: Subject) -> dict[str, Any]:
        """Return what is recorded of the rows that a subject is trained on; an untrained one has none."""
        rows, trained = self.resources.rows, subject.initialisation != "untrained"
        return {
            "data": rows.facts(subject.task, ("train",)) if trained else None,
            "train_limit": rows.cut(subject.task, "train") if trained else None,
        }


def _in_precision(settings: Params, wanted: str | None, device: torch.device) -> Params:
    """Return the settings with the precision that trainings will have: as wanted, else as the settings say."""
    precision = best_precision(wanted or settings.finetune.precision, device)
    warn_of_slow(precision, device)
    return settings.model_copy(update={"finetune": settings.finetune.model_copy(update={"precision": precision})})


def _check_unchanged(before: Key, now: Key) -> None:
    """Make sure that nothing was replaced while it was in use.

    Raises:
        UserError: a file of the model, the checkpoint or the data has changed.
    """
    changed = sorted(name for name in before.inputs if before.inputs[name] != now.inputs.get(name))
    if changed:
        raise UserError(f"{', '.join(changed)} changed while in use, so nothing was stored: run the command again")


def _entry_name(measure: Measure, subject: Subject, checkpoint: Path | None) -> str:
    """Return the readable part of an entry's name."""
    if not measure.reads_model:
        return measure.name
    measured = str(subject) if checkpoint is None else f"{slug(str(checkpoint))}-{subject.task}"
    return f"{measure.name}-{measured}"
