"""Checks of option values, and the limits of the allowed ranges."""

import os
from typing import cast

from bertsecrets.errors import UserError, near_matches, shortened
from bertsecrets.types import INITIALISATIONS, SEED_LIMIT, InitialisationName

MAX_THREADS = 1024
MAX_JOBS = 4096
SEEDS_ALLOWED = 100  # every checkpoint is trained once per seed


def seed_range(count: int) -> range:
    """Return seeds 1 to `count`.

    >>> list(seed_range(3))
    [1, 2, 3]
    """
    if count < 1:
        raise UserError(f"seeds {count} leaves no seeds to run: give 1 or more")
    if count > SEEDS_ALLOWED:
        raise UserError(f"seeds {count} is out of range: give 1 to {SEEDS_ALLOWED}")
    return range(1, count + 1)


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
