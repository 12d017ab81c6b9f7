"""The commands that check the judge and third-party ablations, and train a parser."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import UserError, one_line, shortened
from bertsecrets.options import RunOptions, add_command, add_run_options, path
from bertsecrets.progress import progress

if TYPE_CHECKING:
    from bertsecrets.lab.calibration.rates import Cell, Rates
    from bertsecrets.settings import JudgeParams

WORLDS, EXAMPLES, SEEDS, SPREADS = 200, [100, 277, 1000], [1, 3, 5], [0.0, 0.5, 1.0]


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    calibrating = add_command(
        commands,
        "calibrate",
        "estimate the judge's error rates and power in simulated worlds",
        "lab calibrate --kind attention --worlds 100 --seeds 1 5",
        calibrate,
    )
    calibrating.add_argument("--kind", action="append", metavar="K", help="only this kind of claim; repeatable")
    calibrating.add_argument("--worlds", type=int, default=WORLDS, metavar="N", help=f"per cell (default: {WORLDS})")
    calibrating.add_argument(
        "--examples", type=int, nargs="+", default=EXAMPLES, metavar="N", help="default: 100 277 1000"
    )
    calibrating.add_argument(
        "--seeds", dest="counts", type=int, nargs="+", default=SEEDS, metavar="N", help="default: 1 3 5"
    )
    calibrating.add_argument(
        "--spread",
        type=float,
        nargs="+",
        default=SPREADS,
        metavar="S",
        help="standard deviation over seeds relative to that over examples: 0, 0.5, 1 (default: all)",
    )
    calibrating.add_argument("--unknown", action="store_true", help="give the judge no prior of the seed variance")
    calibrating.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    calibrating.add_argument("--json", action="store_true", help="print every cell as JSON")
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
    """Print the rates, and return 1 if one exceeds its bound by more than chance explains.

    Raises:
        UserError: a number is out of range, or a kind of claim is unknown.
    """
    from bertsecrets.lab.calibration.kinds import find_kinds
    from bertsecrets.lab.calibration.rates import cells
    from bertsecrets.lab.calibration.table import as_data, table, wrong_lines
    from bertsecrets.settings import load_settings

    for name, numbers, least in (
        ("--worlds", [options.worlds], 1),
        ("--examples", options.examples, 2),
        ("--seeds", options.counts, 1),
        ("--jobs", [options.jobs], 1),
    ):
        if min(numbers) < least:
            raise UserError(f"{name} {min(numbers)} is out of range: give at least {least}")
    unknown = [spread for spread in options.spread if spread not in SPREADS]
    if unknown:
        raise UserError(f"--spread {unknown[0]:g} is not a simulated spread: give 0, 0.5 or 1")
    wanted = [
        cell
        for kind in find_kinds(options.kind)
        for cell in cells(kind, options.examples, options.counts, options.spread, not options.unknown)
    ]
    found = _all_rates(wanted, options.worlds, load_settings().judge, options.jobs)
    if options.markdown:
        from bertsecrets.store.files import write_whole

        write_whole(options.markdown, table(found, "markdown"))
    if options.json:
        print(json.dumps([as_data(rates) for rates in found], indent=1))
    else:
        print(table(found))
        for line in wrong_lines(found):
            print(line)
    return 1 if any(rates.wrong for rates in found) else 0


def _all_rates(wanted: Sequence["Cell"], worlds: int, settings: "JudgeParams", jobs: int) -> list["Rates"]:
    """Return the rates of all cells, estimated in several processes if `jobs` is above 1."""
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    from bertsecrets.lab.calibration.rates import rates

    estimate = partial(rates, worlds=worlds, settings=settings)
    with ExitStack() as stack:
        shown = stack.enter_context(progress("cells", len(wanted), "cell"))
        results: Iterator[Rates] = map(estimate, wanted)
        if jobs > 1:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                os.environ.setdefault(name, "1")  # of each process
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=get_context("spawn")))
            results = pool.map(estimate, wanted)
        every = []
        for result in results:
            every.append(result)
            shown.advance()
        return every


def check_ablation(options: argparse.Namespace) -> int:
    """Print what a function does to each head; return 1 if it fails to disable one.

    Raises:
        UserError: the function does not exist, or raises an error.
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
    """Return the function `MODULE:FUNCTION`; modules in the current folder take precedence.

    Raises:
        UserError: it does not exist.
    """
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
