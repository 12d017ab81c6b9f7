"""The options of a run: one set for the command line, for pytest and for Python."""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bertsecrets.errors import UserError, near_matches, shortened
from bertsecrets.reading import seconds
from bertsecrets.store.keep import KEEPS, Keep
from bertsecrets.types import AUTO, INITIALISATIONS, PRECISIONS, SEEDS, Initialisation

if TYPE_CHECKING:
    from bertsecrets.texts.glue import Source

GLUE_VARIABLE = "BERTSECRETS_GLUE"
STORE_VARIABLE = "BERTSECRETS_STORE"
FRAMES_VARIABLE = "BERTSECRETS_FRAMES"
DEFAULT_PIPELINE = "en_core_web_sm"
HUB = "hub"  # as the GLUE folder
LONGEST_PATH, LONGEST_NAME = 4095, 255  # bytes, on every usual file system
LIMITS = ("limit", "train_limit", "grid_limit")
MOST_THREADS = 1024
MOST_EXAMPLES = 6  # as many as `example-maps` keeps


def path(text: str) -> Path:
    """Return the path that an option names.

    Raises:
        argparse.ArgumentTypeError: it is empty (as from an unset shell variable), which would mean the current folder;
            or longer than a path can be.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: name a file or folder")
    if len(text.encode()) > LONGEST_PATH or any(len(part.encode()) > LONGEST_NAME for part in text.split("/")):
        raise argparse.ArgumentTypeError(f"no path is as long as {shortened(text, 100)}: name a file or folder")
    return Path(text)


def number_of_seeds(text: str) -> int | str:
    """Return the number of seeds that an option asks for, or `auto`.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is neither a whole number nor {AUTO}") from None


def number_of_examples(text: str) -> int:
    """Return the number of examples that an option asks for.

    Raises:
        argparse.ArgumentTypeError: it is no number, or one that is not kept.
    """
    if not text.isdecimal() or int(text) > MOST_EXAMPLES:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is out of range: give 0 to {MOST_EXAMPLES}")
    return int(text)


NUMBER: dict[str, Any] = {"type": int, "metavar": "N"}
FOLDER: dict[str, Any] = {"type": path, "metavar": "DIR"}
SWITCH: dict[str, Any] = {"action": "store_true"}

# How a command line parses each option, with its help.
PARSING: dict[str, dict[str, Any]] = {
    "model": {"help": "model: a hub name, a folder, minilm or mpnet; NAME@REVISION pins a commit"},
    "glue": {
        "help": "local GLUE folder, or hub (default: BERTSECRETS_GLUE, otherwise the hub); "
        "repeatable: later folders fill in missing tasks",
        "action": "append",
        **FOLDER,
    },
    "store": {"help": "folder of checkpoints and measurements (default: BERTSECRETS_STORE, otherwise runs)", **FOLDER},
    "device": {"help": "cpu, cuda, cuda:1 (default: the GPU if there is one)"},
    "precision": {
        "help": "of training: float32, bfloat16, or auto, which is bfloat16 where the device computes it natively "
        "(default: that in params.yaml)",
    },
    "threads": {"help": "processor threads that compute (default: OMP_NUM_THREADS, otherwise one a core)", **NUMBER},
    "limit": {"help": "use only N validation rows, drawn at random, always the same", **NUMBER},
    "train_limit": {"help": "use only N training rows, drawn in the same way", **NUMBER},
    "grid_limit": {"help": "validation rows used for disabling heads and layers, the slow part", **NUMBER},
    "frames": {
        "help": "frame sentences: a JSONL file, or FrameNet's folder or archive (default: BERTSECRETS_FRAMES)",
        "type": path,
        "metavar": "PATH",
    },
    "spacy": {"help": "spaCy pipeline that tags and parses (default: en_core_web_sm)", "metavar": "NAME"},
    "seeds": {
        "help": "judge on seeds 1 to N; auto: add seeds, at most 5, while they can decide a claim and the budget lasts "
        "(default: those in params.yaml)",
        "type": number_of_seeds,
        "metavar": "N",
    },
    "budget": {
        "help": "with --seeds auto: begin no further seed that would take longer than what is left of this time, "
        "such as 90s, 20min or 2h (default: that in params.yaml)",
        "metavar": "TIME",
    },
    "offline": {"help": "never touch the network", **SWITCH},
    "keep_checkpoints": {
        "help": "weights kept in the store once all is measured: full, half (in 16 bits) or none (default: full)",
        "choices": KEEPS,
        "metavar": "|".join(KEEPS),
    },
    "accept_older": {
        "help": "take checkpoints and measurements made by other code, library versions or devices; verdicts say so",
        **SWITCH,
    },
    "allow_unofficial_data": {"help": "accept data whose row or class counts differ from official GLUE", **SWITCH},
}

CHECKPOINT: dict[str, Any] = {
    "help": "judge this one fine-tuned checkpoint, a folder of the task that --task names; --model then names the "
    "pretrained model for claims that compare with it",
    **FOLDER,
}
EXAMPLES: dict[str, Any] = {
    "help": "examples of each task whose attention the page shows, with their texts (default: 3; 0 for none)",
    "type": number_of_examples,
    "default": 3,
    "metavar": "N",
}
OF_TRAINING = ("seeds", "budget", "train_limit", "precision")  # options that a trained checkpoint leaves nothing to


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run; those not given come from the environment or from `params.yaml`.

    With `checkpoint`, that folder alone is judged, fine-tuned on `checkpoint_task`, and `model` is the pretrained model
    that it is compared with.

    Raises:
        UserError: a limit, a number of seeds or of threads is below 1, the precision or what is kept is unknown, the
            budget is no time, or `checkpoint` goes with what it leaves no choice of.
    """

    model: str | None = None
    glue: Sequence[Path | str] | Path | str | None = None
    store: Path | str | None = None
    device: str | None = None
    precision: str | None = None
    threads: int | None = None
    limit: int | None = None
    train_limit: int | None = None
    grid_limit: int | None = None
    frames: Path | str | None = None
    spacy: str | None = None
    seeds: int | str | None = None  # a number, or `auto`
    budget: str | None = None
    keep_checkpoints: str = "full"
    checkpoint: Path | str | None = None
    checkpoint_task: str | None = None
    offline: bool = False
    allow_unofficial_data: bool = False
    accept_older: bool = False

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name.replace('_', '-')} {value} leaves no rows: give 1 or more")
        if isinstance(self.seeds, int):
            seed_range(self.seeds)
        elif self.seeds not in (None, AUTO):
            raise UserError(f"--seeds {shortened(str(self.seeds))} is neither a whole number nor {AUTO}")
        if self.budget is not None:
            try:
                seconds(self.budget)
            except ValueError as error:
                raise UserError(f"--budget {error}") from error
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UserError(f"unknown --precision {self.precision!r}: {near_matches(self.precision, PRECISIONS)}")
        if self.keep_checkpoints not in KEEPS:
            hint = near_matches(self.keep_checkpoints, KEEPS)
            raise UserError(f"unknown --keep-checkpoints {self.keep_checkpoints!r}: {hint}")
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise UserError(f"--threads {self.threads} is out of range: give 1 to {MOST_THREADS}")
        if self.checkpoint is not None:
            self._check_checkpoint()

    def _check_checkpoint(self) -> None:
        if self.checkpoint_task is None:
            raise UserError("--checkpoint needs the one task that it was fine-tuned on: name it with --task")
        given = [name for name in OF_TRAINING if getattr(self, name) is not None]
        given += ["keep_checkpoints"] if self.keep_checkpoints != "full" else []
        if given:
            raise UserError(
                f"--{given[0].replace('_', '-')} has no effect on --checkpoint, which is trained already: leave it out"
            )

    @classmethod
    def of(cls, namespace: argparse.Namespace) -> "RunOptions":
        """Return the options of a run from a parsed command line; its other options are ignored."""
        given = {name: getattr(namespace, name) for name in PARSING if hasattr(namespace, name)}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def judging(self, checkpoint: Path | None, tasks: Sequence[str]) -> "RunOptions":
        """Return the options with a single checkpoint to judge, if there is one, of the only task.

        Raises:
            UserError: there is not exactly one task, or an option has no effect on a checkpoint.
        """
        if checkpoint is None:
            return self
        return replace(self, checkpoint=checkpoint, checkpoint_task=tasks[0] if len(tasks) == 1 else None)

    @property
    def judged(self) -> str | None:
        """What verdicts are about: the checkpoint, or else the model that is named; None for the usual model."""
        return self.model if self.checkpoint is None else str(self.checkpoint)

    @property
    def glue_folders(self) -> list[Path]:
        """The local GLUE folders, in the order in which they are searched; empty if the hub is the source."""
        if self.glue is None:
            return [Path(name) for name in os.environ.get(GLUE_VARIABLE, "").split(os.pathsep) if name]
        given = [self.glue] if isinstance(self.glue, str | Path) else list(self.glue)
        return [] if [str(folder) for folder in given] == [HUB] else [Path(folder) for folder in given]

    def source(self) -> "Source":
        """Return where the rows of GLUE tasks are read from.

        Raises:
            UserError: a GLUE folder does not exist.
        """
        from bertsecrets.texts.glue import Source, check_glue  # takes a while to import, and few commands read rows

        folders = self.glue_folders
        for folder in folders:
            check_glue(folder)
        return Source(
            glue=folders[0] if folders else None,
            offline=self.offline,
            allow_unofficial=self.allow_unofficial_data,
            beside=tuple(folders[1:]),
        )

    @property
    def keep(self) -> Keep:
        """What is kept of a checkpoint's weights once everything is measured."""
        return cast(Keep, self.keep_checkpoints)

    @property
    def store_folder(self) -> Path:
        """The folder that keeps checkpoints, measurements and last verdicts."""
        return Path(self.store) if self.store else _from_environment(STORE_VARIABLE) or Path("runs")

    @property
    def frames_path(self) -> Path | None:
        """The file or folder of frame sentences, if any."""
        return Path(self.frames) if self.frames else _from_environment(FRAMES_VARIABLE)

    @property
    def whole(self) -> bool:
        """True if the run uses all rows of official data, so that its verdicts count."""
        return not self.allow_unofficial_data and not any(getattr(self, name) for name in LIMITS)


def seed_range(count: int) -> range:
    """Return seeds 1 to `count`.

    Raises:
        UserError: the count is below 1, or there are not so many seeds.

    >>> list(seed_range(3))
    [1, 2, 3]
    """
    if count < 1:
        raise UserError(f"--seeds {count} leaves no seeds to run: give 1 or more")
    if count >= SEEDS:
        raise UserError(f"--seeds {count} is out of range: give 1 to {SEEDS - 1}")
    return range(1, count + 1)


def check_initialisation(name: str) -> Initialisation:
    """Return the initialisation of this name.

    Raises:
        UserError: there is none.
    """
    if name not in INITIALISATIONS:
        raise UserError(f"unknown initialisation {name!r}: {near_matches(name, INITIALISATIONS)}")
    return cast(Initialisation, name)


def check_seed(seed: int) -> None:
    """Make sure that a seed can be used.

    Raises:
        UserError: it is negative or too large.
    """
    if not 0 <= seed < SEEDS:
        raise UserError(f"--seed {seed} is out of range: give 0 to {SEEDS - 1}")


def add_options(add: Callable[..., Any], names: Iterable[str] | None = None) -> None:
    """Add options to a command line.

    Args:
        add: `add_argument` of an argparse parser, or `addoption` of a pytest option group.
        names: which ones; all, by default.
    """
    for name in PARSING if names is None else names:
        add(f"--{name.replace('_', '-')}", **PARSING[name])


def _from_environment(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None
