"""The commands below `bertsecrets lab`."""

from bertsecrets.lab.commands import calibrate, check_ablation, patterns, specifications, train_parser


def add_parsers(commands) -> None:
    """Add the commands of the lab and their options to the command line."""
    for group in (patterns, train_parser, calibrate, specifications, check_ablation):
        group.add_parsers(commands)
