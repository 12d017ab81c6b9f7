"""The commands `bertsecrets store ls | verify | gc | explain`."""

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.parsing import add_command
from bertsecrets.errors import UserError
from bertsecrets.options import ROW_OPTIONS, RunOptions, add_options
from bertsecrets.progress import in_bytes
from bertsecrets.store.entries import CHECKPOINTS, DROPPED

if TYPE_CHECKING:
    from bertsecrets.store.contents import Item


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    help_store = "list, check, explain and clear up what the store holds"
    parser = commands.add_parser(
        "store", help=help_store, description=help_store, epilog="example: bertsecrets store ls"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=type(parser))

    listing = add_command(
        actions, "ls", "list entries with size, age, subject, and the versions that made them", "store ls --json", ls
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    check = add_command(
        actions,
        "verify",
        "check every byte against the digests; exit code 2 if any is damaged",
        "store verify --store runs",
        verify,
    )
    clearing = add_command(
        actions, "gc", "list what is no longer needed, and remove it with --yes", "store gc --keep-verdicts 5", gc
    )
    clearing.add_argument("--yes", action="store_true", help="remove it")
    add_options(clearing.add_argument, ("keep_checkpoints",))
    clearing.add_argument("--keep-older", action="store_true", help="keep what other code or versions made")
    clearing.add_argument(
        "--keep-verdicts", type=int, metavar="N", help="keep only the last N verdicts on each claim, task and model"
    )
    for each in (listing, check, clearing):
        add_options(each.add_argument, ("store",))

    one = add_command(
        actions,
        "explain",
        "show what an entry's key consists of, and why it does not match today",
        "store explain special-tokens --model minilm --glue ./glue_data",
        explain,
    )
    one.add_argument("entry", metavar="ENTRY", help="its folder, or a part of its name that no other entry has")
    add_options(one.add_argument, (*ROW_OPTIONS, "frames", "spacy"))


def ls(options: argparse.Namespace) -> None:
    """Print everything that the store holds."""
    from bertsecrets.report.tables import table
    from bertsecrets.store.contents import PARSES, VERDICTS, items

    held = items(RunOptions.of(options).store_folder)
    if options.json:
        print(json.dumps([_facts(item) for item in held], indent=1))
        return
    single = [item for item in held if item.kind not in (PARSES, VERDICTS)]
    rows = [
        [item.kind, in_bytes(item.bytes), age(item.made), _subject(item), _versions(item), item.marks]
        for item in single
    ]
    if rows:
        print(table(("kind", "size", "age", "subject", "made by", "entry"), rows))
    for kind in (PARSES, VERDICTS):
        files = [item.bytes for item in held if item.kind == kind]
        if files:
            print(f"{kind}: {len(files)}, {in_bytes(sum(files))}")
    print(f"in all {in_bytes(sum(item.bytes for item in held))}")


def verify(options: argparse.Namespace) -> None:
    """Check every byte of the store.

    Raises:
        UserError: something is damaged.
    """
    from bertsecrets.store.contents import problems

    root = RunOptions.of(options).store_folder
    checked, damaged = 0, 0
    for path, problem in problems(root):
        checked += 1
        if problem:
            damaged += 1
            print(f"{path}: {problem}")
    if damaged:
        raise UserError(f"{damaged} of {checked} in {root} damaged: delete them, and the next run makes them again")
    print(f"{root}: {checked} checked, none damaged")


def gc(options: argparse.Namespace) -> None:
    """List what the store no longer needs, and delete it with `--yes`.

    Raises:
        UserError: there is no store, or no verdict would be kept.
    """
    from bertsecrets.models.retention import drop, weights_bytes
    from bertsecrets.store.contents import items, unneeded

    given = RunOptions.of(options)
    root, removed, removable = given.store_folder, 0, 0
    if options.keep_verdicts is not None and options.keep_verdicts < 1:
        raise UserError(f"--keep-verdicts {options.keep_verdicts} is out of range: keep 1 or more")
    listed = unneeded(root, None if options.keep_older else _older, options.keep_verdicts)
    for item in listed:
        print(f"{item.path} ({in_bytes(item.bytes)}): {item.reason}")
        removable += item.bytes
        if options.yes:
            if item.remove():
                removed += item.bytes
            else:
                print("  in use: kept")
    gone = {item.path for item in listed}
    for stored in items(root) if given.keep == "none" else ():
        if stored.kind == CHECKPOINTS and stored.key and stored.path not in gone:
            weights = weights_bytes(stored.path)
            print(f"{stored.path} ({in_bytes(stored.bytes)}): {in_bytes(stored.bytes - weights)} without weights")
            removable += weights
            if options.yes:
                freed = drop(stored.path)
                removed += freed or 0
                if freed is None:
                    print("  in use: kept")
    if options.yes:
        print(f"removed {in_bytes(removed)}")
    elif not removable:
        print("nothing to remove")
    else:
        words = ["bertsecrets store gc", f"--store {root}"]
        words += ["--keep-older"] if options.keep_older else []
        words += [f"--keep-verdicts {options.keep_verdicts}"] if options.keep_verdicts is not None else []
        words += [f"--keep-checkpoints {given.keep}"] if given.keep != "full" else []
        print(f"{in_bytes(removable)} can be removed: {' '.join(words)} --yes")


def explain(options: argparse.Namespace) -> None:
    """Print what the key of an entry consists of, and why it does not match today.

    Raises:
        UserError: there is no such entry, or its manifest is damaged.
    """
    from bertsecrets.cli.explain_entry import explanation, find_entry
    from bertsecrets.session import Session

    given = RunOptions.of(options)
    entry = find_entry(given.store_folder, options.entry)
    of_entry = replace(given, store=entry.resolve().parents[1])  # where its checkpoint is, if it is a measurement
    for line in explanation(entry, Session(of_entry)):
        print(line)


def _older(kind: str, manifest: dict[str, Any]) -> str | None:
    """Return how the code and libraries that made something differ from those in use; None if they do not, or unknown.

    The device does not count: a store may serve several.
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
    except (UserError, KeyError):  # a plugin's measure that is not installed here
        return None
    return ", ".join(differences(made, now)) or None


def _facts(item: "Item") -> dict[str, Any]:
    made_by = item.key.made_by if item.key else None
    return {
        "path": str(item.path),
        "kind": item.kind,
        "bytes": item.bytes,
        "kept": {CHECKPOINTS: "full", DROPPED: "none"}.get(item.kind),
        "made": item.made.isoformat(),
        "name": item.subject,
        "subject": item.manifest.get("subject"),
        "made_by": made_by,
    }


def _subject(item: "Item") -> str:
    """Return an entry's subject, and whether a checkpoint's weights were dropped."""
    return item.subject + (" (weights dropped)" if item.kind == DROPPED else "")


def _versions(item: "Item") -> str:
    """Return the code and versions that made an entry."""
    made_by = item.key.made_by if item.key else {}
    versions = [f"{name} {number}" for name, number in (made_by.get("software") or {}).items()]
    code = [f"code {made_by['code'][:8]}"] if made_by.get("code") else []
    return ", ".join([*code, *versions])


def age(made: datetime) -> str:
    """Return the time since something was made, in its largest unit."""
    seconds = max(0, int((datetime.now(UTC) - made).total_seconds()))
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = seconds // length
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return "under a minute"
