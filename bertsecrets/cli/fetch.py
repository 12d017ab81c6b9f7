"""The commands that prepare data and models: `fetch`, `corpus`, `finetune`."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.cli.parsing import add_command
from bertsecrets.errors import UserError
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_options, path
from bertsecrets.texts.tasks import TASKS, task
from bertsecrets.types import INITIALISATIONS

if TYPE_CHECKING:
    from bertsecrets.models.locations import ModelRef
    from bertsecrets.texts.glue import Split


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    corpus_parser = add_command(
        commands,
        "corpus",
        "write the suite's own small synthetic corpus as a GLUE folder",
        "corpus ./corpus --train-rows 200",
        corpus,
    )
    corpus_parser.add_argument("folder", type=path)
    corpus_parser.add_argument("--train-rows", type=int, help="number of training pairs (default: params.yaml)")
    corpus_parser.add_argument("--dev-rows", type=int, help="number of validation pairs (default: params.yaml)")

    fetch_parser = add_command(
        commands, "fetch", "download a model and GLUE tasks, and check them", "fetch --task rte", fetch
    )
    fetch_parser.add_argument("--task", action="append", help="repeatable (default: all seven tasks)")
    fetch_parser.add_argument(
        "--output",
        type=path,
        metavar="DIR",
        help="write the tasks to this folder, in GLUE's own layout, and leave out the model",
    )
    fetch_parser.add_argument(
        "--digests",
        type=path,
        metavar="FILE",
        help="write the digests of the model's files to this JSON file, and leave out the tasks",
    )
    fetch_parser.add_argument(
        "--watched",
        type=path,
        metavar="PATH",
        help="with one of these: refuse another folder than this one, which a pipeline watches for changes",
    )
    add_options(fetch_parser.add_argument, ROW_OPTIONS)

    training = add_command(
        commands,
        "finetune",
        "fine-tune one checkpoint",
        "finetune --task rte --init random --seed 2 --output ./checkpoint",
        finetune,
    )
    training.add_argument("--task", required=True)
    training.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    training.add_argument("--seed", type=int, default=1)
    training.add_argument("--output", type=path, help="also write the checkpoint to this folder")
    add_options(training.add_argument, ROW_OPTIONS)


def corpus(options: argparse.Namespace) -> None:
    """Write the suite's own corpus.

    Raises:
        UserError: impossible numbers of rows, or the folder holds another corpus.
    """
    from bertsecrets.settings import load_settings
    from bertsecrets.texts.corpus import MOST, write_corpus
    from bertsecrets.texts.glue import SPLITS, load_folder

    usual = load_settings().corpus
    rows = (
        usual.train_rows if options.train_rows is None else options.train_rows,
        usual.dev_rows if options.dev_rows is None else options.dev_rows,
    )
    wanted = f"{rows[0]} training and {rows[1]} validation pairs"
    if min(rows) < 1 or sum(rows) > MOST:
        raise UserError(f"cannot write {wanted}: give 1 or more of each, and at most {MOST} in total")
    folder = write_corpus(options.folder, *rows)
    written = tuple(len(load_folder(folder, task("rte"), name)) for name in SPLITS)
    if written != rows:
        raise UserError(f"{folder} already holds {written[0]} and {written[1]} pairs, not {wanted}: name a new folder")
    print(f"{folder}: RTE, {wanted}")


def fetch(options: argparse.Namespace) -> None:
    """Download and check a model and tasks, or only write down one of the two.

    Raises:
        UserError: they are not available, or `--watched` is not what is read.
    """
    if options.output and options.digests:
        raise UserError("--output writes data and --digests is about the model: give one of the two at a time")
    if options.watched and not (options.output or options.digests):
        raise UserError("--watched has no effect without --output or --digests: leave it out")
    if options.output:
        return _fetch_tasks(options)
    if options.digests:
        return _fetch_digests(options)
    from bertsecrets.models.opening import open_classifier
    from bertsecrets.session import Session

    session = Session(RunOptions.of(options))
    tasks = [task(name) for name in options.task or TASKS]
    ref = session.ref(session.model).resolved()
    open_classifier(ref, tasks[0])
    print(_place(ref))
    _print_splits([session.resources.rows.split(one.name, name) for one in tasks for name in ("train", "dev")])


def _fetch_tasks(options: argparse.Namespace) -> None:
    """Write tasks as a GLUE folder."""
    from bertsecrets.texts.glue_folder import write_tasks

    run = RunOptions.of(options)
    if options.watched:
        _check_watched("GLUE", run.glue_folders, options.watched)
    _print_splits(write_tasks(run.source(), [task(name) for name in options.task or TASKS], options.output))
    print(options.output)


def _fetch_digests(options: argparse.Namespace) -> None:
    """Write the digests of the files that a model is read from."""
    from bertsecrets.models.locations import ENCODER_FILES, TOKENIZER_FILES, locate
    from bertsecrets.settings import load_settings
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import file_sha256

    name = options.model or load_settings().model
    if options.watched:
        _check_watched("the model", [Path(name)] if os.path.isdir(name) else [], options.watched)
    ref = locate(name, options.offline).resolved()
    folder = ref.folder()
    files = {path for pattern in (*ENCODER_FILES, *TOKENIZER_FILES) for path in folder.glob(pattern) if path.is_file()}
    write_json(options.digests, {"model": ref.name, "files": {path.name: file_sha256(path) for path in sorted(files)}})
    print(f"{_place(ref)}\n{options.digests}")


def _check_watched(what: str, folders: Sequence[Path], watched: Path) -> None:
    """Make sure that what a pipeline watches is what is read, if that is a folder.

    Raises:
        UserError: it is another one, or none is read.
    """
    wanted = [watched] if watched.is_dir() else []
    if [os.path.realpath(one) for one in folders] != [os.path.realpath(one) for one in wanted]:
        read = f"from {folders[0]}" if folders else "not from a folder"
        raise UserError(
            f"{what} is read {read}, but changes of {watched} are watched: name the same folder for both "
            "(model_files, glue_files of the pipeline in params.yaml)"
        )


def _place(ref: "ModelRef") -> str:
    return f"{ref.name}: {ref.path}{'@' + ref.revision if ref.revision else ''}"


def _print_splits(splits: Sequence["Split"]) -> None:
    for split in splits:
        mark = "" if split.official else " (unofficial)"
        print(f"{split.task.title} {split.name}: {len(split)} rows{mark}, {split.fingerprint[:12]}")


def finetune(options: argparse.Namespace) -> None:
    """Fine-tune one checkpoint, unless it is in the store."""
    from bertsecrets.session import Session
    from bertsecrets.store.files import check_free

    if options.output:
        check_free(options.output)
    session = Session(RunOptions.of(options))
    subject = session.subject(options.task, options.init, options.seed)
    session.check_model()
    folder = session.export_checkpoint(subject, options.output) if options.output else session.checkpoint(subject)
    print(folder)
