"""Test files in which `-m` deselects everything are not imported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("mark", "unopened"),
    [("gpu", ""), ("not slow", "import pytest\npytestmark = pytest.mark.slow\n")],
    ids=["gpu", "not slow"],
)
def test_files_in_which_a_mark_deselects_everything_are_not_opened(tmp_path, mark, unopened):
    """They may import packages that are not installed on GPU machines."""
    (tmp_path / "test_a.py").write_text(unopened + "import nothing_of_this_name\n")
    shutil.copy(ROOT / "conftest.py", tmp_path / "conftest.py")
    tests = "@pytest.mark.gpu\ndef test_one(): pass\n\n@pytest.mark.slow\ndef test_two(): pass\n"
    (tmp_path / "test_b.py").write_text(f"import pytest\n{tests}")
    words = ["-q", "-p", "no:cacheprovider", "-m", mark, "--collect-only", "-c", os.devnull, "--rootdir", tmp_path]
    line = [sys.executable, "-m", "pytest", *map(str, words), str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, "1/2 tests collected (1 deselected)" in done.stdout) == (0, True), done.stdout
