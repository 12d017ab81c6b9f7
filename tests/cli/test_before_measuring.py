"""Before the first measurement: what a run says it will do, and the errors that end it without training anything."""

import json
import shutil
from collections import namedtuple

import pytest

from bertsecrets.cli.main import main
from bertsecrets.models.training.loop import Training

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
CLAIM = ("report", "--task", "rte", "--claim", "E1")
MEASURE = ("measure", "scores", "--task", "rte")
Usage = namedtuple("Usage", "total used free")


def said(capsys, *arguments) -> list[str]:
    code = main([str(argument) for argument in arguments])
    assert code in (0, 1)
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("bertsecrets: ")]


def test_a_run_first_shows_claims_jobs_checkpoints_precision_and_shape(capsys, shared, tmp_path, tiny_bert):
    arguments = [*CLAIM, "--claim", "I6", *shared, "--store", tmp_path / "new", "--limit", 8, "--train-limit", 6]
    first, *lines = said(capsys, *arguments, "--seeds", 2)
    assert first == (
        f"bertsecrets: 2 claims to judge on {tiny_bert} (3 layers x 4 heads) with 2 seeds: 8 jobs to run, including "
        "2 trainings in float32"
    )
    assert sum(line.startswith("bertsecrets: 1 of 2 claims: ") for line in lines) == 1
    assert lines[-1].startswith("bertsecrets: 2 of 2 claims: ")


def test_nothing_is_announced_if_everything_is_stored(capsys, shared):
    assert said(capsys, *CLAIM, *shared, "--seeds", 2) == []


def test_a_single_checkpoint_is_announced_without_jobs(capsys, shared, runs):
    checkpoint = next(runs.glob("checkpoints/rte-pretrained-1-*"))
    first, *_ = said(capsys, "report", "--claim", "E1-rte", "--task", "rte", "--checkpoint", checkpoint, *shared)
    assert first == f"bertsecrets: 1 claim to judge on {checkpoint} (3 layers x 4 heads)"


def refused(capsys, *arguments) -> str:
    """Run a command that must end with exit code 2, without a traceback, and return its last line."""
    assert main([str(argument) for argument in arguments]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err.splitlines()[-1]


@pytest.mark.parametrize("command", [CLAIM, MEASURE], ids=lambda arguments: arguments[0])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("weights", "model.safetensors is damaged"),
        ("layers", "num_hidden_layers"),
        ("vocabulary", "the tokenizer's vocabulary contains only special tokens"),
        ("rows", "unknown label 'perhaps'"),
        ("memory", "of memory, but only 1 MB is free"),
        ("disk", "not enough disk space for fine-tuning "),
    ],
)
def test_what_cannot_be_trained_is_refused_before_training(
    capsys, shared, own_bert, tiny_glue, tmp_path, monkeypatch, command, damage, says
):
    monkeypatch.setattr(Training, "take_step", lambda *_: pytest.fail("trained"))
    glue = shutil.copytree(tiny_glue, tmp_path / "glue")
    if damage == "weights":
        file = own_bert / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "layers":
        config = json.loads((own_bert / "config.json").read_text())
        (own_bert / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    elif damage == "vocabulary":
        (own_bert / "tokenizer.json").unlink()
    elif damage == "memory":
        monkeypatch.setattr("bertsecrets.models.memory.available_bytes", lambda: 10**6)
    elif damage == "disk":
        monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10**9, 10**9 - 1000, 1000))
    else:
        (glue / "RTE" / "train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tperhaps\n")
    given = [*shared[4:], "--model", own_bert, "--glue", glue, "--store", tmp_path / "new"]
    line = refused(capsys, *command, *given)
    assert says in line
    place = tmp_path / "new" / "checkpoints"
    assert damage != "disk" or line.endswith(
        f" needed, 1 kB free in {place}: free some space, or choose another location"
    )
    assert not [path for path in tmp_path.glob("new/checkpoints/[!.]*") if path.is_dir()]
