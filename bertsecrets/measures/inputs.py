"""What a measurement reads: a task's rows, frame sentences, annotated maps; cut to the limits, and fingerprinted."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.measures import ABLATION, ANNOTATED, CLASSIFIER, ENCODER, EXAMPLE, FRAMES, MEASURES, SPACY
from bertsecrets.measures.example_sentence import SENTENCE
from bertsecrets.provenance import classifier_problem, pipeline_problem
from bertsecrets.store.files import digest, file_sha256
from bertsecrets.texts.glue import Source, Split
from bertsecrets.texts.tasks import ALL_TASKS, task

DEFAULT_PIPELINE = "en_core_web_sm"
NO_FRAMES = "frame-heads needs --frames: a JSONL of frame sentences, or FrameNet's folder or archive"


@dataclass(frozen=True)
class Texts:
    """Where texts come from, and how many of them are read.

    `limit` keeps the first validation rows, `train_limit` the first training rows, both in file order; `grid_limit`
    keeps fewer validation rows where every head or layer is disabled in turn.
    """

    source: Source
    limit: int | None = None
    train_limit: int | None = None
    grid_limit: int | None = None
    frames: Path | None = None
    spacy: str = DEFAULT_PIPELINE

    @functools.cache  # noqa: B019 - texts live as long as their process
    def split(self, task_name: str, name: str) -> Split:
        """A checked split, cut to the limit."""
        return self.whole(task_name, name).head(self._limit(name))

    @functools.cache  # noqa: B019
    def whole(self, task_name: str, name: str) -> Split:
        """A checked split with all its rows."""
        return self.source.split(task(task_name), name)

    def _limit(self, name: str) -> int | None:
        return self.train_limit if name == "train" else self.limit

    def cut(self, task_name: str, name: str) -> int | None:
        """The limit on a split, where it leaves rows out: then it is part of a key (by fingerprint), and marked."""
        limit = self._limit(name)
        return limit if limit is not None and limit < len(self.whole(task_name, name)) else None

    def missing_rows(self, task_name: str) -> str | None:
        """Why a task's rows cannot be had; None where they can, and where no single task's are asked for."""
        return None if task_name == ALL_TASKS else self.source.missing(task(task_name))

    def missing(self, measure: str, task_name: str) -> str | None:
        """Why a measure cannot be had on a task (data, frames, spaCy); None where it can."""
        kind, needs = MEASURES[measure].kind, MEASURES[measure].needs
        if kind == FRAMES and self.frames is None:
            return NO_FRAMES
        problem = None if kind in ENCODER else self.missing_rows(task_name)
        if problem is None and needs == SPACY:
            return pipeline_problem(self.spacy)
        if problem is None and needs == CLASSIFIER:
            problem = classifier_problem()
        if problem is None and kind == ANNOTATED:
            from bertsecrets.patterns.training.train import held_out_problem

            return held_out_problem()
        return problem

    def rows(self, measure: str, task_name: str) -> Split | None:
        """The validation rows that are measured; None where the measure brings its own texts."""
        if task_name == ALL_TASKS:
            return None
        rows = self.split(task_name, "dev")
        return rows.head(self.grid_limit) if MEASURES[measure].kind == ABLATION else rows

    def fingerprint(self, measure: str, task_name: str) -> str:
        """What identifies the texts that are measured.

        Raises:
            UserError: frame sentences are wanted, and none are given.
        """
        rows = self.rows(measure, task_name)
        if rows is not None:
            return rows.fingerprint
        if MEASURES[measure].kind == ANNOTATED:
            from bertsecrets.patterns.training.train import annotations_fingerprint

            return annotations_fingerprint()
        if MEASURES[measure].kind == EXAMPLE:
            return digest(SENTENCE)
        if self.frames is None:
            raise UserError(NO_FRAMES)
        if self.frames.is_file():
            return file_sha256(self.frames)
        return digest([(str(p), p.stat().st_size) for p in sorted(self.frames.rglob("*.xml"))])

    # ------------------------------------------------------------------ provenance

    def splits_facts(self, task_name: str, names: tuple[str, ...]) -> dict[str, Any]:
        """Origin and size of a task's splits, for the record of a checkpoint."""
        splits = {name: self.split(task_name, name) for name in names}
        return {
            "origin": {name: _public_origin(split) for name, split in splits.items()},
            "rows": {name: len(split) for name, split in splits.items()},
            "official": all(split.official for split in splits.values()),
        }

    def measured_facts(self, measure: str, task_name: str) -> dict[str, Any]:
        """Origin, fingerprint, officiality and limit of what is measured, for the record of a measurement."""
        dev = self.rows(measure, task_name)
        own = {ANNOTATED: "annotated maps", FRAMES: self.frames.name if self.frames else None}
        return {
            "data": _public_origin(dev) if dev else own.get(MEASURES[measure].kind),
            "data_fingerprint": self.fingerprint(measure, task_name),
            "official_data": dev is None or dev.official,
            "limit": len(dev) if dev and len(dev) < len(self.whole(task_name, "dev")) else None,
        }


def _public_origin(split: Split) -> str:
    """A split's origin without the folders above it, which say nothing to others."""
    return "/".join(Path(split.origin).parts[-2:]) if Path(split.origin).is_file() else split.origin
