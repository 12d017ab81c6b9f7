"""A function that runs pytest in an empty folder."""

import faults
import pytest


@pytest.fixture
def run(tmp_path):
    """Return a function that runs pytest in an empty folder and returns the exit code and output."""

    def start(*words, conftest="", ini="", **environment):
        if conftest:
            (tmp_path / "conftest.py").write_text(conftest)
        if ini:
            (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
        environment = {"PYTHONPATH": str(tmp_path), **environment}  # of `python -m pytest`
        words = ("pytest", "-p", "no:cacheprovider", *words)
        ended = faults.run(list(words), tmp_path / "output", cwd=tmp_path, **environment)
        return ended.code, ended.out + ended.err

    return start
