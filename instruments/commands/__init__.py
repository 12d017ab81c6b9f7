"""The commands of `python -m instruments`."""

import functools
from typing import Any

from bertsecrets.options import add_command, path

add_instrument = functools.partial(add_command, program="python -m instruments")
FILE: dict[str, Any] = {"type": path, "metavar": "FILE"}
NUMBER: dict[str, Any] = {"type": int, "metavar": "N"}
REPEATED: dict[str, Any] = {"action": "append", "default": []}
