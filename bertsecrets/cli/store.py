"""The commands `bertsecrets store ls | verify | gc | explain`."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsecrets.errors import UserError
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_command, add_run_options
from bertsecrets.progress import in_bytes
from bertsecrets.store.entries import CHECKPOINTS, DROPPED

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
        actions, "ls", "list entries with size, age, subject and software versions", "store ls --json", ls
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    check = add_command(
        actions,
        "verify",
        "compare all files with their digests; exit with 2 if one is damaged",
        "store verify --store runs",
        verify,
    )
    cleaning = add_command(actions, "gc", "list what is no longer needed; delete it with --yes", "store gc --yes", gc)
    cleaning.add_argument("--yes", action="store_true", help="delete it")
    cleaning.add_argument("--keep-older", action="store_true", help="keep entries made by other code or versions")
    add_run_options(listing, ("store",))
    add_run_options(check, ("store",))
    add_run_options(cleaning, ("store", "keep_checkpoints"))

    explaining = add_command(
        actions,
        "explain",
        "show the inputs of an entry's cache key, and why it does not match now",
        "store explain special-tokens --model minilm --glue ./glue_data",
        explain,
    )
    explaining.add_argument("entry", metavar="ENTRY", help="its folder, or a unique part of its name")
    add_run_options(explaining, (*ROW_OPTIONS, "frames", "spacy"))


def ls(options: argparse.Namespace) -> None:
    """Print the contents of the store."""
    from bertsecrets.report.tables import table
    from bertsecrets.store.contents import PARSES, items

    root = RunOptions.of(options).store_folder
    held = items(root)
    if options.json:
        print(json.dumps([_facts(item) for item in held], indent=1))
        return
    rows = [
        [item.kind, in_bytes(item.bytes), age(item.made), _subject(item), _versions(item), item.marks]
        for item in held
        if item.kind != PARSES
    ]
    if rows:
        print(table(("kind", "size", "age", "subject", "made by", "entry"), rows))
    if parses := [item.bytes for item in held if item.kind == PARSES]:
        print(f"{PARSES}: {len(parses)}, {in_bytes(sum(parses))}")
    print(f"total: {in_bytes(sum(item.bytes for item in held))}")


def verify(options: argparse.Namespace) -> None:
    """Verify the digests of all files in the store.

    Raises:
        UserError: If an entry is damaged.
    """
    from bertsecrets.store.contents import problems

    root = RunOptions.of(options).store_folder
    checked = list(problems(root))
    damaged = [(path, problem) for path, problem in checked if problem]
    for path, problem in damaged:
        print(f"{path}: {problem}")
    if damaged:
        raise UserError(f"{len(damaged)} of {len(checked)} in {root} damaged: delete them; the next run recreates them")
    print(f"{root}: {len(checked)} checked, none damaged")


def gc(options: argparse.Namespace) -> None:
    """List the entries that are no longer needed, and delete them with `--yes`.

    Raises:
        UserError: If the store does not exist.
    """
    given = RunOptions.of(options)
    removable = removed = 0
    for line, size, remove in _removals(given, older=not options.keep_older):
        print(line)
        removable += size
        if options.yes:
            freed = remove()
            removed += freed or 0
            if freed is None:
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


def _removals(given: RunOptions, *, older: bool) -> list[tuple[str, int, Callable[[], int | None]]]:
    """Return a line, the size in bytes, and a removal function for everything that is no longer needed.

    Each function returns the number of bytes freed, or None if a running process uses the entry.
    """
    from bertsecrets.models.retention import drop, weights_bytes
    from bertsecrets.store.contents import Unneeded, items, unneeded

    def remove(item: Unneeded) -> int | None:
        return item.bytes if item.remove() else None

    listed = unneeded(given.store_folder, _older if older else None)
    removals: list[tuple[str, int, Callable[[], int | None]]] = [
        (f"{item.path} ({in_bytes(item.bytes)}): {item.reason}", item.bytes, partial(remove, item)) for item in listed
    ]
    gone = {item.path for item in listed}
    for stored in items(given.store_folder) if given.keep_checkpoints == "none" else ():
        if stored.kind == CHECKPOINTS and stored.key and stored.path not in gone:
            weights = weights_bytes(stored.path)
            line = f"{stored.path} ({in_bytes(stored.bytes)}): {in_bytes(stored.bytes - weights)} without weights"
            removals.append((line, weights, partial(drop, stored.path)))
    return removals


def explain(options: argparse.Namespace) -> None:
    """Print the inputs of an entry's cache key, and why the key no longer matches.

    Raises:
        UserError: If the entry does not exist, or its manifest is damaged.
    """
    from bertsecrets.cli.explain_entry import explanation, find_entry
    from bertsecrets.session import Session

    given = RunOptions.of(options)
    entry = find_entry(given.store_folder, options.entry)
    own_store: Path = entry.resolve().parents[1]  # the store that also contains the measurement's checkpoint
    for line in explanation(entry, Session(replace(given, store=own_store))):
        print(line)


def _older(kind: str, manifest: dict[str, Any]) -> str | None:
    """Return how an entry's code and libraries differ from the current ones, or None if they do not or are unknown.

    Devices are not compared, because a store may be shared by different devices.
    """
    from bertsecrets.measures.registry import get_measure
    from bertsecrets.provenance import TRAINING, differences, made_by

    key = manifest.get("key")
    made = (key or manifest).get("made_by")
    if not isinstance(made, dict):
        return None
    try:
        trained = kind in (CHECKPOINTS, DROPPED)
        now = made_by(TRAINING, None) if trained else get_measure(manifest["measure"]).made_by(None)
    except (UserError, KeyError):  # the measure belongs to a plugin that is not installed
        return None
    return ", ".join(differences(made, now)) or None


def _facts(item: "Item") -> dict[str, Any]:
    return {
        "path": str(item.path),
        "kind": item.kind,
        "bytes": item.bytes,
        "kept": {CHECKPOINTS: "full", DROPPED: "none"}.get(item.kind),
        "made": item.made.isoformat(),
        "name": item.subject,
        "subject": item.manifest.get("subject"),
        "made_by": item.key.made_by if item.key else None,
    }


def _subject(item: "Item") -> str:
    """Return an entry's subject, and whether a checkpoint's weights were dropped."""
    return item.subject + (" (weights dropped)" if item.kind == DROPPED else "")


def _versions(item: "Item") -> str:
    """Return the code digest and versions recorded in an entry."""
    made_by = item.key.made_by if item.key else {}
    versions = [f"{name} {number}" for name, number in (made_by.get("software") or {}).items()]
    code = [f"code {made_by['code'][:8]}"] if made_by.get("code") else []
    return ", ".join([*code, *versions])


def age(made: datetime) -> str:
    """Return an age as text, in the largest unit that fits."""
    seconds = max(0, int((datetime.now(UTC) - made).total_seconds()))
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = seconds // length
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return "under a minute"
