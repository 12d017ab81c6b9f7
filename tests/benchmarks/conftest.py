"""A function that runs pytest in an empty folder."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def run(tmp_path):
    """Return a function that runs pytest in an empty folder and returns the exit code and output."""

    def start(*words, conftest="", ini="", **environment):
        if conftest:
            (tmp_path / "conftest.py").write_text(conftest)
        if ini:
            (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "BERTSECRETS_"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, words)],
            cwd=tmp_path, env={**known, **environment}, text=True, encoding="utf-8", errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200,
        )  # fmt: skip
        return done.returncode, done.stdout

    return start
