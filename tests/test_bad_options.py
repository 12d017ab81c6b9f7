"""Options that cannot be meant: one clear line that says what is wrong, exit code 2."""

import pytest
from calls import told
from patterned import pattern_set

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("name", ["foo bar", "a--b", "minilm/", "x" * 300, f"./{'x' * 300}", "@abc"])
def test_a_name_that_no_model_can_have_is_named(capsys, shared, name):
    line = told(capsys, "measure", "scores", "--task", "rte", *shared, "--model", name)
    assert name in line
    assert "--model minilm" in line


def test_a_device_that_computes_nothing_is_none(capsys, shared):
    assert "no device 'meta'" in told(capsys, "measure", "scores", "--task", "rte", *shared, "--device", "meta")


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_none_can_use_is_refused_by_every_command(capsys, shared, tmp_path, seed):
    pattern_set(4).save(tmp_path / "maps")
    for command in (
        ["sheets", tmp_path / "maps", tmp_path / "out"],
        ["annotate", tmp_path / "drawn", "--task", "rte", *shared],
        ["finetune", "--task", "rte", *shared],
        ["measure", "scores", "--task", "rte", *shared],
    ):
        assert f"--seed {seed} cannot be used" in told(capsys, *command, "--seed", seed)
    assert not (tmp_path / "out").exists()
