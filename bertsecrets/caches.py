"""Caches between a session and its store: each checkpoint is trained once, and each measurement is made once.

A cache key covers everything that affects a result: data, weights, settings, limits, code, versions and device.
"""

import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertsecrets import __version__
from bertsecrets.errors import MissingError, NotApplicableError
from bertsecrets.measures.base import Measure, Resources, Run
from bertsecrets.measures.base.probe import ModelChecks
from bertsecrets.measures.registry import canonical, get_measure
from bertsecrets.models import opening
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.memory import release_memory
from bertsecrets.models.retention import drop_weights
from bertsecrets.progress import in_time, log
from bertsecrets.provenance import TRAINING, made_by
from bertsecrets.store.entries import CHECKPOINTS, DROPPED, MEASUREMENTS, Key, Store, has_weights
from bertsecrets.store.files import check_writable, copy_whole, digest, remove_unused
from bertsecrets.store.locks import in_use
from bertsecrets.store.measurements import load, save
from bertsecrets.texts.tasks import TASKS, task
from bertsecrets.types import Measurement, Provenance, Request, Subject, slug


@dataclass
class CheckpointCache:
    """A cache of checkpoints, looked up by model, task, initialisation, seed, settings and training rows.

    `ref` maps a model's name to its reference.
    """

    store: Store
    resources: Resources
    ref: Callable[[str], ModelRef]
    used: dict[Subject, Path] = field(default_factory=dict)  # measured in this process
    _needed: set[Subject] = field(default_factory=set)

    def key(self, subject: Subject) -> Key:
        """Return the key of a subject's checkpoint.

        Raises:
            UserError: If the model or the data are not available.
        """
        trained, ref = get_initialisation(subject.initialisation).trains, self.ref(subject.model)
        device = self.resources.device if trained else torch.device("cpu")
        inputs = {
            "model": ref.identity(),
            "tokenizer": ref.tokenizer(),
            "task": subject.task,
            "initialisation": subject.initialisation,
            "seed": subject.seed,
            "finetune": self.resources.settings.finetune.model_dump() if trained else None,
            "train": self.resources.rows.split(subject.task, "train").fingerprint if trained else None,
            "device": device.type,
        }
        return Key(inputs, made_by(TRAINING, device))

    def training_facts(self, subject: Subject) -> dict[str, Any]:
        """Return the origin and limit of a subject's training rows, as recorded in a manifest."""
        rows, trained = self.resources.rows, get_initialisation(subject.initialisation).trains
        return {
            "data": rows.facts(subject.task, ("train",)) if trained else None,
            "train_limit": rows.cut(subject.task, "train") if trained else None,
        }

    def find(self, subject: Subject, *, verify: bool = True) -> Path | None:
        """Return a subject's checkpoint entry, with or without weights, or None.

        Args:
            verify: Whether to check all files, as in `Store.find`.

        Raises:
            UserError: If the model or the data are not available.
        """
        key = self.key(subject)
        entries = (self.store.find(kind, key, verify=verify) for kind in (CHECKPOINTS, DROPPED))
        return next(filter(None, entries), None)

    def get(self, subject: Subject) -> Path:
        """Return the folder of a subject's checkpoint, training it if its weights are not stored."""
        key = self.key(subject)
        states = self.store.root / "training" / digest(key.as_json())
        dropped = self.store.find(DROPPED, key)

        def make(folder: Path) -> dict[str, Any]:
            if dropped is not None:
                takes = (ModelRef.in_folder(dropped).manifest().get("training") or {}).get("seconds") or 0
                log.info(f"{subject}: its weights were deleted, so it is retrained (last time {in_time(takes)})")
            facts = self._train(subject, folder, states)
            key.check_unchanged(self.key(subject))
            return facts

        folder, reused = self.store.get_or_make(CHECKPOINTS, str(subject), key, make)
        shutil.rmtree(states, ignore_errors=True)
        if not reused:
            if dropped is not None:
                _announce_retrained(subject, dropped, folder)
            release_memory()
        return folder

    def _train(self, subject: Subject, folder: Path, states: Path) -> dict[str, Any]:
        """Train a checkpoint into a folder, resuming from a saved state, and return the facts for its manifest."""
        from bertsecrets.models.training.finetune import make_checkpoint  # takes seconds to import

        trained = get_initialisation(subject.initialisation).trains
        facts = make_checkpoint(
            self.ref(subject.model),
            subject,
            self.resources.rows.split(subject.task, "train") if trained else None,
            folder,
            settings=self.resources.settings.finetune,
            device=self.resources.device,
            states=states,
        )
        return {"subject": asdict(subject), "training": facts, **self.training_facts(subject)}

    def export(self, subject: Subject, folder: Path) -> Path:
        """Write a subject's checkpoint to a folder, completely or not at all."""
        while True:
            source = self.get(subject)
            with in_use(source) as exists:
                if exists:
                    copy_whole(source, folder)
                    return folder

    def keep(self, subject: Subject) -> None:
        """Exclude a subject from `drop`, because a later run needs its weights."""
        self._needed.add(subject)

    def drop(self, subjects: Iterable[Subject]) -> None:
        """Drop the weights of subjects' checkpoints, except those still needed."""
        needless = [subject for subject in subjects if subject not in self._needed]
        entries = [self.used.get(subject) or self.find(subject, verify=False) for subject in needless]
        drop_weights([entry for entry in entries if entry is not None])


def _announce_retrained(subject: Subject, dropped: Path, checkpoint: Path) -> None:
    """Log whether retraining reproduced the dropped weights, and delete the dropped entry."""
    if ModelRef.in_folder(dropped).identity() == ModelRef.in_folder(checkpoint).identity():
        log.info(f"{subject}: retraining gave the same weights")
    else:
        log.info(f"{subject}: retraining gave different weights, so earlier measurements will be repeated")
    remove_unused(dropped)


class MeasurementCache:
    """A cache of measurements, looked up by measure, options, checkpoint, rows and settings.

    `made` and `failed` are requests completed by other processes (see `note`).
    """

    def __init__(self, checkpoints: CheckpointCache):
        self.checkpoints, self.store, self.resources = checkpoints, checkpoints.store, checkpoints.resources
        self.made: set[Request] = set()
        self.failed: dict[Request, Exception] = {}
        self._checks: dict[str, ModelChecks] = {}  # by model

    def key(self, request: Request) -> Key:
        """Return the cache key of a measurement without reading or making it.

        Raises:
            MissingError: If its checkpoint is not stored, so that the key is unknown.
            UserError: If the model or the data are not available.
        """
        measure, subject = get_measure(request.measure or ""), request.subject
        ref = self.checkpoints.ref(subject.model) if measure.reads_model else None
        folder = None
        if ref is not None:
            folder = self.checkpoints.find(subject, verify=False) if measure.on_task else ref.folder()
            if folder is None:
                raise MissingError(f"the checkpoint {subject} is not in the store yet")
        return measure.key(Run(subject, measure.check_options(dict(request.options)), self.resources, ref, folder))

    def note(self, request: Request, error: Exception | None, *, made: bool) -> None:
        """Record the outcome of a request handled by another process; `get` raises its error without retrying."""
        if error is not None:
            self.failed[request] = error
        elif made:
            self.made.add(request)

    def stored(self, request: Request) -> Path | None:
        """Return the entry of a measurement, or None, without verifying its files.

        Raises:
            UserError: If the model or the data are not available.
        """
        return self.store.find(MEASUREMENTS, self.key(request), verify=False)

    def get(self, request: Request, checkpoint: Path | None = None) -> Measurement:
        """Return a measurement, making it if it is not stored.

        Args:
            checkpoint: Folder to measure instead of the subject's checkpoint.

        Raises:
            UserError: If the measure or an option is unknown, or data, a model or a tool is missing.
        """
        own, measure = canonical(request), get_measure(request.measure or "")
        try:
            for each in (own.training, own) if checkpoint is None else ():
                if each in self.failed:
                    raise self.failed[each]
            with self._prepared(measure, request, checkpoint) as (run, key):
                measurement = self._get(measure, run, key, checkpoint)
            return replace(measurement, reused=False) if own in self.made else measurement
        except NotApplicableError:
            raise
        except BaseException:
            self.checkpoints.keep(request.subject)
            raise

    @contextmanager
    def _prepared(self, measure: Measure, request: Request, checkpoint: Path | None) -> Iterator[tuple[Run, Key]]:
        """Yield a measurement's run and key; inside the block, other processes cannot drop the weights.

        If neither the weights nor the measurement are stored, the checkpoint is trained first.
        """
        while True:
            run = self._run(measure, request, checkpoint)
            if not measure.on_task or checkpoint is not None or run.folder is None:
                yield run, measure.key(run)
                return
            with in_use(run.folder) as exists:
                key = measure.key(run) if exists else None
                if key and (has_weights(run.folder) or self.store.find(MEASUREMENTS, key)):
                    self.checkpoints.used[request.subject] = run.folder
                    yield run, key
                    return
            if exists:
                self.checkpoints.get(request.subject)

    def _run(self, measure: Measure, request: Request, checkpoint: Path | None) -> Run:
        subject, options = request.subject, measure.check_options(dict(request.options))
        if not measure.reads_model:
            return Run(subject, options, self.resources)
        ref = self.checkpoints.ref(subject.model)
        if not measure.on_task:
            return Run(subject, options, self.resources, ref, checkpoint or ref.folder())
        folder = checkpoint or self.checkpoints.find(subject)
        if folder is None:
            check_writable(self.store.root)
            self.check(request)
            folder = self.checkpoints.get(subject)
        if checkpoint is not None or has_weights(folder):
            opening.open_checkpoint_config(folder, task(subject.task))
        return Run(subject, options, self.resources, ref, folder)

    def check(self, request: Request) -> None:
        """Check that the rows of a measurement on a task can be read and that it supports the model, before training.

        Raises:
            UserError: If not.
        """
        measure, ref = get_measure(request.measure or ""), self.checkpoints.ref(request.subject.model)
        run = Run(request.subject, measure.check_options(dict(request.options)), self.resources, ref)
        measure.fingerprint(run)
        self._check_possible(measure, run, None)

    def _check_possible(self, measure: Measure, run: Run, checkpoint: Path | None) -> None:
        """Check, once per model, that a measure applies to a checkpoint or, without one, to its base model."""

        def open_with(kernel: str) -> opening.OpenModel:
            if measure.on_task and run.folder is not None:
                return opening.open_checkpoint(run.folder, run.task, run.base, kernel)
            ref = run.base if run.folder is None else ModelRef.in_folder(run.folder)
            return opening.open_classifier(ref, TASKS["rte"], "untrained", attention=kernel)

        refusal = self._checks.setdefault(str(checkpoint or run.base.name), ModelChecks()).refusal(measure, open_with)
        if refusal is not None:
            raise type(refusal)(str(refusal))

    def _get(self, measure: Measure, run: Run, key: Key, checkpoint: Path | None) -> Measurement:
        """Return the stored measurement, or make it and its companions."""
        run = replace(run, grid=self.store.root / "grids" / f"{measure.name}-{key.marks}")
        made: dict[str, tuple[Measurement, Key]] = {}
        if self.store.find(MEASUREMENTS, key) is None:
            check_writable(self.store.root)
            if measure.shared:
                made = self._made(measure, run, key, checkpoint)  # before locking, so that processes share the work

        def make(folder: Path) -> dict[str, Any]:
            nonlocal made
            made = made or self._made(measure, run, key, checkpoint)
            return save(made[measure.name][0], folder)

        name = _entry_name(measure, run.subject, checkpoint)
        entry, reused = self.store.get_or_make(MEASUREMENTS, name, key, make)
        for companion, (measurement, its_key) in made.items():
            if companion != measure.name:
                name = _entry_name(get_measure(companion), run.subject, checkpoint)
                self.store.get_or_make(MEASUREMENTS, name, its_key, partial(save, measurement))
        return self._loaded(entry, measure, run, key, checkpoint, reused=reused)

    def _made(
        self, measure: Measure, run: Run, key: Key, checkpoint: Path | None
    ) -> dict[str, tuple[Measurement, Key]]:
        """Run a measure; return its measurement and those of its companions from the same pass, with their keys."""
        if measure.reads_model:
            self._check_possible(measure, run, checkpoint)
        runs = {measure: run}
        for companion in map(get_measure, measure.companions):
            if companion.name != measure.name and companion.fits(run.subject.initialisation):
                options = companion.check_options(measure.shared_options(run.options))
                runs[companion] = replace(run, options=options)
        keys = {each.name: key if each is measure else each.key(runs[each]) for each in runs}
        began = time.monotonic()
        with torch.inference_mode(not measure.gradients):
            results, examples = measure.results(run)
        seconds = round(time.monotonic() - began, 2)
        made = {}
        for each in (each for each in runs if each.name in results):
            keys[each.name].check_unchanged(each.key(runs[each]))
            values, samples = results[each.name]
            measurement = Measurement(
                measure=each.name,
                subject=run.subject,
                examples=examples,
                values=values,
                samples=samples,
                settings=each.settings(self.resources),
                options=run.options.given() if each is measure else measure.shared_options(run.options),
                provenance=Provenance(
                    **self._facts(each, run, keys[each.name], checkpoint),
                    made_by=keys[each.name].made_by,
                    seconds=seconds,
                    made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    python=platform.python_version(),
                    bertsecrets=__version__,
                ),
            )
            made[each.name] = measurement, keys[each.name]
        return made

    def _loaded(
        self, entry: Path, measure: Measure, run: Run, key: Key, checkpoint: Path | None, *, reused: bool
    ) -> Measurement:
        """Return a stored measurement for the run's subject.

        New measurements are read back as well, because JSON has no float32 and later runs must judge the same numbers.
        A reused measurement may come from different files with the same rows, or a different checkpoint with the same
        weights, so its provenance is updated to the current ones.
        """
        stored = load(entry)
        facts = self._facts(measure, run, key, checkpoint) if reused else {}
        return replace(stored, subject=run.subject, provenance=replace(stored.provenance, **facts), reused=reused)

    def _facts(self, measure: Measure, run: Run, key: Key, checkpoint: Path | None) -> dict[str, Any]:
        """Return the provenance of the measured data, the checkpoint and its training data."""
        facts = measure.data_facts(run)
        ref = ModelRef.in_folder(run.folder) if run.folder else None
        manifest = ref.manifest() if ref else {}
        own = checkpoint is None and measure.on_task
        training = self.checkpoints.training_facts(run.subject) if own else manifest
        trained = Key.of_manifest(manifest)
        return {
            **facts,
            "official_data": facts["official_data"] and (training.get("data") or {}).get("official", True),
            "train_limit": training.get("train_limit"),
            "architecture": ref.model_type() if ref else None,
            "checkpoint": run.folder.name if run.folder else None,
            "checkpoint_made_by": trained.made_by if trained else None,
            "training": manifest.get("training"),
            "weights": key.inputs["checkpoint"] if ref else None,
        }


def _entry_name(measure: Measure, subject: Subject, checkpoint: Path | None) -> str:
    """Return the readable part of an entry's name."""
    if not measure.reads_model:
        return measure.name
    measured = str(subject) if checkpoint is None else f"{slug(str(checkpoint))}-{subject.task}"
    return f"{measure.name}-{measured}"
