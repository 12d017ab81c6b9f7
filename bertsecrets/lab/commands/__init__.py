"""The commands of `bertsecrets lab`."""

from bertsecrets.lab.commands import instruments, patterns, specifications


def add_parsers(commands) -> None:
    """Add the commands of the lab and their options to the command line."""
    for group in (patterns, instruments, specifications):
        group.add_parsers(commands)
