"""`--keep-checkpoints none`: measurements stay usable without their checkpoint, which is retrained if it is needed."""

import json
import re
import shutil

import pytest
from calls import run
from safetensors.torch import load_file, save_file
from sessions import local_session

from bertsecrets.caches import CheckpointCache, MeasurementCache
from bertsecrets.claims.loading import find_case
from bertsecrets.claims.verdict import Verdict
from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.models.locations import ModelRef
from bertsecrets.session import Session
from bertsecrets.store.entries import read_manifest
from bertsecrets.store.locks import in_use
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")


@pytest.fixture
def subject(tiny_bert):
    return Subject(str(tiny_bert), "rte")


@pytest.fixture
def store(trained, tmp_path):
    """A store whose only measurements are scores."""
    store = shutil.copytree(trained, tmp_path / "runs")
    for folder in (store / "measurements").iterdir():
        if folder.is_dir() and not folder.name.startswith("scores"):
            shutil.rmtree(folder)
    return store


def opened(store, glue, keep="full", **more) -> Session:
    return local_session(store=store, glue=glue, keep_checkpoints=keep, **more)


def checkpoint(session, subject):
    return session.checkpoints.find(subject)


def test_measured_subjects_need_no_checkpoint(store, tiny_glue, subject, capsys):
    with opened(store, tiny_glue, "none") as session:
        first = session.measurement("scores", subject)
        assert checkpoint(session, subject)
    assert not checkpoint(session, subject)
    assert f"deleted the checkpoint {subject}: " in capsys.readouterr().err
    for later in ("full", "none"):
        with opened(store, tiny_glue, later) as session:
            again = session.measurement("scores", subject)
        assert again.reused
        assert again.values == first.values
        assert again.provenance == first.provenance
    assert capsys.readouterr().err == ""
    assert list((store / "checkpoints").glob(f"rte-pretrained-{subject.seed}-*")) == []


def test_a_later_measurement_trains_again(store, tiny_glue, subject):
    before = checkpoint(opened(store, tiny_glue), subject)
    weights = ModelRef.in_folder(before).identity()
    assert read_manifest(before)["weights"] == weights
    with opened(store, tiny_glue, "none") as session:
        first = session.measurement("scores", subject)
    session = opened(store, tiny_glue)
    later = session.measurement("special-tokens", subject)
    assert not later.reused
    assert checkpoint(session, subject) == before
    assert later.provenance.weights == first.provenance.weights == weights
    assert session.measurement("scores", subject).reused


def test_retraining_that_gives_other_weights_is_visible_in_the_verdict(store, tiny_glue, subject, monkeypatch):
    """As on a non-deterministic device."""
    with opened(store, tiny_glue, "none") as session:
        before = session.measurement("scores", subject)
    train = CheckpointCache._train

    def train_otherwise(self, made, folder, states):
        facts = train(self, made, folder, states)
        tensors = load_file(folder / "model.safetensors")
        save_file(
            {name: 1.01 * tensor for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
        )
        return facts

    monkeypatch.setattr(CheckpointCache, "_train", train_otherwise)
    session = opened(store, tiny_glue)
    later = session.measurement("attention-change", subject)
    scores = session.measurement("scores", subject)
    assert scores.reused
    assert scores.provenance.weights == before.provenance.weights != later.provenance.weights
    verdict = Verdict(find_case("D1-pretrained", "rte"), "reproduced", "", measurements=(scores, later))
    assert f"{subject} was measured on weights from two training runs" in verdict.remarks


def test_a_checkpoint_in_use_is_kept(store, tiny_glue, subject, capsys):
    with opened(store, tiny_glue, "none") as session:
        session.measurement("scores", subject)
        with in_use(checkpoint(session, subject)):
            session.close()
    assert f"kept the checkpoint {subject} (in use); " in capsys.readouterr().err


def test_a_subject_with_a_failed_measurement_keeps_its_checkpoint(store, tiny_glue, subject, monkeypatch):
    session = opened(store, tiny_glue, "none")
    session.measurement("scores", subject)
    monkeypatch.setattr(MeasurementCache, "_made", lambda *_: (_ for _ in ()).throw(UserError("the disk is full")))
    with pytest.raises(UserError, match="the disk is full"):
        session.measurement("special-tokens", subject)
    session.close()
    assert checkpoint(session, subject)


def test_an_interrupted_block_keeps_its_checkpoints(store, tiny_glue, subject):
    with pytest.raises(KeyboardInterrupt), opened(store, tiny_glue, "none") as session:
        session.measurement("scores", subject)
        raise KeyboardInterrupt
    assert checkpoint(session, subject)


# ---------------------------------------------------------------------- commands

FEW = ("--task", "rte", "--claim", "D2-rte", "--claim", "E1-rte", "--seeds", "1", "--threads", "1")


def reported(capsys, command, shared, room, *more):
    arguments = [*command, *shared, "--store", room / "runs", *FEW, "--json", room / "verdicts.json", *more]
    code = main([str(argument) for argument in arguments])
    verdicts = json.loads((room / "verdicts.json").read_text())["verdicts"]
    values = {verdict["id"]: (verdict["verdict"], verdict["observed"], verdict["interval"]) for verdict in verdicts}
    return code, values, capsys.readouterr()


def sizes(room):
    return [file.stat().st_size for file in sorted((room / "runs" / "checkpoints").glob("*/model.safetensors"))]


@pytest.mark.slow
def test_a_run_without_checkpoints_gives_the_same_verdicts(capsys, shared, tmp_path):
    rooms, said = {keep: tmp_path / keep for keep in ("full", "none")}, {}
    for keep, room in rooms.items():
        room.mkdir()
        said[keep] = reported(capsys, ["run"], shared, room, "--keep-checkpoints", keep)
    assert said["none"][:2] == said["full"][:2]
    assert len(sizes(rooms["full"])) == 2  # one per initialisation
    assert sizes(rooms["none"]) == []
    assert len(re.findall("deleted the checkpoint .*-s1: ", said["none"][2].err)) == 2
    again = reported(capsys, ["run"], shared, rooms["none"], "--keep-checkpoints", "none")
    assert again[1] == said["none"][1]
    assert not re.search("fine-tuning|deleted", again[2].err)
    assert "none damaged" in run(capsys, "store", "verify", "--store", rooms["none"] / "runs")
