"""Fixtures of the speed benchmarks: real rows, clocks, and tables that are printed whatever pytest captures."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


class Seconds(NamedTuple):
    """How long something took: on the clock, and of processor time, which other programs disturb less."""

    clock: float
    processor: float


@pytest.fixture(scope="session")
def rte_rows(pytestconfig):
    """The first rows of RTE's validation set, from a GLUE folder."""
    folder = next(iter(pytestconfig.getoption("glue", None) or ()), os.environ.get("BERTSECRETS_GLUE"))
    if not folder:
        pytest.skip("needs real rows: give a GLUE folder with --glue or BERTSECRETS_GLUE")
    split = load_folder(Path(folder), task("rte"), "dev")
    return split.head


@pytest.fixture
def timed(benchmark) -> Callable:
    """`timed(function)` runs it once and gives (result, Seconds)."""

    def run(function):
        clock, processor = time.perf_counter(), time.process_time()
        result = function()
        return result, Seconds(time.perf_counter() - clock, time.process_time() - processor)

    return run


@pytest.fixture
def show(capsys) -> Callable[[str], None]:
    """Print past pytest's capture."""

    def write(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    return write
