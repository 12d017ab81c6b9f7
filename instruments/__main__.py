"""The command line `python -m instruments`."""

import sys

from bertsecrets.cli.main import Parser
from bertsecrets.cli.main import main as run_command
from instruments.commands import patterns, studies


def build_parser() -> Parser:
    """Return the parser of all commands and their options."""
    parser = Parser(prog="python -m instruments", description="Make and check the suite's instruments.")
    parser.commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    patterns.add_parsers(parser.commands)
    studies.add_parsers(parser.commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code, as `bertsecrets.cli.main.main` does."""
    return run_command(argv, build_parser)


if __name__ == "__main__":
    sys.exit(main())
