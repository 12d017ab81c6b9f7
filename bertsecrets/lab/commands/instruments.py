"""The commands `calibrate`, `check-ablation` and `train-parser`."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from bertsecrets.errors import UserError, one_line, shortened
from bertsecrets.options import RunOptions, add_command, add_run_options, path
from bertsecrets.progress import progress

WORLDS, RESAMPLES = 200, 500


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    calibrating = add_command(
        commands,
        "calibrate",
        "simulate models whose truth is known, and count the judge's verdicts",
        "lab calibrate --as-published --claim C1 --task rte --worlds 100",
        calibrate,
    )
    calibrating.add_argument(
        "--as-published",
        action="store_true",
        help="simulate a model exactly as published; short for --world as-published",
    )
    calibrating.add_argument(
        "--world",
        action="append",
        default=[],
        metavar="W",
        help="as-published, null, spread-3 and others, or several of them, such as null+spread-3; repeatable",
    )
    calibrating.add_argument("--claim", action="append", default=[], metavar="C", help="only this claim; repeatable")
    calibrating.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="T",
        help="only this task, or `all` for several at once; repeatable",
    )
    calibrating.add_argument("--worlds", type=int, default=WORLDS, metavar="N", help=f"per cell (default: {WORLDS})")
    calibrating.add_argument(
        "--resamples", type=int, default=RESAMPLES, metavar="N", help=f"bootstrap resamples (default: {RESAMPLES})"
    )
    calibrating.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the worlds (default: 1)")
    calibrating.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    calibrating.add_argument(
        "--cells", type=path, metavar="FILE", help="append finished cells to this file, and do not repeat those in it"
    )
    calibrating.add_argument(
        "--data", type=path, metavar="FILE", help="write or update the data of expected/as-published.json"
    )
    calibrating.add_argument("--markdown", type=path, metavar="FILE", help="write the table as Markdown")

    checking = add_command(
        commands,
        "check-ablation",
        "check whether your function disables a head before the output projection",
        "lab check-ablation my_ablation:without_head --model minilm",
        check_ablation,
    )
    checking.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="an importable function of (model, layer, head), both counted from 0; it changes the model in place, or "
        "returns a changed model or a context manager",
    )
    add_run_options(checking, ("model", "offline"))

    training = add_command(
        commands,
        "train-parser",
        "train a small spaCy pipeline if none can be downloaded",
        "lab train-parser ./nltk_data/corpora ./pipeline",
        train_parser,
    )
    training.add_argument(
        "treebank", type=path, metavar="DIR", help="folder with NLTK's dependency_treebank.zip and treebank.zip"
    )
    training.add_argument("folder", type=path, metavar="NEW", help="new folder for the pipeline, to use with --spacy")


def calibrate(options: argparse.Namespace) -> int:
    """Print the verdicts by cell. Returns 1 if significantly more verdicts are false than the bound allows.

    Raises:
        UserError: If a number is out of range, a claim, task or world is unknown, or a file cannot be read or written.
    """
    from datetime import date

    from bertsecrets.claims.prospects import read_prospects
    from bertsecrets.lab.calibration import rates_table
    from bertsecrets.lab.calibration.cells import count_all, find_cells
    from bertsecrets.settings import load_settings
    from bertsecrets.store.files import check_writable, write_whole

    for name, number, least in (
        ("--worlds", options.worlds, 1),
        ("--resamples", options.resamples, 100),
        ("--seed", options.seed, 0),
        ("--jobs", options.jobs, 1),
    ):
        if number < least:
            raise UserError(f"{name} {number} is out of range: give at least {least}")
    names = [*(["as-published"] if options.as_published else []), *options.world]
    if not names:
        raise UserError(
            "no world to simulate: give --as-published, or --world with a name from docs/lab/calibration.md"
        )
    cells = find_cells(options.claim, options.task, names, options.worlds, options.resamples, options.seed)
    for file in filter(None, (options.cells, options.data, options.markdown)):
        check_writable(file)
        file.parent.mkdir(parents=True, exist_ok=True)
    earlier = read_prospects(options.data) if options.data else None
    counted = []
    with progress("cells", len(cells), "cell") as shown:
        for rates in count_all(cells, load_settings().judge.confidence, options.jobs, options.cells):
            counted.append(rates)
            shown.advance()
    places = {cell: place for place, cell in enumerate(cells)}
    counted.sort(key=lambda rates: places[rates.cell])
    print(rates_table.table(counted))
    if options.markdown:
        write_whole(options.markdown, rates_table.table(counted, "markdown"))
    if options.data:
        write_whole(options.data, rates_table.data(counted, date.today().isoformat(), earlier))
    return 1 if any(rates_table.wrong(rates) for rates in counted) else 0


def check_ablation(options: argparse.Namespace) -> int:
    """Print the effect of a function on each head. Returns 1 if it fails to disable one.

    Raises:
        UserError: If the function does not exist, or raises an error.
    """
    disable = _function(options.function)
    from bertsecrets.lab.ablation_check import AblationCheck, summary
    from bertsecrets.measures.base.probe import probe_inputs
    from bertsecrets.models.locations import locate
    from bertsecrets.models.opening import open_classifier
    from bertsecrets.settings import load_settings
    from bertsecrets.texts.tasks import TASKS

    run = RunOptions.of(options)
    name = run.model or load_settings().model
    classifier = open_classifier(locate(name, offline=run.offline), TASKS["rte"], "untrained")
    check = AblationCheck(classifier, probe_inputs(classifier))
    heads, findings = check.heads(), []
    with progress("checking heads", len(heads), "head") as shown:
        for head in heads:
            findings.append(check.check(disable, head))
            shown.advance()
    for line in summary(findings):
        print(line)
    return int(any(finding.outcome != "correct" for finding in findings))


def _function(text: str) -> Callable[..., Any]:
    """Import the function `MODULE:FUNCTION`. Modules in the current folder take precedence."""
    module, colon, name = text.partition(":")
    if not (colon and module and name):
        raise UserError(f"{shortened(text)} is not of the form MODULE:FUNCTION, such as my_ablation:without_head")
    sys.path.insert(0, os.getcwd())
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise UserError(f"cannot import {module}: {type(error).__name__}: {one_line(str(error))}") from error
    finally:
        sys.path.remove(os.getcwd())
    function = getattr(imported, name, None)
    if not callable(function):
        raise UserError(f"module {module} has no function {name}")
    return function


def train_parser(options: argparse.Namespace) -> None:
    """Train a small spaCy tagger and parser, and print its scores."""
    from bertsecrets.lab.train_parser import train_pipeline

    scores = train_pipeline(options.treebank, options.folder)
    print(f"{options.folder}: {json.dumps(scores)}")
