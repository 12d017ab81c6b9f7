"""A killed command leaves no partial files and loses no data. Run again, it gives the results of an undisturbed run."""

import shutil
from itertools import chain

import pytest
from faults import NIGHTLY, Fault


def test_a_command_killed_while_writing_loses_nothing(attack):
    """The command is killed just after opening its last file, which is still empty."""
    assert attack.problems(Fault(operation=attack.last_opened + 1)) == []


@NIGHTLY
def test_a_command_killed_at_any_change_of_files_loses_nothing(attack):
    faults = [Fault(operation=place) for place in range(attack.operations)]
    assert list(chain.from_iterable(map(attack.problems, faults))) == []


@NIGHTLY
def test_a_command_killed_within_a_file_loses_nothing(attack):
    faults = [Fault(cut=size) for size in (100, 1000, 3000, 10_000, 30_000, 100_000)]
    assert list(chain.from_iterable(map(attack.problems, faults))) == []


@pytest.mark.slow
def test_a_checkpoint_makes_a_training_state_unnecessary_even_after_a_kill(bench):
    """The command is killed between storing the checkpoint and deleting the state of its training."""
    command = ["finetune", "@subject", "--seed", 4]
    bench.work.mkdir(exist_ok=True)
    lines = bench.done(command).operations
    shutil.rmtree(bench.work / "runs")
    stored = max(place for place, line in enumerate(lines) if "os.rename" in line and "/runs/checkpoints/" in line)
    assert bench.run(command, Fault(operation=stored + 2)).killed
    assert list(bench.work.glob("runs/training/*/*"))
    bench.done(command)
    assert list(bench.work.glob("runs/training/*")) == []
