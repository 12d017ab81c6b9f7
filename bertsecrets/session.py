"""From a subject to its measurement: the one place where data, checkpoints, passes and the store meet.

Command line and benchmarks both ask a `Workbench`; nothing is trained or measured twice. What changes a result
(data, settings, limits, precision) is part of its key and is marked in its provenance.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertsecrets.errors import UserError
from bertsecrets.measures import ABLATION, ANNOTATED, ATTENTION, ENCODER, MEASURES, check_measure
from bertsecrets.measures.inputs import DEFAULT_PIPELINE, Texts
from bertsecrets.models import loading, locations
from bertsecrets.models.memory import give_back
from bertsecrets.provenance import best_device, classifier_facts, device_name, pipeline_facts, software
from bertsecrets.settings import Params, params
from bertsecrets.store.entries import Store
from bertsecrets.store.files import copy_whole, digest
from bertsecrets.store.measurements import load, save
from bertsecrets.texts.glue import Source, check_glue
from bertsecrets.texts.tasks import task
from bertsecrets.types import Measurement, Subject, slug

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Workbench:
    """Everything a measurement depends on besides its subject: what is read, on which device, what is kept where."""

    store: Store
    texts: Texts
    device: torch.device = CPU
    offline: bool = False

    @property
    def settings(self) -> Params:
        """The settings of `params.yaml`."""
        return params()

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(self, subject: Subject) -> Path:
        """The folder of a subject's trained checkpoint, trained now if it is not in the store."""
        return self._checkpoint(subject)[0]

    def _checkpoint_key(self, subject: Subject) -> dict[str, Any]:
        trained = subject.initialisation != "untrained"
        return {
            "model": locations.identify(locations.locate(subject.model), self.offline),
            "task": subject.task,
            "initialisation": subject.initialisation,
            "seed": subject.seed,
            "finetune": self.settings.finetune.model_dump() if trained else None,
            "train": self.texts.split(subject.task, "train").fingerprint if trained else None,
            "device": self.device.type if trained else "cpu",
        }

    def _checkpoint(self, subject: Subject) -> tuple[Path, bool]:
        key = self._checkpoint_key(subject)

        def make(folder: Path) -> dict[str, Any]:
            from bertsecrets.models.finetune import finetune  # transformers' Trainer takes seconds to import

            fused = "sdpa" if self.device.type == "cuda" else "eager"  # on a CPU dropout makes SDPA the slower one
            classifier = loading.open_classifier(
                subject.model, task(subject.task), subject.initialisation, subject.seed, self.offline, fused
            )
            trained = subject.initialisation != "untrained"
            give_back()  # what earlier measurements have left
            facts = finetune(
                classifier,
                self.texts.split(subject.task, "train") if trained else None,
                folder,
                self.settings.finetune,
                subject.initialisation,
                subject.seed,
                self.device,
                title=f"fine-tuning {subject}",
            )
            return {
                "subject": asdict(subject),
                "training": facts,
                "software": software(),
                "data": self.texts.splits_facts(subject.task, ("train", "dev") if trained else ("dev",)),
                "train_limit": self.texts.cut(subject.task, "train") if trained else None,
            }

        folder, reused = self.store.get_or_make("checkpoints", str(subject), key, make)
        if not reused:
            give_back()
        return folder, reused

    def export_checkpoint(self, subject: Subject, folder: Path) -> Path:
        """A subject's checkpoint as a folder of the user's choice, whole or not at all."""
        source = self.checkpoint(subject)
        copy_whole(source, folder)
        return folder

    # ------------------------------------------------------------------ measurements

    def missing(self, measure: str, task_name: str) -> str | None:
        """Why a measure cannot be had on a task (data, frames, spaCy); None where it can."""
        return self.texts.missing(measure, task_name)

    def measurement(
        self, measure: str, subject: Subject, checkpoint: Path | None = None, **options: Any
    ) -> Measurement:
        """A subject's measurement, from the store or made now.

        Args:
            checkpoint: a folder to measure instead of the subject's own trained checkpoint.
            options: of the measure, e.g. `padded_to=200` for `attention-change`.

        Raises:
            UserError: an unknown measure, or anything missing that it needs.
        """
        check_measure(measure)
        if MEASURES[measure].kind == ANNOTATED:
            from bertsecrets.patterns.classifier import chosen_folder  # with scikit-learn, which takes its time

            folder = chosen_folder()
        elif MEASURES[measure].kind in ENCODER:
            folder = checkpoint or locations.local_folder(locations.locate(subject.model), self.offline)
        else:
            folder = checkpoint or self.checkpoint(subject)
            loading.open_checkpoint_config(folder, task(subject.task))
        key = self._key(measure, subject, folder, options)
        made: dict[str, Measurement] = {}

        name = self._name(measure, subject, checkpoint)
        if MEASURES[measure].kind == ABLATION and self.store.find("measurements", name, key) is None:
            made = self._run(measure, subject, folder, options)  # before the entry's lock: processes share a grid

        def make(target: Path) -> dict[str, Any]:
            if measure not in made:
                made.update(self._run(measure, subject, folder, options))
            return save(made[measure], target)

        entry, reused = self.store.get_or_make("measurements", name, key, make)
        for sibling, found in made.items():  # a pass that fed other measures too: keep what it gave
            if sibling != measure:
                self.store.get_or_make(
                    "measurements",
                    self._name(sibling, subject, checkpoint),
                    self._key(sibling, subject, folder, options),
                    partial(save, found),
                )
        return replace(load(entry), subject=subject, reused=reused)

    def _name(self, measure: str, subject: Subject, checkpoint: Path | None) -> str:
        if MEASURES[measure].kind == ANNOTATED:
            return measure
        return f"{measure}-{subject}" if checkpoint is None else f"{measure}-{slug(str(checkpoint))}-{subject.task}"

    def _key(self, measure: str, subject: Subject, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
        made_by = {"measure": measure, "version": MEASURES[measure].version}
        if MEASURES[measure].kind == ANNOTATED:  # the same whatever the model: made once for all of them
            maps = {"data": self.texts.fingerprint(measure, subject.task)}
            return {**made_by, **maps, "settings": self._measure_settings(measure)}
        return {
            **made_by,
            "checkpoint": locations.identify(locations.Location(str(folder), str(folder))),
            "vocabulary": locations.vocabulary(folder),
            "base": locations.identify(locations.locate(subject.model), self.offline)
            if MEASURES[measure].compares
            else None,
            "model": subject.model,
            "subject": asdict(subject),
            "data": self.texts.fingerprint(measure, subject.task),
            "settings": self._measure_settings(measure),
            "options": options,
            "device": self.device.type,
        }

    def _measure_settings(self, measure: str) -> dict[str, Any]:
        maps = MEASURES[measure].kind in (ATTENTION, *ENCODER)
        chosen = self.settings.attention if maps else self.settings.scores
        words = {"pipeline": pipeline_facts(self.texts.spacy)} if measure in ("features", "relations") else {}
        patterns = classifier_facts() if measure in ("patterns", "pattern-quality") else {}
        if measure == "pattern-quality":
            patterns = {"classifier": patterns["classifier"]}  # its models are those of the maps it is judged on
        return {**chosen.model_dump(), **words, **patterns}

    def _run(self, measure: str, subject: Subject, folder: Path, options: dict[str, Any]) -> dict[str, Measurement]:
        """Run a measure, and those that the same pass feeds."""
        from bertsecrets.measures.running import RUNNERS, Inputs

        began = time.monotonic()
        key = digest(self._key(measure, subject, folder, options))
        inputs = Inputs(
            measure,
            subject,
            folder,
            self.texts.rows(measure, subject.task),
            options,
            self.settings,
            self.device,
            self.offline,
            grid=self.store.root / "grids" / f"{measure}-{key[:12]}",
            cache=self.store.root / "parses",
            frames=self.texts.frames,
            spacy=self.texts.spacy,
        )
        with torch.inference_mode():
            results, examples = RUNNERS[MEASURES[measure].kind](inputs)
        seconds = round(time.monotonic() - began, 2)
        return {
            name: Measurement(
                name,
                subject,
                examples,
                values,
                samples,
                self._measure_settings(name),
                options,
                self.provenance(name, subject, folder, seconds),
            )
            for name, (values, samples) in results.items()
        }

    # ------------------------------------------------------------------ provenance

    def provenance(self, measure: str, subject: Subject, folder: Path, seconds: float) -> dict[str, Any]:
        """Where a measurement comes from: data, limits, checkpoint, software, device, seconds."""
        texts = self.texts.measured_facts(measure, subject.task)
        manifest = locations.checkpoint_manifest(folder)
        return {
            **texts,
            "official_data": texts["official_data"] and manifest.get("data", {}).get("official", True),
            "train_limit": manifest.get("train_limit"),
            "checkpoint": folder.name,
            "training": manifest.get("training"),
            "software": software(),
            "device": device_name(self.device),
            "seconds": seconds,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def open_workbench(
    store: Path | None = None,
    glue: Path | Sequence[Path] | None = None,
    device: str | None = None,
    limit: int | None = None,
    train_limit: int | None = None,
    offline: bool = False,
    allow_unofficial: bool = False,
    frames: Path | None = None,
    spacy: str | None = None,
    grid_limit: int | None = None,
) -> Workbench:
    """A workbench from plain options, as the command line and pytest have them.

    Args:
        glue: a local GLUE folder, or several that are looked into in turn for each split.

    Raises:
        UserError: an impossible limit or an absent device or folder.
    """
    for name, value in (("--limit", limit), ("--train-limit", train_limit), ("--grid-limit", grid_limit)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value} leaves no rows: give 1 or more")
    folders = [glue] if isinstance(glue, Path) else list(glue or ())
    for folder in folders:
        check_glue(folder)
    if frames is not None and not frames.exists():
        raise UserError(f"nothing at {frames}: --frames takes a JSONL, or FrameNet's own folder or archive")
    source = Source(next(iter(folders), None), offline, allow_unofficial, tuple(folders[1:]))
    texts = Texts(source, limit, train_limit, grid_limit, frames, spacy or DEFAULT_PIPELINE)
    return Workbench(Store(store or Path("runs")), texts, best_device(device), offline)
