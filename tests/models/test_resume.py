"""A killed training resumes from its last saved state and ends with the weights of an uninterrupted one."""

import json
import os
import random
import shutil
import signal
import sys
from collections import namedtuple

import pytest
import torch
import yaml
from faults import LIMIT, PROCESSES
from tiny import FINETUNE, refused

from bertsecrets.cli.main import main
from bertsecrets.errors import RunError, UserError
from bertsecrets.models.locations import locate
from bertsecrets.models.opening import open_classifier
from bertsecrets.models.training import loop as module
from bertsecrets.models.training import states
from bertsecrets.models.training.finetune import finetune
from bertsecrets.models.training.states import newest
from bertsecrets.store.files import file_sha256
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

STEPS, PER_EPOCH = 15, 5  # 64 examples in batches of 13, three epochs
SETTINGS = FINETUNE.model_copy(update={"batch_size": 13, "epochs": 3, "save_every": 1e-9})


@pytest.fixture(scope="module")
def params(quick_params, tmp_path_factory):
    data = yaml.safe_load(quick_params.read_text(encoding="utf-8"))
    data["finetune"] |= {"batch_size": 13, "epochs": 3, "save_every": 1e-9}
    file = tmp_path_factory.mktemp("settings") / "params.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return file


def die(*_args, **_more):
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(place, step, words, params, errors):
    """Run the command in a subprocess, save a state after every step, and kill the process at a given place.

    `step`: before this step; `saving`: while its state is written; `cleaning`: before older states are removed; `end`:
    never.
    """
    os.environ["BERTSECRETS_PARAMS"] = str(params)
    torch.set_num_threads(1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    take_step, write_manifest, rmtree = module.Training.take_step, states.write_manifest, shutil.rmtree

    def step_or_die(self):
        return die() if (place, step) == ("step", self.step) else take_step(self)

    def write_or_die(folder, facts):
        return die() if (place, step) == ("saving", facts.get("step")) else write_manifest(folder, facts)

    def clean_or_die(folder, **more):
        return die() if place == "cleaning" and "training" in str(folder) else rmtree(folder, **more)

    module.SAVING_SHARE = float("inf")
    module.Training.take_step, states.write_manifest = step_or_die, write_or_die
    states.shutil.rmtree = clean_or_die
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


def result(store):
    """Return the contents of all checkpoint files but the manifest, and its training facts without the duration."""
    [folder] = [path for path in (store / "checkpoints").iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
    training = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["training"]
    return files, {name: value for name, value in training.items() if name != "seconds"}


DRAWN = random.Random(15)
MANY = [("step", PER_EPOCH), ("step", 2 * PER_EPOCH)]  # between two epochs
MANY += [("step", step) for step in DRAWN.sample(range(3, STEPS), 3)]
MANY += [("saving", step) for step in DRAWN.sample(range(3, STEPS), 2)]
MANY = [("cleaning", 0), *sorted(MANY, key=lambda kill: (kill[1], kill[0] == "step"))]


@pytest.mark.parametrize("kills", [[("step", 7)], pytest.param(MANY, marks=pytest.mark.slow)], ids=["once", "often"])
def test_a_killed_training_equals_an_uninterrupted_one(params, tiny_bert, tiny_glue, tmp_path, kills):
    output = trained(params, tiny_bert, tiny_glue, tmp_path / "killed", *kills)
    said = [line for line in output.replace("\r", "\n").splitlines() if "resumed at step" in line]
    assert len(said) >= len(kills) - 2
    assert said[-1].endswith(f"of {STEPS}")
    assert not list((tmp_path / "killed" / "training").iterdir())
    trained(params, tiny_bert, tiny_glue, tmp_path / "whole")
    assert result(tmp_path / "killed") == result(tmp_path / "whole")


# ---------------------------------------------------------------------- in this process


class Stop(Exception):
    """Raised to stop a run early."""


def run(model, glue, folder, states, monkeypatch, stop=None, initialisation="pretrained", **changes):
    """Train, save a state after every step, stop before step `stop` if given, and return the training's facts."""
    take_step = module.Training.take_step

    def step_or_stop(self):
        if self.step == stop:
            raise Stop
        take_step(self)

    folder.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(module, "SAVING_SHARE", float("inf"))
        patch.setattr(module.Training, "take_step", step_or_stop)
        return finetune(
            open_classifier(locate(str(model)), task("rte"), initialisation, 1),
            load_folder(glue, task("rte"), "train"), folder, settings=SETTINGS.model_copy(update=changes),
            initialisation=initialisation, seed=1, device=torch.device("cpu"), states=states,
        )  # fmt: skip


@pytest.fixture(scope="module")
def room(tiny_bert, tiny_glue, tmp_path_factory):
    """A folder with a training stopped before step 5 and an uninterrupted one that saves no states."""
    room = tmp_path_factory.mktemp("trainings")
    with pytest.MonkeyPatch.context() as patch:
        with pytest.raises(Stop):
            run(tiny_bert, tiny_glue, room / "begun", room / "key", patch, stop=5)
        run(tiny_bert, tiny_glue, room / "whole", None, patch)
    assert {path.name for path in room.iterdir()} == {"begun", "key", "whole"}
    return room


@pytest.fixture
def begun(room, tmp_path):
    """The saved states of a training stopped before step 5."""
    return shutil.copytree(room / "key", tmp_path / "states" / "key")


@pytest.fixture
def whole(room):
    return (room / "whole" / "model.safetensors").read_bytes()


def test_only_the_newest_state_is_kept(begun):
    assert [path.name for path in begun.iterdir()] == ["step-000000005"]
    names = {path.name for path in (begun / "step-000000005").iterdir()}
    assert {path.rsplit(".", 1)[1] for path in names} == {"safetensors", "json"}  # no format that can execute code


def test_a_damaged_state_is_ignored_with_a_line(begun, whole, tiny_bert, tiny_glue, tmp_path, monkeypatch, capsys):
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
    (state / "weights.safetensors").write_bytes(b"")
    run(tiny_bert, tiny_glue, tmp_path / "again", begun, monkeypatch)
    assert "ignoring the damaged training state" in capsys.readouterr().err
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == whole


def test_the_older_state_is_used_if_the_newer_is_damaged(
    begun, whole, tiny_bert, tiny_glue, tmp_path, monkeypatch, capsys
):
    newer = begun / "step-000000007"
    shutil.copytree(begun / "step-000000005", newer)
    (newer / "facts.json").unlink()
    run(tiny_bert, tiny_glue, tmp_path / "again", begun, monkeypatch)
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


def test_a_state_with_other_shapes_is_ignored(begun, tiny_bert, tiny_glue, tmp_path, monkeypatch, capsys):
    run(tiny_bert, tiny_glue, tmp_path / "frozen", begun, monkeypatch, initialisation="frozen")
    assert "different weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("initialisation", "precision"), [("random", "float32"), ("frozen", "float32"), ("pretrained", "bfloat16")]
)
def test_a_stopped_training_resumes(tiny_bert, tiny_glue, tmp_path, monkeypatch, initialisation, precision):
    options = {"initialisation": initialisation, "batch_size": 5, "epochs": 2, "precision": precision}
    losses = run(tiny_bert, tiny_glue, tmp_path / "whole", None, monkeypatch, **options)["loss"]
    for n, stop in enumerate((4, 13, 17)):
        with pytest.raises(Stop):
            run(tiny_bert, tiny_glue, tmp_path / str(n), tmp_path / "states", monkeypatch, stop=stop, **options)
    assert run(tiny_bert, tiny_glue, tmp_path / "end", tmp_path / "states", monkeypatch, **options)["loss"] == losses
    assert file_sha256(tmp_path / "end" / "model.safetensors") == file_sha256(tmp_path / "whole" / "model.safetensors")


def test_half_written_states_are_removed(begun):
    (begun / ".step-000000006.abc").mkdir()
    assert newest(begun).step == 5
    assert [path.name for path in begun.iterdir()] == ["step-000000005"]


def test_a_training_continues_if_a_state_cannot_be_written(
    begun, whole, tiny_bert, tiny_glue, tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").write_text("in the way")
    run(tiny_bert, tiny_glue, tmp_path / "again", tmp_path / "file" / "states", monkeypatch)
    assert "not saved: cannot write" in capsys.readouterr().err
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == whole


def free_space(monkeypatch, *amounts):
    """Pretend that the disk has these numbers of free bytes, one after the other; the last one is repeated."""
    usage = namedtuple("usage", "total used free")
    left = list(amounts)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, left.pop(0) if len(left) > 1 else left[0]))


def test_training_begins_only_if_checkpoint_and_state_fit_on_the_disk(
    room, begun, whole, tiny_bert, tiny_glue, tmp_path, monkeypatch
):
    state = sum(file.stat().st_size for file in begun.rglob("*.safetensors"))
    checkpoint = sum(file.stat().st_size for file in room.joinpath("whole").iterdir())
    free_space(monkeypatch, 0.9 * (checkpoint + state))
    with pytest.raises(RunError, match=r"not enough disk space for fine-tuning \(checkpoint and saved state\): "):
        run(tiny_bert, tiny_glue, tmp_path / "refused", tmp_path / "key", monkeypatch, stop=0)
    free_space(monkeypatch, 0.9 * checkpoint)
    with pytest.raises(RunError, match=r"not enough disk space for fine-tuning \(checkpoint\): "):
        run(tiny_bert, tiny_glue, tmp_path / "without", None, monkeypatch, stop=0)
    free_space(monkeypatch, checkpoint)
    for name, states_folder in (("resumed", begun), ("no-states", None)):  # with and without a saved state
        run(tiny_bert, tiny_glue, tmp_path / name, states_folder, monkeypatch)
        assert (tmp_path / name / "model.safetensors").read_bytes() == whole


def test_a_state_is_saved_only_if_the_checkpoint_still_fits(whole, tiny_bert, tiny_glue, tmp_path, monkeypatch, capsys):
    plenty = 10 * len(whole)
    free_space(monkeypatch, plenty, plenty, plenty, 3.9 * len(whole))  # before training, and at steps 1, 2 and later
    with pytest.raises(Stop):
        run(tiny_bert, tiny_glue, tmp_path / "begun", tmp_path / "key", monkeypatch, stop=4)
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["step-000000002"]
    assert "training state after step 3 not saved: not enough disk space for it and the checkpoint: " in (
        capsys.readouterr().err
    )


def test_saving_takes_at_most_its_share_of_the_time(tiny_bert, tiny_glue, tmp_path, monkeypatch):
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
    finetune(
        open_classifier(locate(str(tiny_bert)), task("rte")), load_folder(tiny_glue, task("rte"), "train"), tmp_path,
        settings=SETTINGS.model_copy(update={"save_every": 2.0}), initialisation="pretrained", seed=1,
        device=torch.device("cpu"), states=tmp_path / "states",
    )  # fmt: skip
    assert saves == [2, 11]  # after 2 minutes, then after 500 s: saving takes 10 s, at most 2 % of the time


def test_a_diverged_training_names_step_and_rate_and_leaves_no_state(tiny_bert, tiny_glue, tmp_path, monkeypatch):
    take_step = module.Training.take_step

    def corrupt(self):
        take_step(self)
        if self.step == 7:
            next(iter(self.weights.values())).data.fill_(float("nan"))

    monkeypatch.setattr(module.Training, "take_step", corrupt)
    with refused(r"diverged at step 8 of 15 \(loss nan\) at learning rate 0.000\d+: reduce fine"):
        run(tiny_bert, tiny_glue, tmp_path / "x", tmp_path / "states", monkeypatch)
    assert not (tmp_path / "states").exists()
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_weights_corrupted_by_the_last_step_are_refused(tiny_bert, tiny_glue, tmp_path, monkeypatch, value):
    take_step = module.Training.take_step

    def corrupt(self):
        take_step(self)
        if self.step == STEPS:
            for weight in self.weights.values():
                weight.data.fill_(value)

    monkeypatch.setattr(module.Training, "take_step", corrupt)
    with pytest.raises(UserError, match="diverged"):
        run(tiny_bert, tiny_glue, tmp_path / "x", None, monkeypatch)
