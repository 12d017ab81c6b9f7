"""The commands of `python -m instruments`."""

import functools

from bertsecrets.options import add_command

add_instrument = functools.partial(add_command, program="python -m instruments")
