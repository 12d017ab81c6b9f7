"""The commands that show claims: `claims` lists all of them, `explain` shows one with its bands and verdicts."""

import argparse
import sys

from bertsecrets.options import RunOptions, add_options


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    listing = commands.add_parser("claims", help="list every claim with its status")
    listing.add_argument("--model", help="show only known outcomes and verdicts of this model")
    listing.add_argument("-v", "--verbose", action="store_true", help="also print source and measure of each claim")
    add_options(listing.add_argument, ("store",))
    listing.set_defaults(run=claims)

    one = commands.add_parser(
        "explain", help="print everything about one claim: figures, bands, known outcomes, last verdicts"
    )
    one.add_argument("claim", help="as any table prints it, such as C1, D1-random, C1-rte or D1-rte-random")
    add_options(one.add_argument, ("store",))
    one.set_defaults(run=explain)


def claims(options: argparse.Namespace) -> None:
    """Print every claim with its status."""
    from bertsecrets.claims.schema import load_claims
    from bertsecrets.report.terminal import Screen, claim_table
    from bertsecrets.store.verdicts import read_verdicts

    listed, root = load_claims(), RunOptions.of(options).store_folder
    kept = [read_verdicts(root, claim.case_ids, options.model) for claim in listed]
    print(claim_table(listed, Screen.of(sys.stdout), model=options.model, kept=kept, verbose=options.verbose))
    ready = sum(claim.implemented for claim in listed)
    print(f"\n{len(listed)} claims, {ready} implemented, {len(listed) - ready} not implemented")
    if not options.verbose:
        print("details: -v, or bertsecrets explain ID")


def explain(options: argparse.Namespace) -> None:
    """Print everything about one claim: all its variants and tasks, or those that are named."""
    from bertsecrets.claims.schema import find_cases
    from bertsecrets.report.text import claim_lines
    from bertsecrets.settings import load_settings
    from bertsecrets.store.verdicts import read_verdicts

    root, confidence = RunOptions.of(options).store_folder, load_settings().judge.confidence
    found = find_cases(options.claim)
    for claim in dict.fromkeys(case.claim.name for case in found):
        cases = [case for case in found if case.claim.name == claim]
        kept = read_verdicts(root, {str(case): case.task for case in cases})
        print("\n".join(claim_lines(cases, confidence, kept)))
