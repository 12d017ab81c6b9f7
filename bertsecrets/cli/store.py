"""The commands that look after the store: `bertsecrets store ls | verify | gc`."""

import argparse

from bertsecrets.options import add_options


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    parser = commands.add_parser("store", help="list, check and clear up the store")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=type(parser))

    listing = actions.add_parser("ls", help="list the entries with size, age, subject and the versions that made them")
    add_options(listing.add_argument, ("store",))
    listing.set_defaults(run=ls)

    check = actions.add_parser("verify", help="check every byte of the store against its manifests")
    add_options(check.add_argument, ("store",))
    check.set_defaults(run=verify)

    clearing = actions.add_parser("gc", help="say what the store no longer needs, and remove it with --yes")
    add_options(clearing.add_argument, ("store",))
    clearing.set_defaults(run=gc)


def ls(options: argparse.Namespace) -> None:
    """Print every entry of the store."""
    raise NotImplementedError


def verify(options: argparse.Namespace) -> None:
    """Check every byte of the store."""
    raise NotImplementedError


def gc(options: argparse.Namespace) -> None:
    """Say what the store no longer needs; remove it if the user agrees."""
    raise NotImplementedError
