"""Options that cannot be meant: one clear line that says what is wrong, exit code 2."""

import pytest
from calls import told

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("name", ["foo bar", "a--b", "minilm/", "x" * 300, f"./{'x' * 300}", "@abc"])
def test_a_name_that_no_model_can_have_is_named(capsys, shared, name):
    line = told(capsys, "measure", "scores", "--task", "rte", *shared, "--model", name)
    assert name in line
    assert "--model minilm" in line


def test_a_device_that_computes_nothing_is_none(capsys, shared):
    assert "no device 'meta'" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--device", "meta")
