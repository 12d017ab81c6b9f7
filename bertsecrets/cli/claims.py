"""The commands that show claims: all in a table, or one whole with its bands and last verdicts."""

import argparse

from bertsecrets.options import RunOptions, add_options


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    listing = commands.add_parser("claims", help="list every claim and what is known of it")
    listing.add_argument("--model", help="only what is known of this model")
    add_options(listing.add_argument, ("store",))
    listing.set_defaults(run=claims)

    whole = commands.add_parser("explain", help="print one claim whole")
    whole.add_argument("claim", help="its id, e.g. C1")
    add_options(whole.add_argument, ("store",))
    whole.set_defaults(run=explain)


def claims(options: argparse.Namespace) -> None:
    """List every claim."""
    from bertsecrets.claims.schema import load_claims
    from bertsecrets.report.text import claim_table
    from bertsecrets.store.verdicts import read_verdicts

    every, root = load_claims(), RunOptions.of(options).store_folder
    kept = [read_verdicts(root, claim.case_ids, options.model) for claim in every]
    print(claim_table(every, options.model, kept))
    ready = sum(claim.implemented for claim in every)
    print(f"\n{len(every)} claims, {ready} implemented, {len(every) - ready} not implemented")


def explain(options: argparse.Namespace) -> None:
    """Print one claim whole."""
    from bertsecrets.claims.schema import find_claims
    from bertsecrets.report.text import claim_lines
    from bertsecrets.settings import load_settings
    from bertsecrets.store.verdicts import read_verdicts

    root = RunOptions.of(options).store_folder
    for claim in find_claims(options.claim):
        for line in claim_lines(claim, load_settings().judge.confidence, read_verdicts(root, claim.case_ids)):
            print(line)
