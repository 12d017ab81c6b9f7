"""The resources of measures besides their subject."""

from dataclasses import dataclass
from pathlib import Path

import torch

from bertsecrets.settings import Params
from bertsecrets.texts.rows import TaskRows
from bertsecrets.types import Precision


@dataclass(frozen=True)
class Resources:
    """Everything that measures use besides their subject.

    `frames` is a file or folder of frame sentences, `spacy` the pipeline that tags and parses, `kept` the folder that
    keeps intermediate results between runs, `grid_precision` that of the model while heads are disabled.
    """

    rows: TaskRows
    settings: Params
    device: torch.device
    kept: Path
    frames: Path | None = None
    spacy: str = ""
    grid_precision: Precision = "float32"
