"""Test files in which `-m` deselects everything are not imported."""

import pytest
from faults import PROJECT


def test_a_task_named_like_the_mark_of_other_tests_is_refused(run, tmp_path):
    (tmp_path / "task.yaml").write_text("name: Slow_tests\ndev: dev.csv\n")
    (tmp_path / "dev.csv").write_text("text,label\na,yes\nb,no\n")
    words = ("--pyargs", "bertsecrets.benchmarks", "--task-file", "task.yaml", "--collect-only", "-q", "-k", "D1")
    code, output = run(*words)
    assert (code, "D1-slowtests" in output) == (0, True), output
    code, output = run(*words, ini="markers = slowtests(seconds): takes long")
    assert (code, "the task slowtests has the name of a mark that is used for other tests" in output) == (2, True)


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
