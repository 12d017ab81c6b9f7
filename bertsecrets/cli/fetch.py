"""The commands that prepare data and models: `fetch`, `corpus`, `finetune`, `train-parser`."""

import argparse
import json

from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_options, path
from bertsecrets.texts.tasks import TASKS, task
from bertsecrets.types import INITIALISATIONS

# The options of every command that computes on rows; `measure` and `report` add those of frames and spaCy.
ROW_OPTIONS = (
    *("model", "glue", "store", "device", "threads", "precision", "limit", "train_limit", "grid_limit"),
    *("offline", "allow_unofficial_data", "accept_older"),
)


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    corpus_parser = commands.add_parser("corpus", help="write the suite's own small synthetic corpus as a GLUE folder")
    corpus_parser.add_argument("folder", type=path)
    corpus_parser.add_argument("--train-rows", type=int, help="number of training pairs (default: params.yaml)")
    corpus_parser.add_argument("--dev-rows", type=int, help="number of validation pairs (default: params.yaml)")
    corpus_parser.set_defaults(run=corpus)

    fetch_parser = commands.add_parser("fetch", help="download a model and GLUE tasks, and check them")
    fetch_parser.add_argument("--task", action="append", help="repeatable (default: all seven tasks)")
    add_options(fetch_parser.add_argument, ROW_OPTIONS)
    fetch_parser.set_defaults(run=fetch)

    training = commands.add_parser("finetune", help="fine-tune one checkpoint")
    training.add_argument("--task", required=True)
    training.add_argument("--init", choices=INITIALISATIONS, default="pretrained")
    training.add_argument("--seed", type=int, default=1)
    training.add_argument("--output", type=path, help="also write the checkpoint to this folder")
    add_options(training.add_argument, ROW_OPTIONS)
    training.set_defaults(run=finetune)

    parser_training = commands.add_parser("train-parser", help="train a small spaCy pipeline if none can be downloaded")
    parser_training.add_argument(
        "treebank", type=path, help="folder with NLTK's dependency_treebank.zip and treebank.zip"
    )
    parser_training.add_argument("folder", type=path, help="new folder for the pipeline; use it with --spacy FOLDER")
    parser_training.set_defaults(run=train_parser)


def corpus(options: argparse.Namespace) -> None:
    """Write the suite's own corpus.

    Raises:
        UserError: impossible numbers of rows, or the folder holds another corpus.
    """
    from bertsecrets.settings import load_settings
    from bertsecrets.texts.corpus import MOST, write_corpus
    from bertsecrets.texts.glue import SPLITS, load_folder

    demo = load_settings().demo
    rows = (
        demo.train_rows if options.train_rows is None else options.train_rows,
        demo.dev_rows if options.dev_rows is None else options.dev_rows,
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
    """Download and check a model and tasks."""
    from bertsecrets.models.loading import open_classifier
    from bertsecrets.session import Session

    session = Session(RunOptions.of(options))
    tasks = [task(name) for name in options.task or TASKS]
    ref = session.ref(session.model).resolved()
    open_classifier(ref, tasks[0])
    print(f"{ref.name}: {ref.path}{'@' + ref.revision if ref.revision else ''}")
    for one in tasks:
        for name in ("train", "dev"):
            split = session.resources.rows.split(one.name, name)
            mark = "" if split.official else " (unofficial)"
            print(f"{one.title} {name}: {len(split)} rows{mark}, {split.fingerprint[:12]}")


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


def train_parser(options: argparse.Namespace) -> None:
    """Train a small spaCy pipeline that tags and parses, and print its scores."""
    from bertsecrets.texts.train_parser import train_pipeline

    scores = train_pipeline(options.treebank, options.folder)
    print(f"{options.folder}: {json.dumps(scores)}")
