"""The commands `claims` (list claims) and `explain` (show one)."""

import argparse
import sys

from bertsecrets.errors import UserError
from bertsecrets.models.families import full_name
from bertsecrets.options import EXPECTED_OPTION, add_command, add_options
from bertsecrets.progress import counted
from bertsecrets.texts.tasks import ALL_TASKS, own_task_names, task


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    listing = add_command(commands, claims, "list claims and their known outcomes", "--model minilm")
    listing.add_argument("--model", help="show known outcomes of this model only")
    listing.add_argument(
        "--task", help="list only claims on this task; `all` stands for claims that are not about a single task"
    )
    listing.add_argument("--family", metavar="LETTER", help="list only claims of this family, such as C")
    listing.add_argument("-v", "--verbose", action="store_true", help="also print each claim's source and measure")

    explaining = add_command(commands, explain, "show one claim: figures, bands, known outcomes", "C1-rte")
    explaining.add_argument(
        "claim", metavar="CLAIM", help="a claim's ID or name in tables, such as C1, D1-random, C1-rte or D1-rte-random"
    )
    for parser in (listing, explaining):
        parser.add_argument("--expected", **EXPECTED_OPTION)
        add_options(parser.add_argument, ["task_file"])


def claims(options: argparse.Namespace) -> None:
    """Print all claims, or those of a task or family, with their status."""
    from bertsecrets.claims.loading import load_claims
    from bertsecrets.report.terminal import Screen, claim_table

    listed = list(load_claims())
    if options.family is not None:
        families = sorted({claim.family for claim in listed})
        if options.family.upper() not in families:
            raise UserError(f"unknown family {options.family!r}: give one of {', '.join(families)}")
        listed = [claim for claim in listed if claim.family == options.family.upper()]
    wanted = own_task_names() if options.task is None else [options.task]
    names = [name if name == ALL_TASKS else task(name).name for name in wanted]
    if names:
        listed = [claim for claim in listed if any(case.task in names for case in claim.cases)]
        if not listed:
            of_family = f" of family {options.family}" if options.family else ""
            raise UserError(f"no claim{of_family} is on {' or '.join(names)}: choose another task or family")
    model = options.model and full_name(options.model)
    print(claim_table(listed, Screen.of_stream(sys.stdout), model=model, verbose=options.verbose))
    print(f"\n{counted(len(listed), 'claim')}")
    if not options.verbose:
        print("for details, add -v or run bertsecrets explain ID")


def explain(options: argparse.Namespace) -> None:
    """Print everything about a claim, for each variant and task, or only for the user's own tasks if there are any."""
    from bertsecrets.claims.loading import find_cases
    from bertsecrets.report.explanation import claim_lines
    from bertsecrets.settings import load_settings

    confidence = load_settings().judge.confidence
    known = find_cases(options.claim)
    chosen = [case for case in known if case.task in own_task_names()] or known
    for claim in dict.fromkeys(case.claim.name for case in chosen):
        cases = [case for case in chosen if case.claim.name == claim]
        print("\n".join(claim_lines(cases, confidence)))
