"""A killed training resumes from its last saved state and ends with the weights of an uninterrupted one."""

import os
import shutil
import signal
import sys
from collections import namedtuple

import pytest
import torch
import yaml
from faults import LIMIT, PROCESSES, contents
from tiny import refused, train

from bertsecrets.cli.main import main
from bertsecrets.errors import RunError, UserError
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_classifier
from bertsecrets.models.training import loop as module
from bertsecrets.models.training import states
from bertsecrets.models.training.states import newest
from bertsecrets.store.files import file_sha256
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

STEPS = 15  # 64 examples in batches of 13, three epochs
CHANGES = {"batch_size": 13, "epochs": 3, "save_every": 1e-9}


def die(*_args, **_more):
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(place, step, words, params, errors):
    """Run the command in a subprocess, save a state after every step, and kill the process at a given place.

    `step`: before this step; `saving`: while its state is written; `end`: never.
    """
    os.environ["BERTSECRETS_PARAMS"] = str(params)
    torch.set_num_threads(1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    take_step, write_manifest = module.Training.take_step, states.write_manifest

    def step_or_die(self):
        return die() if (place, step) == ("step", self.step) else take_step(self)

    def write_or_die(folder, facts):
        return die() if (place, step) == ("saving", facts.get("step")) else write_manifest(folder, facts)

    module.SAVING_SHARE = float("inf")
    module.Training.take_step, states.write_manifest = step_or_die, write_or_die
    sys.exit(main(words))


def trained(params, model, glue, store, *kills):
    """Run the training, kill all runs but the last, and return what they wrote to standard error."""
    command = [*("finetune", "--task", "rte", "--model", model, "--glue", glue, "--store", store)]
    words = [str(word) for word in (*command, "--device", "cpu", "--offline", "--allow-unofficial-data")]
    errors = store.with_name(f"{store.name}-errors")
    errors.touch()
    for place, step in (*kills, ("end", 0)):
        process = PROCESSES.Process(target=run_killed, args=(place, step, words, params, errors))
        process.start()
        process.join(LIMIT)
        assert process.exitcode == (0 if place == "end" else -signal.SIGKILL), errors.read_text()
    return errors.read_text()


def test_a_killed_training_equals_an_uninterrupted_one(quick_params, tiny_bert, tiny_glue, tmp_path):
    data, params = yaml.safe_load(quick_params.read_text(encoding="utf-8")), tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump({**data, "finetune": {**data["finetune"], **CHANGES}}), encoding="utf-8")
    kills = [("step", 5), ("saving", 8), ("step", 12)]  # the first between two epochs
    output = trained(params, tiny_bert, tiny_glue, tmp_path / "killed", *kills)
    said = [line for line in output.replace("\r", "\n").splitlines() if "resumed at step" in line]
    assert [line.partition("resumed at ")[2] for line in said] == [f"step {step} of {STEPS}" for step in (5, 7, 12)]
    assert not list((tmp_path / "killed" / "training").iterdir())
    trained(params, tiny_bert, tiny_glue, tmp_path / "whole")
    killed, whole = (contents(tmp_path / name / "checkpoints") for name in ("killed", "whole"))
    assert killed == whole != {}


# ---------------------------------------------------------------------- in this process


class Stop(Exception):
    """Raised to stop a run early."""


@pytest.fixture(scope="module")
def run(tiny_bert, tiny_glue):
    """Train, save a state after every step, stop before step `stop` if given, and return the training's facts.

    `corrupted` is a step after which all weights get a value, and this value.
    """

    def run(folder, states, stop=None, initialisation="pretrained", corrupted=(), share=float("inf"), **changes):
        take_step = module.Training.take_step

        def step_or_stop(self):
            if self.step == stop:
                raise Stop
            take_step(self)
            if self.step in corrupted[:1]:
                for weight in self.weights.values():
                    weight.data.fill_(corrupted[1])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SAVING_SHARE", share)
            patch.setattr(module.Training, "take_step", step_or_stop)
            classifier = open_classifier(locate(str(tiny_bert)), task("rte"), initialisation, 1)
            rows = load_folder(tiny_glue, task("rte"), "train")
            return train(classifier, rows, folder, initialisation, states=states, **{**CHANGES, **changes})

    return run


@pytest.fixture(scope="module")
def room(run, tmp_path_factory):
    """A folder with a training stopped before step 5 and an uninterrupted one that saves no states."""
    room = tmp_path_factory.mktemp("trainings")
    with pytest.raises(Stop):
        run(room / "begun", room / "key", stop=5)
    run(room / "whole", None)
    assert {path.name for path in room.iterdir()} == {"begun", "key", "whole"}
    return room


@pytest.fixture
def begun(room, tmp_path):
    """The saved states of a training stopped before step 5."""
    return shutil.copytree(room / "key", tmp_path / "states" / "key")


@pytest.fixture
def whole(room):
    return (room / "whole" / "model.safetensors").read_bytes()


def test_only_the_newest_whole_state_is_kept(begun):
    (begun / ".step-000000006.abc").mkdir()
    assert newest(begun).step == 5
    assert [path.name for path in begun.iterdir()] == ["step-000000005"]
    names = {path.name for path in (begun / "step-000000005").iterdir()}
    assert {path.rsplit(".", 1)[1] for path in names} == {"safetensors", "json"}  # no format that can execute code


def test_a_damaged_state_is_ignored_with_a_line(begun, tmp_path, capsys):
    state = begun / "step-000000005"
    for name in sorted(path.name for path in state.iterdir()):
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        shutil.copytree(state, tmp_path / "damaged" / state.name)
        data = bytearray((tmp_path / "damaged" / state.name / name).read_bytes())
        data[len(data) // 2] ^= 1
        (tmp_path / "damaged" / state.name / name).write_bytes(data)
        assert newest(tmp_path / "damaged") is None
        [line] = capsys.readouterr().err.splitlines()
        assert "ignoring the damaged training state" in line
        assert not list((tmp_path / "damaged").iterdir())


def test_the_older_state_is_used_if_the_newer_is_damaged(run, begun, whole, tmp_path, capsys):
    newer = begun / "step-000000007"
    shutil.copytree(begun / "step-000000005", newer)
    (newer / "facts.json").unlink()
    run(tmp_path / "again", begun)
    messages = capsys.readouterr().err
    assert "facts.json is missing" in messages
    assert f"resumed at step 5 of {STEPS}" in messages
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == whole


def test_the_state_of_another_training_is_ignored(begun, tmp_path, capsys):
    other = tmp_path / "other-key"
    shutil.copytree(begun, other)
    assert newest(other) is None
    assert "another training" in capsys.readouterr().err
    assert newest(begun).step == 5


def test_a_state_with_other_shapes_is_ignored(run, begun, tmp_path, capsys):
    losses = [
        run(tmp_path / name, states, initialisation="frozen")["loss"] for name, states in (("x", begun), ("y", None))
    ]
    assert "different weights" in capsys.readouterr().err
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("initialisation", "precision"), [("random", "float32"), ("frozen", "float32"), ("pretrained", "bfloat16")]
)
def test_a_stopped_training_resumes(run, tmp_path, initialisation, precision):
    options = {"initialisation": initialisation, "batch_size": 5, "epochs": 2, "precision": precision}
    losses = run(tmp_path / "whole", None, **options)["loss"]
    for n, stop in enumerate((4, 13, 17)):
        with pytest.raises(Stop):
            run(tmp_path / str(n), tmp_path / "states", stop=stop, **options)
    assert run(tmp_path / "end", tmp_path / "states", **options)["loss"] == losses
    assert file_sha256(tmp_path / "end" / "model.safetensors") == file_sha256(tmp_path / "whole" / "model.safetensors")


def test_a_training_continues_if_a_state_cannot_be_written(run, whole, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    run(tmp_path / "again", tmp_path / "file" / "states")
    assert "not saved: cannot write" in capsys.readouterr().err
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == whole


def free_space(monkeypatch, *amounts):
    """Pretend that the disk has these numbers of free bytes, one after the other; the last one is repeated."""
    usage = namedtuple("usage", "total used free")
    left = list(amounts)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, left.pop(0) if len(left) > 1 else left[0]))


def test_training_begins_only_if_checkpoint_and_state_fit_on_the_disk(run, room, begun, whole, tmp_path, monkeypatch):
    state = sum(file.stat().st_size for file in begun.rglob("*.safetensors"))
    checkpoint = sum(file.stat().st_size for file in room.joinpath("whole").iterdir())
    free_space(monkeypatch, 0.9 * (checkpoint + state))
    with pytest.raises(RunError, match=r"not enough disk space for fine-tuning \(checkpoint and saved state\): "):
        run(tmp_path / "refused", tmp_path / "key", stop=0)
    free_space(monkeypatch, 0.9 * checkpoint)
    with pytest.raises(RunError, match=r"not enough disk space for fine-tuning \(checkpoint\): "):
        run(tmp_path / "without", None, stop=0)
    free_space(monkeypatch, checkpoint)
    for name, states_folder in (("resumed", begun), ("no-states", None)):  # with and without a saved state
        run(tmp_path / name, states_folder)
        assert (tmp_path / name / "model.safetensors").read_bytes() == whole


def test_a_state_is_saved_only_if_the_checkpoint_still_fits(run, whole, tmp_path, monkeypatch, capsys):
    plenty = 10 * len(whole)
    free_space(monkeypatch, plenty, plenty, plenty, 3.9 * len(whole))  # before training, and at steps 1, 2 and later
    with pytest.raises(Stop):
        run(tmp_path / "begun", tmp_path / "key", stop=4)
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["step-000000002"]
    assert "training state after step 3 not saved: not enough disk space for it and the checkpoint: " in (
        capsys.readouterr().err
    )


def test_saving_takes_at_most_its_share_of_the_time(run, tmp_path, monkeypatch):
    now, saves = [0.0], []

    def slow_keep(folder, state, reserved):
        now[0] += 10.0
        saves.append(state.step)

    take_step = module.Training.take_step

    def timed_step(self):
        now[0] += 60.0
        take_step(self)

    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "save_state", slow_keep)
    monkeypatch.setattr(module.Training, "take_step", timed_step)
    run(tmp_path / "x", tmp_path / "states", share=module.SAVING_SHARE, save_every=2.0)
    assert saves == [2, 11]  # after 2 minutes, then after 500 s: saving takes 10 s, at most 2 % of the time


def test_a_diverged_training_names_step_and_rate_and_leaves_no_state(run, tmp_path):
    with refused(r"diverged at step 8 of 15 \(loss nan\) at learning rate 0.000\d+: reduce fine"):
        run(tmp_path / "x", tmp_path / "states", corrupted=(7, float("nan")))
    assert not (tmp_path / "states").exists()
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("value", [float("nan"), 1e30])
def test_weights_corrupted_by_the_last_step_are_refused(run, tmp_path, value):
    with pytest.raises(UserError, match="diverged"):
        run(tmp_path / "x", None, corrupted=(STEPS, value))
