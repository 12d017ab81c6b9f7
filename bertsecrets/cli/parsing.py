"""Parsers of the command line: one-line errors, commands in groups, and an example at the end of each help."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from bertsecrets.cli.console import USER_ERROR
from bertsecrets.errors import UserError, one_line, shortened
from bertsecrets.options import flag

LONGEST_LINE = 2000  # of a message


class Parser(argparse.ArgumentParser):
    """A parser that reports bad usage in one line."""

    def __init__(self, *args: Any, add_commands: Callable[[Any], None] | None = None, **named: Any):
        """
        Args:
            add_commands: adds this command's own commands when it is used, so that nothing is imported before.
        """
        super().__init__(*args, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **named})
        self._add_commands = add_commands

    def load_commands(self) -> None:
        """Add this command's own commands, if it has some."""
        if self._add_commands is not None:
            self._add_commands(self.add_subparsers(dest="subcommand", required=True, metavar="COMMAND"))
            self._add_commands = None

    def parse_known_args(self, *args, **named):
        self.load_commands()
        return super().parse_known_args(*args, **named)

    def error(self, message: str) -> NoReturn:
        line = one_line(shortened(message, LONGEST_LINE))
        self.exit(USER_ERROR, f"{self.prog}: {line} (see {self.prog} --help)\n")


def add_command(commands: Any, name: str, help: str, example: str, run: Callable[..., int | None]) -> Parser:
    """Return the parser of a new command.

    Args:
        example: a call of the command, without the program's name.
    """
    parser = commands.add_parser(name, help=help, description=help, epilog=f"example: bertsecrets {example}")
    parser.set_defaults(run=run)
    return parser


def refuse(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Make sure that none of these options is given.

    Args:
        why: the rest of the message after the option's name.

    Raises:
        UserError: one is given.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False and value != []:
            raise UserError(f"{flag(name)} {why}: leave it out")
