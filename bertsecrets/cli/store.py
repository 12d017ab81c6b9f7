"""The commands `bertsecrets store ls | verify | gc | explain`."""

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import UserError
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_command, add_run_options
from bertsecrets.progress import counted, in_bytes
from bertsecrets.store.entries import CHECKPOINTS

if TYPE_CHECKING:
    from bertsecrets.store.contents import Item


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    help_store = "list, check, explain and clean up the entries of the store"
    parser = commands.add_parser(
        "store", help=help_store, description=help_store, epilog="example: bertsecrets store ls"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=type(parser))

    listing = add_command(
        actions, ls, "list entries with their size, age, subject and software versions", "--json", "bertsecrets store"
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    check = add_command(
        actions,
        verify,
        "compare all files with their digests; exit with 2 if any is damaged",
        "--store runs",
        "bertsecrets store",
    )
    cleaning = add_command(
        actions, gc, "list entries that are no longer needed; delete them with --yes", "--yes", "bertsecrets store"
    )
    cleaning.add_argument("--yes", action="store_true", help="delete the listed entries")
    cleaning.add_argument(
        "--keep-older", action="store_true", help="keep entries that other versions of the code or libraries made"
    )
    add_run_options(listing, ("store",))
    add_run_options(check, ("store",))
    add_run_options(cleaning, ("store", "keep_checkpoints"))

    explaining = add_command(
        actions,
        explain,
        "show the inputs of an entry's cache key, and why the key no longer matches",
        "special-tokens --model minilm --glue ./glue_data",
        "bertsecrets store",
    )
    explaining.add_argument("entry", metavar="ENTRY", help="the entry's folder, or a unique part of its name")
    add_run_options(explaining, (*ROW_OPTIONS, "frames", "spacy"))


def ls(options: argparse.Namespace) -> None:
    """Print the contents of the store."""
    from bertsecrets.report.tables import table
    from bertsecrets.store.contents import PARSES, items

    root = RunOptions.from_namespace(options).store_folder
    held = items(root)
    if options.json:
        print(json.dumps([_facts(item) for item in held], indent=1))
        return
    rows = [
        [item.kind, in_bytes(item.bytes), age(item.made), item.title, _versions(item), item.digests]
        for item in held
        if item.kind != PARSES
    ]
    if rows:
        print(table(("kind", "size", "age", "subject", "made by", "entry"), rows))
    if parses := [item.bytes for item in held if item.kind == PARSES]:
        print(f"{PARSES}: {len(parses)}, {in_bytes(sum(parses))}")
    print(f"total: {in_bytes(sum(item.bytes for item in held))}")


def verify(options: argparse.Namespace) -> None:
    """Verify the digests of all files in the store."""
    from bertsecrets.store.contents import problems

    root = RunOptions.from_namespace(options).store_folder
    checked = list(problems(root))
    damaged = [(path, problem) for path, problem in checked if problem]
    for path, problem in damaged:
        print(f"{path}: {problem}")
    if damaged:
        raise UserError(
            f"{len(damaged)} of {len(checked)} items damaged in {root}: delete them, and the next run recreates them"
        )
    print(f"{root}: {len(checked)} checked, none damaged")


def gc(options: argparse.Namespace) -> None:
    """List the entries that are no longer needed, and delete them with `--yes`."""
    from bertsecrets.store.contents import unneeded

    given = RunOptions.from_namespace(options)
    removable = removed = 0
    older = None if options.keep_older else _older
    for item in unneeded(given.store_folder, older, keep_checkpoints=given.keep_checkpoints == "full"):
        print(f"{item.path} ({in_bytes(item.bytes)}): {item.reason}")
        removable += item.bytes
        if options.yes and item.remove():
            removed += item.bytes
        elif options.yes:
            print("  in use: kept")
    if options.yes:
        print(f"removed {in_bytes(removed)}")
    elif not removable:
        print("nothing to remove")
    else:
        words = ["bertsecrets store gc", f"--store {given.store_folder}"]
        words += ["--keep-older"] if options.keep_older else []
        words += [f"--keep-checkpoints {given.keep_checkpoints}"] if given.keep_checkpoints != "full" else []
        print(f"{in_bytes(removable)} can be removed: {' '.join(words)} --yes")


def explain(options: argparse.Namespace) -> None:
    """Print the inputs of an entry's cache key, and why the key no longer matches."""
    from bertsecrets.cli.explain_entry import explanation, find_entry
    from bertsecrets.session import Session

    given = RunOptions.from_namespace(options)
    entry = find_entry(given.store_folder, options.entry)
    own_store: Path = entry.resolve().parents[1]  # the store that also contains the measurement's checkpoint
    for line in explanation(entry, Session(replace(given, store=own_store))):
        print(line)


def _older(kind: str, manifest: dict[str, Any]) -> str | None:
    """Return how code and libraries have changed since an entry was made. Machines that share a store may differ."""
    from bertsecrets.measures.registry import get_measure
    from bertsecrets.provenance import TRAINING_MODULE, differences, made_by

    key = manifest.get("key") or manifest
    made, checkpoint = key.get("made_by"), (key.get("inputs") or {}).get("checkpoint")
    if not isinstance(made, dict):
        return None
    training = made_by(TRAINING_MODULE, None)
    try:
        now = training if kind == CHECKPOINTS else get_measure(manifest["measure"]).made_by(None)
    except (UserError, KeyError):  # the measure belongs to a plugin that is not installed
        return None
    different = differences(made, now)
    if not different and isinstance(checkpoint, dict):  # the checkpoint's own key
        different = [f"its checkpoint was {difference}" for difference in differences(checkpoint["made_by"], training)]
    return ", ".join(different) or None


def _facts(item: "Item") -> dict[str, Any]:
    return {
        "path": str(item.path),
        "kind": item.kind,
        "bytes": item.bytes,
        "made": item.made.isoformat(),
        "name": item.title,
        "subject": item.manifest.get("subject"),
        "made_by": item.key.made_by if item.key else None,
    }


def _versions(item: "Item") -> str:
    made_by = item.key.made_by if item.key else {}
    versions = [f"{name} {number}" for name, number in (made_by.get("software") or {}).items()]
    code = [f"code {made_by['code'][:8]}"] if made_by.get("code") else []
    return ", ".join([*code, *versions])


def age(made: datetime) -> str:
    """Return the time since `made` as a string in the largest unit that fits, such as `3 days`."""
    seconds = max(0, int((datetime.now(UTC) - made).total_seconds()))
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return counted(seconds // length, unit)
    return "under a minute"
