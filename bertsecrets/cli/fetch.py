"""The commands that prepare data and models: `fetch`, `corpus`, `finetune`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.errors import UserError
from bertsecrets.options import (
    INITIALISATION_OPTION,
    ROW_OPTIONS,
    RunOptions,
    add_command,
    add_run_options,
    path,
    whole_number,
)
from bertsecrets.progress import counted
from bertsecrets.texts.tasks import TASKS, task

if TYPE_CHECKING:
    from bertsecrets.models.locations import ModelRef
    from bertsecrets.texts.glue import Split


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    writing = add_command(
        commands,
        corpus,
        "write the suite's small synthetic corpus: a GLUE folder with frame sentences",
        "./corpus --train-rows 200",
    )
    writing.add_argument("folder", type=path, metavar="DIR", help="folder to create")
    writing.add_argument(
        "--train-rows", type=whole_number, metavar="N", help="number of training pairs (default: from params.yaml)"
    )
    writing.add_argument(
        "--dev-rows", type=whole_number, metavar="N", help="number of validation pairs (default: from params.yaml)"
    )

    fetching = add_command(commands, fetch, "download a model and GLUE tasks, and check them", "--task rte")
    fetching.add_argument("--task", action="append", help="GLUE task; repeatable (default: all seven)")
    fetching.add_argument(
        "--output", type=path, metavar="DIR", help="write the tasks as a GLUE folder, without fetching a model"
    )
    fetching.add_argument(
        "--digests",
        type=path,
        metavar="FILE",
        help="write the digests of the model's files as JSON, without fetching tasks",
    )
    fetching.add_argument(
        "--watched",
        type=path,
        metavar="PATH",
        help="with --output or --digests: fail unless the files are read from this path, which a pipeline watches",
    )
    add_run_options(fetching, [name for name in ROW_OPTIONS if name != "task_file"])

    training = add_command(
        commands, finetune, "fine-tune one checkpoint", "--task rte --init random --seed 2 --output ./checkpoint"
    )
    training.add_argument("--task", required=True, help="GLUE task")
    training.add_argument("--init", default="pretrained", **INITIALISATION_OPTION)
    training.add_argument("--seed", type=whole_number, default=1, metavar="N", help="default: 1")
    training.add_argument("--output", type=path, metavar="DIR", help="also write the checkpoint to this folder")
    add_run_options(training)


def corpus(options: argparse.Namespace) -> None:
    """Write the synthetic corpus."""
    from bertsecrets.settings import load_settings
    from bertsecrets.texts.corpus import CORPUS_FRAME_SENTENCES, PAIR_LIMIT, write_corpus, write_frames
    from bertsecrets.texts.glue import SPLITS, load_folder

    default = load_settings().corpus
    rows = (
        default.train_rows if options.train_rows is None else options.train_rows,
        default.dev_rows if options.dev_rows is None else options.dev_rows,
    )
    wanted = f"{rows[0]} training and {rows[1]} validation pairs"
    if min(rows) < 1 or sum(rows) > PAIR_LIMIT:
        raise UserError(
            f"cannot write {wanted}: give at least 1 pair of each kind, and at most {PAIR_LIMIT} pairs in total"
        )
    folder = write_corpus(options.folder, *rows)
    written = tuple(len(load_folder(folder, task("rte"), name)) for name in SPLITS)
    if written != rows:
        raise UserError(
            f"{folder} already has {written[0]} training and {written[1]} validation pairs, "
            f"not {rows[0]} and {rows[1]}: choose a new folder"
        )
    print(f"{folder}: RTE, {wanted}")
    print(f"{write_frames(folder)}: {CORPUS_FRAME_SENTENCES} frame sentences")


def fetch(options: argparse.Namespace) -> None:
    """Download and check a model and tasks, or write only the files requested with `--output` or `--digests`."""
    if options.output and options.digests:
        raise UserError(
            "--output and --digests cannot be combined, because --output writes data and --digests describes a model: "
            "run fetch once with each option"
        )
    if options.watched and not (options.output or options.digests):
        raise UserError("--watched has no effect without --output or --digests: leave it out")
    if options.output:
        return _fetch_tasks(options)
    if options.digests:
        return _fetch_digests(options)
    from bertsecrets.models.opening import open_classifier
    from bertsecrets.session import Session

    session = Session(RunOptions.from_namespace(options))
    tasks = [task(name) for name in options.task or TASKS]
    ref = session.ref(session.model).resolved()
    open_classifier(ref, tasks[0])
    print(_place(ref))
    _print_splits([session.resources.rows.split(each.name, name) for each in tasks for name in ("train", "dev")])


def _fetch_tasks(options: argparse.Namespace) -> None:
    from bertsecrets.texts.glue_folder import write_tasks

    run = RunOptions.from_namespace(options)
    if options.watched:
        _check_watched("GLUE", run.glue_folders, options.watched)
    _print_splits(write_tasks(run.source(), [task(name) for name in options.task or TASKS], options.output))
    print(options.output)


def _fetch_digests(options: argparse.Namespace) -> None:
    from bertsecrets.models.locations import ENCODER_FILES, TOKENIZER_FILES, locate
    from bertsecrets.settings import load_settings
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import file_sha256, listed

    name = RunOptions.from_namespace(options).model or load_settings().model
    if options.watched:
        _check_watched("the model", [Path(name)] if os.path.isdir(name) else [], options.watched)
    ref = locate(name, options.offline).resolved()
    folder = ref.folder()
    files = {
        path for pattern in (*ENCODER_FILES, *TOKENIZER_FILES) for path in listed(folder, pattern) if path.is_file()
    }
    write_json(options.digests, {"model": ref.name, "files": {path.name: file_sha256(path) for path in sorted(files)}})
    print(f"{_place(ref)}\n{options.digests}")


def _check_watched(what: str, folders: Sequence[Path], watched: Path) -> None:
    """Check that only the folder `watched` is read. If it is not a folder, check that no local folder is read."""
    expected = [watched] if watched.is_dir() else []
    if [os.path.realpath(folder) for folder in folders] != [os.path.realpath(folder) for folder in expected]:
        read = f"is read from {folders[0]}" if folders else "is not read from a folder"
        raise UserError(
            f"{what} {read}, but the pipeline watches {watched} for changes: use the same folder for both "
            "(see pipeline.model_files and pipeline.glue_files in params.yaml)"
        )


def _place(ref: "ModelRef") -> str:
    return f"{ref.name}: {ref.path}{'@' + ref.revision if ref.revision else ''}"


def _print_splits(splits: Sequence["Split"]) -> None:
    for split in splits:
        mark = "" if split.official else " (unofficial)"
        print(f"{split.task.title} {split.name}: {counted(len(split), 'row')}{mark}, {split.fingerprint[:12]}")


def finetune(options: argparse.Namespace) -> None:
    """Fine-tune one checkpoint unless it is already in the store."""
    from bertsecrets.session import Session
    from bertsecrets.store.files import check_free

    if options.output:
        check_free(options.output)
    session = Session(RunOptions.from_namespace(options))
    subject = session.subject(options.task, options.init, options.seed)
    session.check_model()
    print(session.export_checkpoint(subject, options.output) if options.output else session.checkpoint(subject))
