"""The options of a run: one set for the command line, for pytest and for Python."""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bertsecrets.errors import UserError

GLUE_VARIABLE = "BERTSECRETS_GLUE"
STORE_VARIABLE = "BERTSECRETS_STORE"
FRAMES_VARIABLE = "BERTSECRETS_FRAMES"
DEFAULT_PIPELINE = "en_core_web_sm"
LIMITS = ("limit", "train_limit", "grid_limit")


def path(text: str) -> Path:
    """Return a path, as every option takes it.

    Raises:
        argparse.ArgumentTypeError: it is empty, as from a variable that is not set, and would be the current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("an empty path: name a file or folder")
    return Path(text)


def _read(help: str, **parsing: Any) -> dict[str, Any]:
    """How a command line reads a field, and what it says of it."""
    return {"help": help, **parsing}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run reads, computes on and keeps. What is not given comes from the environment or from `params.yaml`.

    Raises:
        UserError: a limit, or a number of seeds, below 1.
    """

    model: str | None = field(default=None, metadata=_read("hub name, folder, or minilm; NAME@REVISION pins a commit"))
    glue: Sequence[Path] | Path | str | None = field(default=None, metadata=_read("local GLUE folder (default: BERTSECRETS_GLUE, else the hub); given again, for what the first lacks",
        type=path,
        action="append",
        metavar="DIR",
    ))
    store: Path | str | None = field(default=None, metadata=_read("where checkpoints and measurements are kept (default: runs)", type=path, metavar="DIR"
    ))
    device: str | None = field(default=None, metadata=_read("cpu, cuda, cuda:1 (default: the GPU where there is one)"))
    limit: int | None = field(default=None, metadata=_read("only the first N validation rows", type=int, metavar="N"))
    train_limit: int | None = field(default=None, metadata=_read("only the first N training rows", type=int, metavar="N"))
    grid_limit: int | None = field(default=None, metadata=_read("of the validation rows, only the first N in ablation grids", type=int, metavar="N"
    ))
    frames: Path | str | None = field(default=None, metadata=_read("frame sentences: JSONL, or FrameNet's folder or archive (default: BERTSECRETS_FRAMES)",
        type=path,
        metavar="PATH",
    ))
    spacy: str | None = field(default=None, metadata=_read("pipeline that tags and parses (default: en_core_web_sm)", metavar="NAME"))
    seeds: int | None = field(default=None, metadata=_read("judge on seeds 1 to N (default: params.yaml)", type=int, metavar="N"))
    offline: bool = field(default=False, metadata=_read("never touch the network", action="store_true"))
    allow_unofficial_data: bool = field(default=False, metadata=_read("go on where row or class counts differ", action="store_true"))

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name.replace('_', '-')} {value} leaves no rows: give 1 or more")
        if self.seeds is not None:
            seed_range(self.seeds)

    @classmethod
    def of(cls, namespace: argparse.Namespace) -> "RunOptions":
        """Return the options among those that a command line has parsed."""
        return cls(**{name: getattr(namespace, name) for name in option_names() if hasattr(namespace, name)})

    @property
    def glue_folders(self) -> list[Path]:
        """The local GLUE folders, looked into in turn; none where the hub is the source."""
        if self.glue is None:
            return [Path(name) for name in os.environ.get(GLUE_VARIABLE, "").split(os.pathsep) if name]
        return [Path(self.glue)] if isinstance(self.glue, str | Path) else [Path(folder) for folder in self.glue]

    @property
    def store_folder(self) -> Path:
        """Where checkpoints, measurements and last verdicts are kept."""
        return Path(self.store) if self.store else _from_environment(STORE_VARIABLE) or Path("runs")

    @property
    def frames_path(self) -> Path | None:
        """The file or folder of frame sentences."""
        return Path(self.frames) if self.frames else _from_environment(FRAMES_VARIABLE)

    @property
    def whole(self) -> bool:
        """Whether all rows of official data are asked for, so that a verdict counts in full."""
        return not self.allow_unofficial_data and not any(getattr(self, name) for name in LIMITS)


def seed_range(count: int) -> range:
    """Return seeds 1 to `count`.

    Raises:
        UserError: a count below 1.
    """
    if count < 1:
        raise UserError(f"--seeds {count} leaves nothing to run: give 1 or more")
    return range(1, count + 1)


def option_names() -> list[str]:
    """Return the names of all options, as Python has them."""
    return [each.name for each in fields(RunOptions)]


def add_options(add: Callable[..., Any], names: Iterable[str] | None = None) -> None:
    """Add options to a command line.

    Args:
        add: `add_argument` of an argparse parser, or `addoption` of a pytest option group.
        names: which ones; all, by default.
    """
    for each in fields(RunOptions):
        if names is None or each.name in names:
            add(f"--{each.name.replace('_', '-')}", **each.metadata)


def _from_environment(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None
