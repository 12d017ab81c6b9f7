"""`dvc repro`, killed with all its processes at several stages and resumed, gives the results of an undisturbed run."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from bench import different
from faults import LIMIT, NIGHTLY, contents, leftovers
from pipeline import run, start, tiny_checkout

pytestmark = NIGHTLY
pytest.importorskip("dvc")

# Files and folders whose creation triggers a kill, in order of creation.
MOMENTS = (
    *("runs/dvc/glue", "runs/checkpoints", "runs/checkpoints/[!.]*", "runs/dvc/checkpoints/*"),
    *("runs/measurements/*", "runs/dvc/measurements/*", "runs/dvc/verdicts.json"),
)


def kill_when(folder: Path, pattern: str) -> bool:
    """Run the pipeline until a new file matches, then kill all its processes; return False if it ends before that."""
    before = set(folder.glob(pattern))
    process = start(folder, "repro")
    end = time.monotonic() + LIMIT
    while process.poll() is None and set(folder.glob(pattern)) <= before:
        assert time.monotonic() < end, pattern
        time.sleep(0.005)
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return alive


def test_a_killed_pipeline_goes_on_where_it_was(tmp_path, tiny_bert):
    folder = tiny_checkout(tmp_path / "checkout", tiny_bert)
    run(folder, "init", "--no-scm", "--quiet")
    run(folder, "repro")
    right = contents(folder / "runs")

    for gone in ("runs", ".dvc", "dvc.lock"):
        path = folder / gone
        (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    run(folder, "init", "--no-scm", "--quiet")
    killed = sum(kill_when(folder, pattern) for pattern in MOMENTS)
    run(folder, "repro")
    assert different(contents(folder / "runs"), right) == []
    assert leftovers(folder / "runs") == []
    assert killed
