"""`--keep-checkpoints`: what is measured, from which weights, and what a verdict says of it."""

import json
import shutil

import numpy as np
import pytest
from calls import run

from bertsecrets.cli.main import main
from bertsecrets.errors import UserError
from bertsecrets.models.kept import kept, rewrite
from bertsecrets.options import RunOptions
from bertsecrets.session import Session
from bertsecrets.types import Subject

pytestmark = pytest.mark.usefixtures("quick", "same_threads")


@pytest.fixture
def subject(tiny_bert):
    return Subject(str(tiny_bert), "rte")


@pytest.fixture
def store(trained, tmp_path):
    """A store of which nothing but scores were measured."""
    store = shutil.copytree(trained, tmp_path / "runs")
    for folder in (store / "measurements").iterdir():
        if folder.is_dir() and not folder.name.startswith("scores"):
            shutil.rmtree(folder)
    return store


def opened(store, glue, keep="full", **more) -> Session:
    options = {"glue": glue, "device": "cpu", "allow_unofficial_data": True, "offline": True}
    return Session(store=store, keep_checkpoints=keep, **options, **more)


def weights(session, subject):
    return session.stored_checkpoint(subject) / "model.safetensors"


@pytest.mark.parametrize("keep", ["none", "half"])
def test_what_was_measured_needs_no_weights(store, tiny_glue, subject, keep, capsys):
    with opened(store, tiny_glue, keep) as session:
        first = session.measurement("scores", subject)
        assert weights(session, subject).exists()
    assert weights(session, subject).exists() == (keep == "half")
    assert f"weights of {subject} " + ("dropped" if keep == "none" else "kept in 16 bits") in capsys.readouterr().err
    for later in ("full", "half", "none"):
        with opened(store, tiny_glue, later) as session:
            again = session.measurement("scores", subject)
        assert again.reused
        assert again.values == first.values
        assert again.provenance.kept is None
        assert again.provenance.training == first.provenance.training
    assert "trained again" not in capsys.readouterr().err


@pytest.mark.parametrize("keep", ["none", "half"])
def test_a_later_measurement_trains_again_and_says_so(store, tiny_glue, subject, keep, capsys):
    before = kept(opened(store, tiny_glue).stored_checkpoint(subject))
    with opened(store, tiny_glue, keep) as session:
        session.measurement("scores", subject)
    capsys.readouterr()
    session = opened(store, tiny_glue)
    assert not session.measurement("special-tokens", subject).reused
    said = capsys.readouterr().err
    what = "were dropped" if keep == "none" else "are kept in 16 bits"
    assert f"{subject}: its weights {what}, so it is trained again (last time " in said
    assert ("; --keep-checkpoints half measures those" in said) == (keep == "half")
    assert f"{subject}: the weights are the same as those that were measured before\n" in said
    assert kept(session.stored_checkpoint(subject)) == before
    assert session.measurement("scores", subject).reused


def test_weights_in_16_bits_are_measured_where_the_options_say_so(store, tiny_glue, subject, capsys):
    with opened(store, tiny_glue, "half") as session:
        session.measurement("scores", subject)
    session = opened(store, tiny_glue, "half")
    half = session.measurement("special-tokens", subject)
    assert "trained again" not in capsys.readouterr().err
    full = opened(store, tiny_glue).measurement("special-tokens", subject)
    assert (half.provenance.kept, full.provenance.kept) == ("half", None)
    assert half.provenance.weights == full.provenance.weights
    assert not np.array_equal(half.values["sep"], full.values["sep"])
    np.testing.assert_allclose(half.values["sep"], full.values["sep"], atol=1e-3)
    assert session.measurement("special-tokens", subject).values["sep"].tolist() == full.values["sep"].tolist()


def test_a_verdict_says_that_it_rests_on_weights_in_16_bits(store, tiny_glue, subject):
    with opened(store, tiny_glue, "half", model=subject.model) as session:
        session.measurement("scores", subject)
    in_16_bits = opened(store, tiny_glue, "half", model=subject.model).judge("E1", "rte")
    assert "measured on weights kept in 16 bits" in in_16_bits.remarks
    assert (
        "measured on weights kept in 16 bits"
        not in opened(store, tiny_glue, model=subject.model).judge("E1-rte").remarks
    )


def test_weights_that_come_out_otherwise_are_another_subjects(store, tiny_glue, subject, monkeypatch, capsys):
    """As on a device that does not compute the same twice."""
    with opened(store, tiny_glue, "none") as session:
        before = session.measurement("scores", subject)
    make = Session._make_checkpoint

    def otherwise(self, made, folder, states):
        from safetensors.torch import load_file, save_file

        facts = make(self, made, folder, states)
        tensors = load_file(folder / "model.safetensors")
        save_file({name: 1.01 * one for name, one in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
        return facts

    monkeypatch.setattr(Session, "_make_checkpoint", otherwise)
    session = opened(store, tiny_glue)
    session.measurement("special-tokens", subject)
    assert "the weights are not the same as those that were measured before: all" in capsys.readouterr().err
    after = session.measurement("scores", subject)
    assert not after.reused
    assert after.provenance.weights != before.provenance.weights


def test_a_subject_of_which_something_failed_keeps_its_weights(store, tiny_glue, subject, monkeypatch):
    session = opened(store, tiny_glue, "none")
    session.measurement("scores", subject)
    monkeypatch.setattr(Session, "_measured", lambda *_: (_ for _ in ()).throw(UserError("the disk is full")))
    with pytest.raises(UserError, match="the disk is full"):
        session.measurement("special-tokens", subject)
    session.close()
    assert weights(session, subject).exists()


def test_an_interrupted_block_keeps_its_weights(store, tiny_glue, subject):
    with pytest.raises(KeyboardInterrupt), opened(store, tiny_glue, "none") as session:
        session.measurement("scores", subject)
        raise KeyboardInterrupt
    assert weights(session, subject).exists()


def test_an_export_has_its_full_weights(store, tiny_glue, subject, tmp_path):
    session = opened(store, tiny_glue)
    identity = kept(session.checkpoint(subject)).identity
    rewrite(session.checkpoint(subject), "none")
    assert kept(session.export_checkpoint(subject, tmp_path / "exported")).identity == identity


def test_an_unknown_way_to_keep_is_refused():
    with pytest.raises(UserError, match="unknown --keep-checkpoints 'hlaf': did you mean half"):
        RunOptions(keep_checkpoints="hlaf")


# ---------------------------------------------------------------------- commands

FEW = ("--task", "rte", "--claim", "D2-rte", "--claim", "E1", "--seeds", "1", "--threads", "1")


def reported(capsys, command, shared, room, *more):
    words = [*command, *shared, "--store", room / "runs", *FEW, "--json", room / "verdicts.json", *more]
    code = main([str(word) for word in words])
    verdicts = json.loads((room / "verdicts.json").read_text())["verdicts"]
    values = {one["id"]: (one["verdict"], one["observed"], one["interval"]) for one in verdicts}
    return code, values, capsys.readouterr()


def sizes(room):
    return [file.stat().st_size for file in sorted((room / "runs" / "checkpoints").glob("*/model.safetensors"))]


@pytest.mark.slow
def test_a_report_keeps_what_it_is_told_and_gives_the_verdicts_that_it_gives_anyway(capsys, shared, tmp_path):
    rooms, said = {keep: tmp_path / keep for keep in ("full", "half", "none")}, {}
    for keep, room in rooms.items():
        room.mkdir()
        said[keep] = reported(capsys, ["report"], shared, room, "--keep-checkpoints", keep)
    assert said["half"][:2] == said["none"][:2] == said["full"][:2]
    whole = sizes(rooms["full"])
    assert len(whole) == 2  # of two initialisations
    assert all(0.4 * one < half < 0.6 * one for one, half in zip(whole, sizes(rooms["half"]), strict=True))
    assert sizes(rooms["none"]) == []
    assert "bertsecrets: 2 checkpoints to train, " in said["full"][2].err
    assert "; dropped once all is measured: " in said["none"][2].err
    again = reported(capsys, ["report"], shared, rooms["none"], "--keep-checkpoints", "none")
    assert again[1] == said["none"][1]
    assert again[2].err == ""  # nothing is trained, and nothing more is dropped
    assert "none damaged" in run(capsys, "store", "verify", "--store", rooms["none"] / "runs")
    assert "(weights dropped)" in run(capsys, "store", "ls", "--store", rooms["none"] / "runs")


@pytest.mark.slow
def test_jobs_in_several_processes_drop_nothing_that_another_one_needs(capsys, shared, tmp_path):
    code, values, captured = reported(capsys, ["run", "--jobs", 2], shared, tmp_path, "--keep-checkpoints", "none")
    assert sizes(tmp_path) == []
    assert captured.err.count("-s1 dropped: ") == 2  # each as soon as it was measured
    assert "trained again" not in captured.err
    assert len(values) == 2
    assert code in (0, 1)
