"""The commands that show claims: all in a table, or one whole with its bands and last verdicts."""

import argparse

from bertsecrets.options import store_folder
from bertsecrets.settings import params


def claims(options: argparse.Namespace) -> None:
    """List every claim."""
    from bertsecrets.claims.schema import load_claims
    from bertsecrets.report.text import claim_table
    from bertsecrets.store.verdicts import read_verdicts

    found, root = load_claims(), store_folder(options)
    kept = [read_verdicts(root, {str(case): case.task for case in claim.cases}, options.model) for claim in found]
    print(claim_table(found, options.model, kept))
    ready = sum(claim.implemented for claim in found)
    print(f"\n{len(found)} claims, {ready} implemented, {len(found) - ready} not implemented")


def explain(options: argparse.Namespace) -> None:
    """Print one claim whole."""
    from bertsecrets.claims.schema import find_claims
    from bertsecrets.report.text import claim_lines
    from bertsecrets.store.verdicts import read_verdicts

    for claim in find_claims(options.claim):
        kept = read_verdicts(store_folder(options), {str(case): case.task for case in claim.cases})
        print("\n".join(claim_lines(claim, params().judge.confidence, kept)))
