"""Test files in which `-m` deselects everything are not imported."""

import pytest
from faults import PROJECT


@pytest.mark.parametrize(
    ("mark", "unopened"),
    [("gpu", ""), ("not slow", "import pytest\npytestmark = pytest.mark.slow\n")],
    ids=["gpu", "not slow"],
)
def test_files_in_which_a_mark_deselects_everything_are_not_opened(run, tmp_path, mark, unopened):
    """They may import packages that are not installed on GPU machines."""
    (tmp_path / "test_a.py").write_text(unopened + "import nothing_of_this_name\n")
    tests = "@pytest.mark.gpu\ndef test_one(): pass\n\n@pytest.mark.slow\ndef test_two(): pass\n"
    (tmp_path / "test_b.py").write_text(f"import pytest\n{tests}")
    code, output = run("-q", "-m", mark, "--collect-only", conftest=(PROJECT / "conftest.py").read_text())
    assert (code, "1/2 tests collected (1 deselected)" in output) == (0, True), output
