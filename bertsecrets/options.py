"""The options of a run, defined once for the command line, pytest and Python."""
# ruff: noqa: RUF009 (_option returns a dataclass field)

import argparse
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import UserError, errors_in, near_matches, quoted, shortened
from bertsecrets.option_checks import as_seeds, check_jobs, check_threads, checked_model, path, seed_range, whole_number
from bertsecrets.reading import expanded, seconds
from bertsecrets.settings import EXPECTED_VARIABLE, project_options
from bertsecrets.texts.tasks import Task
from bertsecrets.texts.tasks import task as task_named
from bertsecrets.types import AUTO, INITIALISATIONS, KEEPS, PRECISIONS, Keep, plain

if TYPE_CHECKING:
    from bertsecrets.texts.glue import Source
    from bertsecrets.texts.own_tasks import OwnTask

VARIABLE_PREFIX = "BERTSECRETS_"  # prefix of the suite's environment variables
# Options whose defaults come from the environment, in Python too.
FROM_ENVIRONMENT = ("model", "glue", "store", "frames", "jobs")
DEFAULT_PIPELINE = "en_core_web_sm"
HUB_SOURCE = "hub"  # value of --glue that selects the hub instead of a folder
# Options of every command that reads rows; some commands add the options for frames and spaCy.
ROW_OPTIONS = (
    *("model", "glue", "task_file", "store", "device", "threads", "precision", "limit", "train_limit", "grid_limit"),
    *("offline", "allow_unofficial_data"),
)
# All run options, grouped as in `--help`.
HELP_GROUPS = {
    "model and data": (
        *("model", "glue", "task_file", "frames", "spacy", "limit", "train_limit", "grid_limit", "offline"),
        "allow_unofficial_data",
    ),
    "seeds and store": ("seeds", "budget", "store", "keep_checkpoints"),
    "computation": ("jobs", "device", "threads", "precision"),
}
LIMIT_OPTIONS = ("limit", "train_limit", "grid_limit")
# Types that Python code may give; the command line parses text.
OPTION_TYPES: dict[str, tuple[tuple[type, ...], tuple[str, ...]]] = {
    "a whole number": ((int,), (*LIMIT_OPTIONS, "jobs", "threads")),
    "an integer or auto": ((int, str), ("seeds",)),
    "a name or path": ((str, os.PathLike), ("model", "glue", "task_file", "store", "frames", "checkpoint")),
    "text": ((str,), ("budget", "precision", "spacy", "device", "keep_checkpoints", "checkpoint_task")),
    "true or false": ((bool,), ("offline", "allow_unofficial_data")),
    "a collection of your own tasks (bertsecrets.Task)": ((Task,), ("tasks",)),
}


def _option(help: str, default: Any = None, **parsing: Any) -> Any:
    """Return a dataclass field for `RunOptions`. The metadata holds the arguments for argparse's `add_argument`."""
    return field(default=default, metadata={"help": help, **parsing})


NUMBER_OPTION: dict[str, Any] = {"type": whole_number, "metavar": "N"}
FOLDER_OPTION: dict[str, Any] = {"type": path, "metavar": "DIR"}
INITIALISATION_OPTION: dict[str, Any] = {
    "choices": INITIALISATIONS,
    "metavar": "NAME",
    "help": f"initialisation: {', '.join(INITIALISATIONS)} (default: pretrained)",
}
CHECKPOINT_OPTION: dict[str, Any] = {
    "help": "judge only this checkpoint, fine-tuned on --task; --model is then the pretrained model to compare it with",
    **FOLDER_OPTION,
}


def _expected(text: str) -> Path:
    """Parse the path of a file with claims, and put it in the environment, where worker processes find it."""
    os.environ[EXPECTED_VARIABLE] = str(path(text))
    return path(text)


EXPECTED_OPTION: dict[str, Any] = {
    "type": _expected,
    "metavar": "FILE",
    "help": "add the claims and recorded outcomes in this YAML file to those of the suite",
}
LISTED_OPTIONS = ("glue", "task_file", "tasks")  # options that may be collections
TRAINING_OPTIONS = ("seeds", "budget", "train_limit", "precision")  # options without effect on a trained checkpoint


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run, whose defaults come from the environment or `params.yaml`.

    If `checkpoint` is given, only that folder is judged. The checkpoint must have been fine-tuned on `checkpoint_task`,
    and `model` is the pretrained model to compare it with.

    Raises:
        UserError: If the value of an option is unknown or out of range, or if an option has no effect on `checkpoint`.
    """

    model: str | None = _option("hub name, folder, minilm or mpnet; NAME@REVISION pins a commit")
    glue: Sequence[Path | str] | Path | str | None = _option(
        "local GLUE folder, or hub (default: BERTSECRETS_GLUE, otherwise the hub); "
        "repeatable: later folders fill in missing tasks",
        action="append",
        **FOLDER_OPTION,
    )
    task_file: Sequence[Path | str] | Path | str | None = _option(
        "YAML file of your own task; repeatable. Unless --task names other tasks, claims are judged on your own tasks",
        action="append",
        type=path,
        metavar="FILE",
    )
    store: Path | str | None = _option(
        "folder of checkpoints and measurements (default: BERTSECRETS_STORE, otherwise runs)", **FOLDER_OPTION
    )
    device: str | None = _option("device to use, such as cpu, cuda or cuda:1 (default: the GPU if there is one)")
    precision: str | None = _option(
        "training precision: float32, bfloat16, or auto, which is bfloat16 if the device supports it natively "
        "(default: from params.yaml)"
    )
    jobs: int | None = _option(
        "number of parallel jobs, on which the default of --threads depends (default: BERTSECRETS_JOBS; if it is not "
        "set, 1 on a GPU, otherwise one per core, at most 4)",
        **NUMBER_OPTION,
    )
    threads: int | None = _option(
        "CPU threads per job (default: OMP_NUM_THREADS, otherwise an equal share of the cores); results for "
        "different numbers of threads are stored separately",
        **NUMBER_OPTION,
    )
    limit: int | None = _option("use only N validation rows, a fixed random sample", **NUMBER_OPTION)
    train_limit: int | None = _option("use only N training rows, a fixed random sample", **NUMBER_OPTION)
    grid_limit: int | None = _option(
        "use only N validation rows when disabling heads and layers, which takes the most time", **NUMBER_OPTION
    )
    frames: Path | str | None = _option(
        "sentences with frames: a JSONL file or FrameNet's folder (default: BERTSECRETS_FRAMES)",
        type=path,
        metavar="PATH",
    )
    spacy: str | None = _option("spaCy pipeline for tagging and parsing (default: en_core_web_sm)", metavar="NAME")
    seeds: int | str | None = _option(
        "use seeds 1 to N; auto measures one seed after another, at most 5, until every claim is decided or the budget "
        "is spent (default: from params.yaml)",
        type=as_seeds,
        metavar="N",
    )
    budget: str | None = _option(
        "with --seeds auto: add no seed that would exceed this time, such as 90s, 20min or 2h "
        "(default: from params.yaml)",
        metavar="TIME",
    )
    offline: bool = _option("never use the network", default=False, action="store_true")
    keep_checkpoints: Keep = _option(
        "checkpoints to keep in the store after all measurements: full (all) or none (default: full)",
        default="full",
        choices=KEEPS,
        metavar="|".join(KEEPS),
    )
    allow_unofficial_data: bool = _option(
        "accept data that differ from official GLUE", default=False, action="store_true"
    )
    checkpoint: Path | str | None = None
    checkpoint_task: str | None = None
    tasks: "Sequence[OwnTask]" = ()

    def __post_init__(self) -> None:
        self._gather_tasks()
        for expected, (types, names) in OPTION_TYPES.items():
            for name in names:
                value = plain(getattr(self, name))
                object.__setattr__(self, name, value)
                for each in several(value) if name in LISTED_OPTIONS else [value]:
                    of_type = isinstance(each, types) and (bool in types or not isinstance(each, bool))
                    if each is not None and not of_type:
                        raise UserError(f"{name} must be {expected}, not {quoted(each)}")
        if self.model is not None:
            object.__setattr__(self, "model", checked_model(self.model))
        for name in LIMIT_OPTIONS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        if isinstance(self.seeds, int):
            seed_range(self.seeds)
        elif self.seeds not in (None, AUTO):
            raise UserError(f"seeds must be a whole number or {AUTO}, not {quoted(self.seeds)}")
        if self.budget is not None:
            try:
                seconds(self.budget)
            except ValueError as error:
                raise UserError(f"budget {error}") from error
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UserError(f"unknown precision {shortened(self.precision)!r}: give one of {', '.join(PRECISIONS)}")
        if self.keep_checkpoints not in KEEPS:
            hint = near_matches(self.keep_checkpoints, KEEPS)
            raise UserError(f"unknown keep_checkpoints {self.keep_checkpoints!r}: {hint}")
        if self.threads is not None:
            check_threads(self.threads)
        if self.jobs is not None:
            check_jobs(self.jobs)
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", expanded(self.checkpoint))
            self._check_checkpoint()

    def _gather_tasks(self) -> None:
        """Add the tasks in the task files to `tasks`. Skip files whose tasks are already in `tasks`."""
        tasks = several(self.tasks)
        files = {expanded(file).absolute() for file in several(self.task_file) if isinstance(file, str | os.PathLike)}
        if files := files - {getattr(own, "file", None) for own in tasks}:
            from bertsecrets.texts.own_tasks import read_task_file  # slow to import, and rarely needed

            tasks += tuple(map(read_task_file, sorted(files)))
        names = [own.name for own in tasks if isinstance(own, Task)]
        if len({*names}) < len(names):
            raise UserError(f"two of your own tasks have the same name: {', '.join(names)}")
        object.__setattr__(self, "tasks", tasks)

    def _check_checkpoint(self) -> None:
        if self.checkpoint_task is None and len(self.tasks) == 1:
            object.__setattr__(self, "checkpoint_task", self.tasks[0].name)
        if self.checkpoint_task is None:
            raise UserError("a checkpoint belongs to a single task: name the task on which it was fine-tuned")
        given = [name for name in TRAINING_OPTIONS if getattr(self, name) is not None]
        given += ["keep_checkpoints"] if self.keep_checkpoints != "full" else []
        if given:
            raise UserError(f"the option `{given[0]}` has no effect on a trained checkpoint: leave out this option")

    @classmethod
    def from_namespace(cls, namespace: argparse.Namespace) -> "RunOptions":
        """Create the options of a run from a parsed command line, ignoring arguments that are not run options."""
        known = {name: getattr(namespace, name) for name in PARSING if hasattr(namespace, name)}
        given = {name: value for name, value in known.items() if value is not None and value is not False}
        trained = getattr(namespace, "checkpoint", None) or getattr(namespace, "measurements", None)
        effective = known.keys() - (TRAINING_OPTIONS if trained else ())
        if getattr(namespace, "measurements", None):
            effective -= {"model"}  # the measurements name theirs
        return cls(**{**{name: value for name, value in configured().items() if name in effective}, **given})

    def judging(self, checkpoint: Path | None, tasks: Sequence[str]) -> "RunOptions":
        """Return a copy of these options that judges a checkpoint on its task or, if it is None, no checkpoint.

        Raises:
            UserError: If a checkpoint is given without exactly one task, or if an option has no effect on a checkpoint.
        """
        tasks = tasks or self.scope
        task = tasks[0] if checkpoint and len(tasks) == 1 else None
        return replace(self, checkpoint=checkpoint, checkpoint_task=task)

    @property
    def judged(self) -> str | None:
        """The judged checkpoint or model; None for the model in `params.yaml`."""
        return self.model if self.checkpoint is None else str(self.checkpoint)

    def errors_about(self, name: str) -> AbstractContextManager[None]:
        """Return a context that names the environment variable in error messages if it provides the option's value."""
        inherited = getattr(self, name) is None and os.environ.get(variable(name))
        return errors_in(f"{variable(name)} in the environment") if inherited else nullcontext()

    @property
    def wanted_jobs(self) -> int | None:
        """The number of parallel jobs, if it is set in these options or in the environment."""
        if self.jobs is not None or not (given := os.environ.get(variable("jobs"))):
            return self.jobs
        with self.errors_about("jobs"):
            try:
                return check_jobs(whole_number(given))
            except argparse.ArgumentTypeError as error:
                raise UserError(str(error)) from error

    @property
    def glue_folders(self) -> list[Path]:
        """The local GLUE folders in search order; empty if the hub is the source."""
        if self.glue is None:
            return [expanded(name) for name in os.environ.get(variable("glue"), "").split(os.pathsep) if name]
        given = several(self.glue)
        return [] if [str(folder) for folder in given] == [HUB_SOURCE] else [expanded(folder) for folder in given]

    @property
    def scope(self) -> list[str]:
        """The tasks to judge by default: the checkpoint's task or the user's own tasks. If empty, all GLUE tasks."""
        if self.checkpoint_task is not None:
            return [task_named(self.checkpoint_task).name]
        return [own.name for own in self.tasks]

    def source(self) -> "Source":
        """Return the source of rows.

        Raises:
            UserError: If a GLUE folder does not exist.
        """
        from bertsecrets.texts.glue import Source, check_glue  # slow to import, and few commands read rows

        folders = self.glue_folders
        with self.errors_about("glue"):
            for folder in folders:
                check_glue(folder)
        return Source(
            glue=folders[0] if folders else None,
            offline=self.offline,
            allow_unofficial=self.allow_unofficial_data,
            fallbacks=tuple(folders[1:]),
            own={own.name: own.splits for own in self.tasks},
        )

    @property
    def store_folder(self) -> Path:
        """The folder of checkpoints, measurements and verdicts."""
        return self._place("store") or Path("runs")

    @property
    def frames_path(self) -> Path | None:
        """The file or folder of sentences with frames, if any."""
        return self._place("frames")

    def _place(self, name: str) -> Path | None:
        given = getattr(self, name) or os.environ.get(variable(name))
        return expanded(given) if given else None

    @property
    def limited(self) -> bool:
        """Whether an option limits the number of rows."""
        return any(getattr(self, name) for name in LIMIT_OPTIONS)

    @property
    def whole(self) -> bool:
        """Whether the run uses all rows of official data."""
        return not self.allow_unofficial_data and not self.limited


# Arguments of `add_argument` by option.
PARSING: dict[str, dict[str, Any]] = {
    option.name: dict(option.metadata) for option in fields(RunOptions) if option.metadata
}


def configured() -> dict[str, Any]:
    """Return the defaults for options that the working directory's `pyproject.toml` sets in `[tool.bertsecrets]`.

    Environment variables take precedence over these defaults.
    """
    given = project_options()
    known = [name for name in PARSING if name not in ("budget", "keep_checkpoints", "task_file")]
    with errors_in("pyproject.toml, [tool.bertsecrets]"):
        for name, value in given.items():
            if name not in known:
                raise UserError(f"unknown option {name!r} in this table: {near_matches(name, known)}")
            if value in ("", []):
                raise UserError(f"{name} is empty: give a value, or delete the line")
        RunOptions(**given)
    overridden = [name for name in FROM_ENVIRONMENT if os.environ.get(variable(name))]
    defaults = {name: value for name, value in given.items() if name not in overridden}
    if model := os.environ.get(variable("model")):
        with errors_in(f"{variable('model')} in the environment"):
            defaults["model"] = RunOptions(model=model).model
    return defaults


def flag(name: str) -> str:
    """Return the command-line flag of an option.

    >>> flag("train_limit")
    '--train-limit'
    """
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """Return the environment variable that gives an option its default.

    >>> variable("store")
    'BERTSECRETS_STORE'
    """
    return f"{VARIABLE_PREFIX}{name.upper()}"


def add_options(add: Callable[..., Any], names: Iterable[str] = tuple(PARSING)) -> None:
    """Add run options with `add`: an argparse parser's `add_argument`, or a pytest group's `addoption`."""
    for name in names:
        add(flag(name), **PARSING[name])


def add_command(
    commands: Any, run: Callable[..., int | None], help: str, arguments: str, program: str = "bertsecrets"
) -> Any:
    """Add the command that `run` executes and is named after, and return its parser. `arguments` are for an example."""
    name = run.__name__.replace("_", "-")
    example = f"example: {program} {name} {arguments}".rstrip()
    parser = commands.add_parser(name, help=help, description=help, epilog=example)
    parser.set_defaults(run=run)
    return parser


def add_run_options(parser: argparse.ArgumentParser, names: Collection[str] = ROW_OPTIONS) -> None:
    """Add run options to a command's parser, in groups.

    The default of `jobs` in `pyproject.toml` also applies to commands without the option `--jobs`, because the number
    of jobs determines the number of threads.
    """
    parser.set_defaults(jobs=None)
    for title, members in HELP_GROUPS.items():
        if present := [name for name in members if name in names]:
            add_options(parser.add_argument_group(title).add_argument, present)


def several(value: Any) -> tuple[Any, ...]:
    """Return the values of an option as a tuple. The option may hold one value, a collection of values or None."""
    if isinstance(value, list | tuple | set):
        return tuple(value)
    return () if value is None else (value,)
