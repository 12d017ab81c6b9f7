"""From a subject to its measurement: the one place where data, checkpoints, passes and the store meet.

Command line and benchmarks both ask a `Workbench`; nothing is trained or measured twice. What changes a result
(data, settings, limits, precision) is part of its key and is marked in its provenance.
"""

import functools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertsecrets import locations, models
from bertsecrets.core import Measurement, Subject, UserError, digest, slug
from bertsecrets.facts import (
    classifier_facts,
    classifier_problem,
    device_name,
    pipeline_facts,
    pipeline_problem,
    software,
)
from bertsecrets.files import copy_whole, file_sha256
from bertsecrets.finetune import best_device, finetune
from bertsecrets.kept import load, save
from bertsecrets.measures import (
    ABLATION,
    ANNOTATED,
    ATTENTION,
    CLASSIFIER,
    ENCODER,
    EXAMPLE,
    FRAMES,
    MEASURES,
    SPACY,
    check_measure,
)
from bertsecrets.measures.example import SENTENCE
from bertsecrets.memory import give_back
from bertsecrets.params import Params, params
from bertsecrets.sources import Source, Split
from bertsecrets.store import Store
from bertsecrets.tasks import ALL_TASKS, task

CPU = torch.device("cpu")
DEFAULT_PIPELINE = "en_core_web_sm"
NO_FRAMES = "frame-heads needs --frames: a JSONL of frame sentences, or FrameNet's folder or archive"


@dataclass(frozen=True)
class Workbench:
    """Everything a measurement depends on besides its subject.

    `limit` keeps the first validation rows, `train_limit` the first training rows, both in file order; `grid_limit`
    keeps fewer validation rows where every head or layer is disabled in turn.
    """

    store: Store
    source: Source
    device: torch.device = CPU
    limit: int | None = None
    train_limit: int | None = None
    offline: bool = False
    frames: Path | None = None
    spacy: str = DEFAULT_PIPELINE
    grid_limit: int | None = None

    @property
    def settings(self) -> Params:
        """The settings of `params.yaml`."""
        return params()

    # ------------------------------------------------------------------ data and checkpoints

    @functools.cache  # noqa: B019 - a workbench lives as long as its process
    def split(self, task_name: str, name: str) -> Split:
        """A checked split, cut to the limit."""
        return self._whole(task_name, name).head(self.train_limit if name == "train" else self.limit)

    @functools.cache  # noqa: B019
    def _whole(self, task_name: str, name: str) -> Split:
        return self.source.split(task(task_name), name)

    def missing(self, measure: str, task_name: str) -> str | None:
        """Why a measure cannot be had on a task (data, frames, spaCy); None where it can."""
        kind, needs = MEASURES[measure].kind, MEASURES[measure].needs
        if kind == FRAMES and self.frames is None:
            return NO_FRAMES
        problem = None if kind in ENCODER else self.source.missing(task(task_name))
        if problem is None and needs == SPACY:
            return pipeline_problem(self.spacy)
        if problem is None and needs == CLASSIFIER:
            return classifier_problem()
        return problem

    def _cut(self, task_name: str, name: str) -> int | None:
        """The limit on a split, where it leaves rows out: then it is part of a key (by fingerprint), and marked."""
        limit = self.train_limit if name == "train" else self.limit
        return limit if limit is not None and limit < len(self._whole(task_name, name)) else None

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
            "train": self.split(subject.task, "train").fingerprint if trained else None,
            "device": self.device.type if trained else "cpu",
        }

    def _checkpoint(self, subject: Subject) -> tuple[Path, bool]:
        key = self._checkpoint_key(subject)

        def make(folder: Path) -> dict[str, Any]:
            fused = "sdpa" if self.device.type == "cuda" else "eager"  # on a CPU dropout makes SDPA the slower one
            classifier = models.open_classifier(
                subject.model, task(subject.task), subject.initialisation, subject.seed, self.offline, fused
            )
            trained = subject.initialisation != "untrained"
            give_back()  # what earlier measurements have left
            facts = finetune(
                classifier,
                self.split(subject.task, "train") if trained else None,
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
                "data": self._data(subject.task, ("train", "dev") if trained else ("dev",)),
                "train_limit": self._cut(subject.task, "train") if trained else None,
            }

        found = self.store.get_or_make("checkpoints", str(subject), key, make)
        give_back()
        return found

    def export_checkpoint(self, subject: Subject, folder: Path) -> Path:
        """A subject's checkpoint as a folder of the user's choice, whole or not at all."""
        source = self.checkpoint(subject)
        copy_whole(source, folder)
        return folder

    # ------------------------------------------------------------------ measurements

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
        if MEASURES[measure].kind in ENCODER:
            folder = checkpoint or locations.local_folder(locations.locate(subject.model), self.offline)
        else:
            folder = checkpoint or self.checkpoint(subject)
            models.open_checkpoint_config(folder, task(subject.task))
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
        return replace(load(entry), reused=reused)

    def _name(self, measure: str, subject: Subject, checkpoint: Path | None) -> str:
        return f"{measure}-{subject}" if checkpoint is None else f"{measure}-{slug(str(checkpoint))}-{subject.task}"

    def _key(self, measure: str, subject: Subject, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "measure": measure,
            "version": MEASURES[measure].version,
            "checkpoint": locations.identify(locations.Location(str(folder), str(folder))),
            "vocabulary": locations.vocabulary(folder),
            "base": locations.identify(locations.locate(subject.model), self.offline)
            if MEASURES[measure].compares
            else None,
            "model": subject.model,
            "subject": asdict(subject),
            "data": self._fingerprint(measure, subject),
            "settings": self._measure_settings(measure),
            "options": options,
            "device": self.device.type,
        }

    def _measure_settings(self, measure: str) -> dict[str, Any]:
        maps = MEASURES[measure].kind in (ATTENTION, *ENCODER)
        chosen = self.settings.attention if maps else self.settings.scores
        words = {"pipeline": pipeline_facts(self.spacy)} if measure in ("features", "relations") else {}
        return {**chosen.model_dump(), **words, **(classifier_facts() if measure == "patterns" else {})}

    def _rows(self, measure: str, subject: Subject) -> Split | None:
        """The validation rows that are measured; None where the measure brings its own texts."""
        if subject.task == ALL_TASKS:
            return None
        rows = self.split(subject.task, "dev")
        return rows.head(self.grid_limit) if MEASURES[measure].kind == ABLATION else rows

    def _fingerprint(self, measure: str, subject: Subject) -> str:
        """What identifies the texts that are measured."""
        rows = self._rows(measure, subject)
        if rows is not None:
            return rows.fingerprint
        if MEASURES[measure].kind == ANNOTATED:
            from bertsecrets.patterns.training import annotations_fingerprint

            return annotations_fingerprint()
        if MEASURES[measure].kind == EXAMPLE:
            return digest(SENTENCE)
        if self.frames is None:
            raise UserError(NO_FRAMES)
        if self.frames.is_file():
            return file_sha256(self.frames)
        return digest([(str(p), p.stat().st_size) for p in sorted(self.frames.rglob("*.xml"))])

    def _run(self, measure: str, subject: Subject, folder: Path, options: dict[str, Any]) -> dict[str, Measurement]:
        """Run a measure, and those that the same pass feeds."""
        from bertsecrets.experiments import RUNNERS, Inputs

        began = time.monotonic()
        key = digest(self._key(measure, subject, folder, options))
        inputs = Inputs(
            measure,
            subject,
            folder,
            self._rows(measure, subject),
            options,
            self.settings,
            self.device,
            self.offline,
            grid=self.store.root / "grids" / f"{measure}-{key[:12]}",
            cache=self.store.root / "parses",
            frames=self.frames,
            spacy=self.spacy,
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

    def _data(self, task_name: str, names: tuple[str, ...]) -> dict[str, Any]:
        splits = {name: self.split(task_name, name) for name in names}
        return {
            "origin": {name: _public_origin(split) for name, split in splits.items()},
            "rows": {name: len(split) for name, split in splits.items()},
            "official": all(split.official for split in splits.values()),
        }

    def provenance(self, measure: str, subject: Subject, folder: Path, seconds: float) -> dict[str, Any]:
        """Where a measurement comes from: data, limits, checkpoint, software, device, seconds."""
        dev = self._rows(measure, subject)
        manifest = locations.checkpoint_manifest(folder)
        trained_on = manifest.get("data", {})
        names = {ANNOTATED: "annotated maps", FRAMES: self.frames.name if self.frames else None}
        own = names.get(MEASURES[measure].kind)
        return {
            "data": _public_origin(dev) if dev else own,
            "data_fingerprint": self._fingerprint(measure, subject),
            "official_data": (dev is None or dev.official) and trained_on.get("official", True),
            "limit": len(dev) if dev and len(dev) < len(self._whole(subject.task, "dev")) else None,
            "train_limit": manifest.get("train_limit"),
            "checkpoint": folder.name,
            "training": manifest.get("training"),
            "software": software(),
            "device": device_name(self.device),
            "seconds": seconds,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def _public_origin(split: Split) -> str:
    """A split's origin without the folders above it, which say nothing to others."""
    return "/".join(Path(split.origin).parts[-2:]) if Path(split.origin).is_file() else split.origin


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
        if not folder.is_dir():
            raise UserError(f"no GLUE folder at {folder}: give the folder that holds RTE/dev.tsv and its like")
    if frames is not None and not frames.exists():
        raise UserError(f"nothing at {frames}: --frames takes a JSONL, or FrameNet's own folder or archive")
    return Workbench(
        Store(store or Path("runs")),
        Source(next(iter(folders), None), offline, allow_unofficial, tuple(folders[1:])),
        best_device(device),
        limit,
        train_limit,
        offline,
        frames,
        spacy or DEFAULT_PIPELINE,
        grid_limit,
    )
