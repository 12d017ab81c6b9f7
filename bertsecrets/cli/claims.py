"""The commands `claims` (list claims), `explain` (show one) and `history` (list its verdicts)."""

import argparse
import json
import sys

from bertsecrets.errors import UserError
from bertsecrets.models.families import full_name
from bertsecrets.options import RunOptions, add_command, add_run_options
from bertsecrets.texts.tasks import ALL_TASKS, task

NAME = {"metavar": "CLAIM", "help": "id or name as in tables, such as C1, D1-random, C1-rte or D1-rte-random"}


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    listing = add_command(commands, "claims", "list all claims with their status", "claims --model minilm", claims)
    listing.add_argument("--model", help="show known outcomes and verdicts of this model only")
    listing.add_argument("--task", help="only claims on this task; `all` for claims across tasks")
    listing.add_argument("--family", metavar="LETTER", help="only claims of this family, such as C")
    listing.add_argument("-v", "--verbose", action="store_true", help="also print each claim's source and measure")

    explaining = add_command(
        commands, "explain", "show one claim: figures, bands, known outcomes, last verdicts", "explain C1-rte", explain
    )
    explaining.add_argument("claim", **NAME)

    past = add_command(
        commands, "history", "list all verdicts on one claim, and what changed", "history C1 --task rte", history
    )
    past.add_argument("claim", **NAME)
    past.add_argument("--task", help="verdicts on this task only; `all` for claims across tasks")
    past.add_argument("--model", help="verdicts on this model only")
    past.add_argument("--json", action="store_true", help="print JSON")

    for parser in (listing, explaining, past):
        add_run_options(parser, ("store",))


def claims(options: argparse.Namespace) -> None:
    """Print all claims, or those of a task or family, with their status.

    Raises:
        UserError: If the task or the family does not exist, or has no claims.
    """
    from bertsecrets.claims.schema import load_claims
    from bertsecrets.report.terminal import Screen, claim_table
    from bertsecrets.store.verdicts import read_verdicts

    listed, root = list(load_claims()), RunOptions.of(options).store_folder
    if options.family is not None:
        families = sorted({claim.family for claim in listed})
        if options.family.upper() not in families:
            raise UserError(f"unknown family {options.family!r}: give one of {', '.join(families)}")
        listed = [claim for claim in listed if claim.family == options.family.upper()]
    if options.task is not None:
        name = options.task if options.task == ALL_TASKS else task(options.task).name
        listed = [claim for claim in listed if name in claim.tasks]
        if not listed:
            raise UserError(f"no claim of family {options.family} is on {name}")
    model = options.model and full_name(options.model)
    last = [read_verdicts(root, claim.case_ids, model) for claim in listed]
    print(claim_table(listed, Screen.of(sys.stdout), model=model, kept=last, verbose=options.verbose))
    ready = sum(claim.implemented for claim in listed)
    print(f"\n{len(listed)} claims, {ready} implemented, {len(listed) - ready} not implemented")
    if not options.verbose:
        print("details: -v, or bertsecrets explain ID")


def explain(options: argparse.Namespace) -> None:
    """Print everything about a claim, for all its variants and tasks or only for those named."""
    from bertsecrets.claims.schema import find_cases
    from bertsecrets.report.explanation import claim_lines
    from bertsecrets.settings import load_settings
    from bertsecrets.store.verdicts import read_verdicts

    root, confidence = RunOptions.of(options).store_folder, load_settings().judge.confidence
    chosen = find_cases(options.claim)
    for claim in dict.fromkeys(case.claim.name for case in chosen):
        cases = [case for case in chosen if case.claim.name == claim]
        last = read_verdicts(root, {str(case): case.task for case in cases})
        print("\n".join(claim_lines(cases, confidence, last)))


def history(options: argparse.Namespace) -> None:
    """Print the verdicts on a claim, oldest first.

    Raises:
        UserError: If the claim does not exist, or has no verdict.
    """
    from bertsecrets.claims.schema import find_cases
    from bertsecrets.compare.history import moves
    from bertsecrets.report.findings import history_findings
    from bertsecrets.store.verdicts import read_history

    root, name = RunOptions.of(options).store_folder, options.task
    only = name if name in (None, ALL_TASKS) else task(name).name
    tasks = {str(case): case.task for case in find_cases(options.claim) if only in (None, case.task)}
    all_series = read_history(root, tasks)
    model = options.model and full_name(options.model)
    chosen = [series for series in all_series if model in (None, full_name(series[0].model))]
    if not chosen:
        what = f"no verdict on {options.claim}" + (f" on {only}" if only else "")
        if all_series:
            models = ", ".join(dict.fromkeys(series[0].model for series in all_series))
            raise UserError(f"{what} for {options.model} in {root}, which has verdicts for {models}")
        raise UserError(f"{what} in {root}: judge it first, or choose another store with --store")
    if options.json:
        data = [
            {"verdicts": [verdict.model_dump() for verdict in series], "moves": [move.data for move in moves(series)]}
            for series in chosen
        ]
        print(json.dumps(data, indent=1))
        return
    print("\n\n".join(history_findings(series).text() for series in chosen))
