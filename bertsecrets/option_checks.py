"""Parsers and checks of option values, and the limits of the allowed ranges."""

import argparse
import os
import re
from pathlib import Path
from typing import cast

from bertsecrets.errors import UserError, near_matches, shortened
from bertsecrets.models.families import full_name
from bertsecrets.reading import expanded
from bertsecrets.types import INITIALISATIONS, SEED_LIMIT, InitialisationName

MAX_THREADS = 1024
MAX_JOBS = 4096
MAX_PATH_BYTES, MAX_NAME_BYTES = 4095, 255  # bytes, on all common file systems
SEEDS_ALLOWED = 100  # every checkpoint is trained once per seed


def path(text: str) -> Path:
    """Parse a path."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: give the path of a file or folder")
    if len(text.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in text.split("/")):
        raise argparse.ArgumentTypeError(f"{shortened(text, 100)} is too long for a path: give a shorter path")
    return expanded(text)


def whole_number(text: str) -> int:
    """Parse a whole number in ASCII digits; `int` also accepts other scripts, underscores and thousands of digits."""
    if not re.fullmatch("[+-]?[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{shortened(text, 60)!r} is not a whole number")
    return int(text)


def as_seeds(text: str) -> int | str:
    """Parse a number of seeds; other strings are returned unchanged for `RunOptions` to check."""
    try:
        return whole_number(text)
    except argparse.ArgumentTypeError:
        return text


def seed_range(count: int) -> range:
    """Return seeds 1 to `count`.

    >>> list(seed_range(3))
    [1, 2, 3]
    """
    if count < 1:
        raise UserError(f"seeds must be at least 1, not {count}")
    if count > SEEDS_ALLOWED:
        raise UserError(f"seeds {count} is out of range: give 1 to {SEEDS_ALLOWED}")
    return range(1, count + 1)


def checked_model(given: str | os.PathLike[str]) -> str:
    """Return the full name of a model after checking that the name could be one."""
    name = os.path.expanduser(os.fspath(given))
    if not name.strip():
        raise UserError("the model's name is empty: give a name on the hub, a folder, minilm or mpnet")
    if name.endswith("@") and not os.path.isdir(name):
        raise UserError(f"{shortened(name)} has no revision after the @: name a commit, or leave out the @")
    return full_name(name)


def check_initialisation(name: str) -> InitialisationName:
    """Return the name of an initialisation after checking it."""
    if name not in INITIALISATIONS:
        raise UserError(f"unknown initialisation {name!r}: {near_matches(name, INITIALISATIONS)}")
    return cast(InitialisationName, name)


def check_seed(seed: int) -> None:
    """Check that a seed is in range."""
    if not 0 <= seed < SEED_LIMIT:
        raise UserError(f"seed {seed} is out of range: give 0 to {SEED_LIMIT - 1}")


def check_jobs(jobs: int) -> int:
    """Check that a number of jobs is in range, and return this number."""
    if not 1 <= jobs <= MAX_JOBS:
        raise UserError(f"jobs {jobs} is out of range: give 1 to {MAX_JOBS}")
    return jobs


def check_threads(threads: int | None) -> None:
    """Check the number of CPU threads. If `threads` is None, check OMP_NUM_THREADS instead."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads {threads} is out of range: give 1 to {MAX_THREADS}")
    variable = os.environ.get("OMP_NUM_THREADS", "") if threads is None else ""
    first = variable.partition(",")[0].strip()  # other numbers are for nested parallel regions
    if variable and not (first.isascii() and first.isdecimal() and 1 <= int(first[:5]) <= MAX_THREADS):
        raise UserError(f"OMP_NUM_THREADS is {shortened(variable, 40)!r}: give 1 to {MAX_THREADS}, or unset it")
