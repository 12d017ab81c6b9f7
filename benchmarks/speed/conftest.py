"""Fixtures for the speed benchmarks: real rows, timers, recording of ratios, and uncaptured output."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import transformers

from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task


class Seconds(NamedTuple):
    """Wall-clock and processor time in seconds. Other programs disturb processor time less."""

    clock: float
    processor: float


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict) -> None:
    """Add what `record.py` needs to pytest-benchmark's JSON."""
    machine_info["threads"] = torch.get_num_threads()
    machine_info["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    machine_info["software"] = {"torch": torch.__version__, "transformers": transformers.__version__}


@pytest.fixture(scope="session")
def rte_rows(pytestconfig):
    """Return a function that returns the first rows of RTE's validation set."""
    return load_folder(_glue(pytestconfig), task("rte"), "dev").head


@pytest.fixture(scope="session")
def training_rows(pytestconfig):
    """Return a function that returns the training rows of a task."""
    return lambda name: load_folder(_glue(pytestconfig), task(name), "train")


def _glue(pytestconfig) -> Path:
    folder = next(iter(pytestconfig.getoption("bertsecrets_glue", None) or ()), os.environ.get("BERTSECRETS_GLUE"))
    if not folder:
        pytest.skip("needs real rows: give a GLUE folder with --glue or BERTSECRETS_GLUE")
    return Path(folder)


@pytest.fixture
def timed() -> Callable:
    """Return a function that calls another function once, and returns (result, Seconds)."""

    def run(function):
        clock, processor = time.perf_counter(), time.process_time()
        result = function()
        return result, Seconds(time.perf_counter() - clock, time.process_time() - processor)

    return run


@pytest.fixture
def record(benchmark) -> Callable[..., None]:
    """Return a function that adds a row (what is compared, ratio, goal, limit) to the table in docs/performance.md."""
    rows = benchmark.extra_info.setdefault("rows", [])

    def add(what: str, ratio: float, goal: float | None = None, limit: float | None = None) -> None:
        rows.append({"what": what, "ratio": ratio, "goal": goal, "limit": limit})

    return add


@pytest.fixture
def show(capsys) -> Callable[[str], None]:
    """Return a function that prints even though pytest captures output."""

    def write(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    return write
