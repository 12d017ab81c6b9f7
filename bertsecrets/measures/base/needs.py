"""Resources for measures, and the additional requirements of some measures.

Each requirement reports whether something is missing, and adds facts to the cache key.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertsecrets.errors import UserError
from bertsecrets.settings import Params
from bertsecrets.store.files import folder_digest
from bertsecrets.texts.parsing import describe, load_pipeline
from bertsecrets.texts.rows import TaskRows
from bertsecrets.types import Precision

FRAMES_ADVICE = "frame-heads needs the option frames: set it to a JSONL file of frame sentences or to FrameNet's folder"


@dataclass(frozen=True)
class Resources:
    """Everything that a measure uses apart from the measured subject.

    `frames` is a file or folder of frame sentences. `spacy` names the pipeline for tagging and parsing. `kept` is the
    cache folder for intermediate results. `grid_precision` is the model's precision during head ablation.
    """

    rows: TaskRows
    settings: Params
    device: torch.device
    kept: Path
    frames: Path | None = None
    spacy: str = ""
    grid_precision: Precision = "float32"


class Requirement:
    """Something that a measure requires in addition to rows and a checkpoint, such as a spaCy pipeline."""

    def check(self, resources: Resources) -> None:
        """Raise a `UserError` if something is missing. The message says what is missing and how to get it."""

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return those facts about the requirement that affect results. They become part of the cache key."""
        return {}


class FrameSentences(Requirement):
    """Sentences annotated with the target and the core elements of a frame."""

    def check(self, resources: Resources) -> None:
        if resources.frames is None:
            raise UserError(FRAMES_ADVICE)


class SpacyPipeline(Requirement):
    """A spaCy pipeline with a tagger and a parser."""

    def check(self, resources: Resources) -> None:
        pipeline_facts(resources.spacy)

    def settings(self, resources: Resources) -> dict[str, Any]:
        return {"pipeline": pipeline_facts(resources.spacy)}


def pipeline_facts(name: str) -> dict[str, Any]:
    """Return the facts that identify a spaCy pipeline, cached until the content of its folder changes.

    Raises:
        UserError: the pipeline cannot be used.
    """
    return _described(name, folder_digest(Path(name)) if Path(name).is_dir() else None)


@functools.cache
def _described(name: str, _content: str | None) -> dict[str, Any]:
    return describe(load_pipeline(name))
