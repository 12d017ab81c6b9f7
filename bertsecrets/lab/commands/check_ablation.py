"""`bertsecrets lab check-ablation`: a check of third-party ablation code."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from bertsecrets.errors import UserError, one_line, shortened
from bertsecrets.options import RunOptions, add_options
from bertsecrets.progress import progress


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser(
        "check-ablation",
        help="check whether your function disables a head before the output projection",
        epilog="example: bertsecrets lab check-ablation my_ablation:without_head --model minilm",
    )
    parser.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="a function of (model, layer, head), both counted from 0, in a module that Python can import here; it "
        "changes the model in place, or returns a changed model or a context manager",
    )
    add_options(parser.add_argument, ("model", "offline"))
    parser.set_defaults(run=check_ablation)


def check_ablation(options: argparse.Namespace) -> int:
    """Print what the function does to each head; returns 0 if all heads are right, else 1.

    Raises:
        UserError: the function does not exist, or it fails.
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
    return int(any(finding.outcome != "right" for finding in findings))


def _function(text: str) -> Callable[..., Any]:
    """Return the function `MODULE:FUNCTION`; modules of the current folder come first.

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
