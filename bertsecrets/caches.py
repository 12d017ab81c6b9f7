"""Caches of a session's checkpoints and measurements. Whatever is not in the store is trained or measured.

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
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.measures.base import Measure, MeasureContext, Resources
from bertsecrets.measures.base.probe import ModelChecks
from bertsecrets.measures.registry import canonical, get_measure
from bertsecrets.models import opening
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.loans import is_lent
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.memory import release_memory
from bertsecrets.models.patches import check_code
from bertsecrets.progress import in_bytes, log
from bertsecrets.provenance import TRAINING_MODULE, made_by
from bertsecrets.store.contents import size
from bertsecrets.store.entries import CHECKPOINTS, MEASUREMENTS, Key, Store
from bertsecrets.store.files import check_writable, guarded_writes, remove_unused, temporary_folder
from bertsecrets.store.locks import in_use, one_thread
from bertsecrets.store.measurements import load, save
from bertsecrets.texts.tasks import TASKS, task
from bertsecrets.types import Measurement, Provenance, Request, Subject, slug


@contextmanager
def _alone() -> Iterator[None]:
    """Let only one thread at a time train and measure, with gradients, which the caller may have disabled."""
    with one_thread(), torch.inference_mode(False), torch.enable_grad():
        yield


@dataclass
class CheckpointCache:
    """A cache of checkpoints, looked up by model, task, initialisation, seed, settings and training rows.

    `ref` returns the `ModelRef` of the model with the given name. `refusal` says why the session's model cannot be
    trained; it is "" if the model can be trained.
    """

    store: Store
    resources: Resources
    ref: Callable[[str], ModelRef]
    refusal: str = ""
    temporary: Store = field(init=False)  # for results whose key does not identify the code
    used: dict[Subject, Key] = field(default_factory=dict)  # key of each subject measured in this process
    _needed: set[Subject] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.temporary = Store(temporary_folder(self))

    def store_of(self, key: Key) -> Store:
        """Return the store for the entry of a key: a temporary store if the key does not identify the code."""
        return self.store if key.identifies_code else self.temporary

    def key(self, subject: Subject) -> Key:
        """Return the key of a subject's checkpoint.

        Raises:
            NotApplicableError: If the model cannot be trained.
        """
        if self.refusal:
            raise NotApplicableError(self.refusal)
        trained, ref = get_initialisation(subject.initialisation).trains, self.ref(subject.model)
        device = self.resources.device if trained else torch.device("cpu")
        inputs = {
            "model": ref.identity(),
            "tokenizer": ref.tokenizer(),
            "task": task(subject.task).identity,
            "initialisation": subject.initialisation,
            "seed": subject.seed,
            "finetune": self.resources.settings.finetune.model_dump() if trained else None,
            "train": self.resources.rows.split(subject.task, "train").fingerprint if trained else None,
            "device": device.type,
        }
        return Key(inputs, made_by(TRAINING_MODULE, device))

    def training_facts(self, subject: Subject) -> dict[str, Any]:
        """Return facts about a subject's training rows for manifests: the source of the rows and the row limit."""
        rows, trained = self.resources.rows, get_initialisation(subject.initialisation).trains
        return {
            "data": rows.training_facts(subject.task) if trained else None,
            "train_limit": rows.cut(subject.task, "train") if trained else None,
        }

    def find(self, subject: Subject, *, verify: bool = True) -> Path | None:
        """Return the folder of a subject's checkpoint, or None if it is not stored; see `Store.find` for `verify`."""
        key = self.key(subject)
        return self.store_of(key).find(CHECKPOINTS, key, verify=verify)

    @_alone()
    def get(self, subject: Subject) -> Path:
        """Return the folder of a subject's checkpoint, training it if it is not stored."""
        key = self.key(subject)
        store = self.store_of(key)
        states = store.root / "training" / key.name

        def make(folder: Path) -> dict[str, Any]:
            facts = self._train(subject, folder, states)
            key.check_unchanged(self.key(subject))
            return facts

        folder, reused = store.get_or_make(CHECKPOINTS, str(subject), key, make)
        shutil.rmtree(states, ignore_errors=True)
        if not reused:
            release_memory()
        return folder

    def _train(self, subject: Subject, folder: Path, states: Path) -> dict[str, Any]:
        """Train a checkpoint, resuming from a saved state if there is one, and return the facts for its manifest."""
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
        weights = ModelRef.in_folder(folder).identity()
        return {"subject": asdict(subject), "training": facts, "weights": weights, **self.training_facts(subject)}

    @contextmanager
    def in_use(self, subject: Subject) -> Iterator[Path]:
        """Yield the folder of a subject's checkpoint, trained first if necessary, and protect it inside the block."""
        while True:
            folder = self.get(subject)
            with in_use(folder) as exists:
                if exists:
                    yield folder
                    return

    def protect(self, subject: Subject) -> None:
        """Make `delete` keep a subject's checkpoint for a later run."""
        self._needed.add(subject)

    def delete(self, subjects: Iterable[Subject]) -> None:
        """Delete the checkpoints of these subjects unless they are still needed or in use. Log the deletions."""
        deleted: list[str] = []
        kept: list[str] = []
        freed = 0
        for subject in (subject for subject in subjects if subject not in self._needed):
            key = self.used.get(subject) or self.key(subject)
            if (entry := self.store_of(key).find(CHECKPOINTS, key, verify=False)) is None:
                continue
            try:
                with guarded_writes(entry):
                    bytes_used, gone = size(entry), remove_unused(entry)
            except UserError as error:
                log.info(f"cannot delete the checkpoint {subject}: {error}")
                continue
            (deleted if gone else kept).append(str(subject))
            freed += bytes_used if gone else 0
        if deleted:
            log.info(f"deleted {_checkpoints(deleted)}: {in_bytes(freed)} freed")
        if kept:
            later = "to delete later, run bertsecrets store gc --keep-checkpoints none"
            log.info(f"kept {_checkpoints(kept)} (in use); {later}")


def _checkpoints(names: list[str]) -> str:
    return f"the checkpoint {names[0]}" if len(names) == 1 else f"{len(names)} checkpoints"


class MeasurementCache:
    """A cache of measurements, looked up by measure, options, checkpoint, rows and settings.

    `judged` returns the folder of the judged checkpoint if the measure reads it, otherwise None. `made` contains the
    requests that other processes completed, and `failed` maps failed requests to their errors (see `note`).
    """

    def __init__(
        self,
        checkpoints: CheckpointCache,
        judged: Callable[[Measure, Subject], Path | None] = lambda measure, subject: None,
    ):
        self.judged = judged
        self.checkpoints, self.store, self.resources = checkpoints, checkpoints.store, checkpoints.resources
        self.made: set[Request] = set()
        self.failed: dict[Request, Exception] = {}
        self._checks: dict[str, ModelChecks] = {}  # keyed by the identity of the model

    def key(self, request: Request) -> Key:
        """Return the cache key of a measurement without reading or making the measurement."""
        measure = get_measure(request.measure or "")
        return measure.key(self._run(measure, request, self.judged(measure, request.subject)))

    def provenance(self, request: Request) -> Provenance:
        """Return the part of a measurement's provenance that is known before the measurement is made."""
        measure = get_measure(request.measure or "")
        return Provenance(**self._facts(measure, self._run(measure, request, self.judged(measure, request.subject))))

    def note(self, request: Request, error: Exception | None, *, made: bool) -> None:
        """Record the result of a request that another process handled. If `error` is given, `get` raises it later."""
        if error is not None:
            self.failed[request] = error
        elif made:
            self.made.add(request)

    def stored(self, request: Request) -> Path | None:
        """Find the entry of a measurement in the store without verifying its files; return None if it is not stored."""
        return self._find(self.key(request), verify=False)

    def _find(self, key: Key, *, verify: bool = True) -> Path | None:
        return self.store.find(MEASUREMENTS, key, verify=verify) if key.identifies_code else None

    @_alone()
    def get(self, request: Request, checkpoint: Path | None = None) -> Measurement:
        """Return a measurement, making it if it is not stored.

        Args:
            checkpoint: Folder of a model to measure instead of the subject's checkpoint.
        """
        own, measure = canonical(request), get_measure(request.measure or "")
        try:
            if checkpoint is None:
                checkpoint = self.judged(measure, request.subject)
                for each in (own.training, own):
                    if each in self.failed:
                        raise self.failed[each]
            run = self._run(measure, request, checkpoint)
            key = measure.key(run)
            if run.recipe is not None:
                self.checkpoints.used[request.subject] = run.recipe
            if measure.reads_model:
                check_code(run.base if run.folder is None else ModelRef.in_folder(run.folder))
            stored = self._find(key)
            if stored is None:
                return self._make(measure, run, key, checkpoint)
            measurement = load(stored)  # may have been made from other files with the same rows or weights
            provenance = replace(measurement.provenance, **self._facts(measure, run))
            return replace(measurement, subject=run.subject, provenance=provenance, reused=own not in self.made)
        except NotApplicableError:
            raise
        except BaseException:
            self.checkpoints.protect(request.subject)
            raise

    def _run(self, measure: Measure, request: Request, checkpoint: Path | None) -> MeasureContext:
        subject, options = request.subject, measure.check_options(dict(request.options))
        if not measure.reads_model:
            return MeasureContext(subject, options, self.resources)
        ref = self.checkpoints.ref(subject.model)
        if not measure.on_task:
            return MeasureContext(subject, options, self.resources, ref, checkpoint or ref.folder())
        if checkpoint is None:
            return MeasureContext(subject, options, self.resources, ref, recipe=self.checkpoints.key(subject))
        opening.open_checkpoint_config(checkpoint, task(subject.task))
        return MeasureContext(subject, options, self.resources, ref, checkpoint)

    @_alone()
    def check(self, request: Request) -> None:
        """Check, before anything is trained, that a measurement's rows can be read and that its model is supported."""
        measure, ref = get_measure(request.measure or ""), self.checkpoints.ref(request.subject.model)
        run = MeasureContext(request.subject, measure.check_options(dict(request.options)), self.resources, ref)
        measure.fingerprint(run)
        self._check_possible(measure, run, None)

    def _check_possible(self, measure: Measure, run: MeasureContext, checkpoint: Path | None) -> None:
        """Check that a measure applies to `checkpoint` or, if it is None, to the base model. Results are cached."""

        def open_with(kernel: str) -> opening.OpenModel:
            if measure.on_task and run.folder is not None:
                return opening.open_checkpoint(run.folder, run.task, run.base, kernel)
            ref = run.base if run.folder is None else ModelRef.in_folder(run.folder)
            return opening.open_classifier(ref, TASKS["rte"], "untrained", attention=kernel)

        checked = run.base if checkpoint is None else ModelRef.in_folder(checkpoint)
        if not measure.on_task and is_lent(checked.path):  # an object without a classifier to check
            measure.check_model(opening.open_encoder(checked))
            return
        refusal = self._checks.setdefault(checked.identity(), ModelChecks()).refusal(measure, open_with)
        if refusal is not None:
            raise type(refusal)(str(refusal))

    def _make(self, measure: Measure, run: MeasureContext, key: Key, checkpoint: Path | None) -> Measurement:
        """Make a measurement and its companions. If the checkpoint is not stored, train it first."""
        check_writable(self.store.root)
        if run.recipe is None:
            return self._store(measure, run, key, checkpoint)
        if self.checkpoints.store_of(run.recipe).find(CHECKPOINTS, run.recipe) is None:
            self.check(Request(measure.name, run.subject, tuple(run.options.given().items())))
        with self.checkpoints.in_use(run.subject) as folder:
            return self._store(measure, replace(run, folder=folder), key, checkpoint)

    def _store(self, measure: Measure, run: MeasureContext, key: Key, checkpoint: Path | None) -> Measurement:
        # If the source of the code is not available, results are recomputed each time.
        store = self.store if key.identifies_code else Store(temporary_folder(key))
        run = replace(run, grid=store.root / "grids" / key.name)
        made: dict[str, tuple[Measurement, Key]] = {}
        if measure.shared:
            made = self._made(measure, run, key, checkpoint)  # before locking, so that processes share the work

        def make(folder: Path) -> dict[str, Any]:
            nonlocal made
            made = made or self._made(measure, run, key, checkpoint)
            return save(made[measure.name][0], folder)

        entry, reused = store.get_or_make(MEASUREMENTS, _title(measure, run.subject, checkpoint), key, make)
        for companion, (measurement, its_key) in made.items():
            if companion != measure.name and key.identifies_code and its_key.identifies_code:
                title = _title(get_measure(companion), run.subject, checkpoint)
                self.store.get_or_make(MEASUREMENTS, title, its_key, partial(save, measurement))
        # New measurements are read back, because JSON has no float32 and later runs must judge the same numbers.
        origin = str(entry) if key.identifies_code else ""
        return replace(load(entry), subject=run.subject, reused=reused, origin=origin)

    def _made(
        self, measure: Measure, run: MeasureContext, key: Key, checkpoint: Path | None
    ) -> dict[str, tuple[Measurement, Key]]:
        """Run a measure and its companions in the same pass, and return all measurements with their keys."""
        if measure.reads_model:
            self._check_possible(measure, run, checkpoint)
        runs = {measure: run}
        for companion in map(get_measure, measure.companions):
            if companion.name != measure.name and companion.fits(run.subject.initialisation):
                options = companion.check_options(measure.shared_options(run.options))
                runs[companion] = replace(run, options=options)
        keys = {each.name: key if each is measure else each.key(runs[each]) for each in runs}
        weights = ModelRef.in_folder(run.folder).identity() if run.folder else None
        began = time.monotonic()
        with torch.inference_mode(not measure.gradients):
            results, examples = measure.results(run)
        seconds = round(time.monotonic() - began, 2)
        if run.recipe is not None:
            run.recipe.check_unchanged(self.checkpoints.key(run.subject))
        if run.folder is not None and ModelRef.in_folder(run.folder).identity() != weights:
            raise UserError(f"{run.folder} changed while in use, so nothing was stored: run the command again")
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
                    **self._facts(each, run),
                    made_by=keys[each.name].made_by,
                    seconds=seconds,
                    made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    python=platform.python_version(),
                    bertsecrets=__version__,
                ),
            )
            made[each.name] = measurement, keys[each.name]
        return made

    def _facts(self, measure: Measure, run: MeasureContext) -> dict[str, Any]:
        """Return the provenance of the measured data, of the training data and, if `run` has a folder, of the model."""
        facts = measure.data_facts(run)
        ref = ModelRef.in_folder(run.folder) if run.folder else None
        manifest = ref.manifest() if ref else {}
        training = self.checkpoints.training_facts(run.subject) if run.recipe else manifest
        facts["official_data"] = facts["official_data"] and (training.get("data") or {}).get("official", True)
        facts["train_limit"] = training.get("train_limit")
        if ref is None or run.folder is None:
            return facts
        trained = Key.of_manifest(manifest)
        return facts | {
            "architecture": ref.model_type(),
            "checkpoint": run.folder.name,
            "checkpoint_made_by": trained.made_by if trained else None,
            "training": manifest.get("training"),
            "weights": ref.identity(),
        }


def _title(measure: Measure, subject: Subject, checkpoint: Path | None) -> str:
    if not measure.reads_model:
        return measure.name
    measured = str(subject) if checkpoint is None else f"{slug(str(checkpoint))}-{subject.task}"
    return f"{measure.name}-{measured}"
