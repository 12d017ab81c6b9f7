"""The command `bertsecrets lab train-parser`."""

import argparse
import json

from bertsecrets.options import path


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser_training = commands.add_parser(
        "train-parser",
        help="train a small spaCy pipeline if none can be downloaded",
        epilog="example: bertsecrets lab train-parser ./nltk_data/corpora ./pipeline",
    )
    parser_training.add_argument(
        "treebank", type=path, help="folder with NLTK's dependency_treebank.zip and treebank.zip"
    )
    parser_training.add_argument("folder", type=path, help="new folder for the pipeline; use it with --spacy FOLDER")
    parser_training.set_defaults(run=train_parser)


def train_parser(options: argparse.Namespace) -> None:
    """Train a small spaCy pipeline that tags and parses, and print its scores."""
    from bertsecrets.lab.train_parser import train_pipeline

    scores = train_pipeline(options.treebank, options.folder)
    print(f"{options.folder}: {json.dumps(scores)}")
