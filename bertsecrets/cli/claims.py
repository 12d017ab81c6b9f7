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
    kept = [read_verdicts(root, claim, options.model) for claim in found]
    print(claim_table(found, options.model, kept))
    ready = sum(claim.implemented for claim in found)
    print(f"\n{len(found)} claims, {ready} implemented, {len(found) - ready} not implemented")


def explain(options: argparse.Namespace) -> None:
    """Print one claim whole."""
    from bertsecrets.claims.judge import width_in_words
    from bertsecrets.claims.schema import Case, find_claims
    from bertsecrets.report.text import status, task_title
    from bertsecrets.store.verdicts import in_words, read_verdicts

    for claim in find_claims(options.claim):
        print(f"{claim.id}{'-' + claim.variant if claim.variant else ''}: {claim.statement}")
        facts = {"source": claim.source, "measured as": claim.how, "note": claim.note, "measure": claim.measure,
                 "quantity": claim.quantity, "arguments": claim.arguments, "status": status(claim)}  # fmt: skip
        for name, fact in facts.items():
            if fact:
                print(f"  {name}: {fact}")
        for name, figure in claim.tasks.items():
            parts = [f"published {figure.published}" if figure.published is not None else "no published figure"]
            if figure.constant_answer:
                parts[0] += " (a constant answer)"
            if claim.implemented:
                parts.append(f"band {width_in_words(Case(claim, name), params().judge.confidence)}")
            parts += [text for text in (figure.second, figure.note) if text]
            print(f"  {task_title(name)}: {'; '.join(parts)}")
        for known in claim.known:
            said = {"deviates": "known to deviate", "reproduces": "known to reproduce"}[known.status]
            print(f"  {said}: {known.model} on {task_title(known.task)}: {known.evidence}")
        for data in read_verdicts(store_folder(options), claim):
            print(f"  last verdict: {in_words(data)}")
