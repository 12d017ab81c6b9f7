"""Checkpoints rewritten in 16 bits or without weights: what is in them, and that no process is in another's way."""

import json
import os
import shutil
import threading

import numpy as np
import pytest
import torch
from calls import run
from faults import LIMIT, PROCESSES
from killed import killed_at_each_operation
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from bertsecrets.models import kept as keeping
from bertsecrets.models.kept import kept, rewrite, size_kept
from bertsecrets.models.locations import ModelRef
from bertsecrets.store.entries import Key, Store, damage, read_manifest
from bertsecrets.store.locks import held, in_use

KEY = Key({"task": "rte"}, {"code": "x"})
SUBJECT = {"model": "m", "task": "rte", "initialisation": "pretrained", "seed": 1}


def make(model, **facts):
    def fill(folder):
        shutil.copytree(model, folder, dirs_exist_ok=True)
        return {"subject": SUBJECT, "training": {"seconds": 3.0}} | facts

    return fill


@pytest.fixture
def entry(tmp_path, tiny_bert):
    return Store(tmp_path / "runs").get_or_make("checkpoints", "m-rte", KEY, make(tiny_bert))[0]


def test_matrices_are_rounded_and_everything_else_is_as_it_was(entry, tiny_bert):
    before = load_file(tiny_bert / "model.safetensors")
    assert rewrite(entry, "half") > 0
    after = load_file(entry / "model.safetensors")
    assert after.keys() == before.keys()
    for name, weights in before.items():
        if weights.ndim < 2:
            assert torch.equal(after[name], weights)  # biases and LayerNorms
        else:
            assert after[name].dtype == torch.float16
            torch.testing.assert_close(after[name].float(), weights, rtol=2**-11, atol=2**-25)
    model = AutoModelForSequenceClassification.from_pretrained(entry, dtype=torch.float32)
    assert {one.dtype for one in model.parameters()} == {torch.float32}


def test_a_matrix_with_numbers_beyond_16_bits_stays_as_it_is(tmp_path, own_bert):
    tensors = load_file(own_bert / "model.safetensors")
    name = next(name for name, one in tensors.items() if one.ndim == 2)
    tensors[name][0, 0] = 70_000.0
    save_file(tensors, own_bert / "model.safetensors", {"format": "pt"})
    entry = Store(tmp_path / "runs").get_or_make("checkpoints", "m-rte", KEY, make(own_bert))[0]
    rewrite(entry, "half")
    assert torch.equal(load_file(entry / "model.safetensors")[name], tensors[name])


@pytest.mark.parametrize("steps", [["half"], ["none"], ["half", "none"]])
def test_the_manifest_keeps_the_digests_of_the_full_weights_and_all_that_is_known_of_them(entry, steps):
    before, identity = read_manifest(entry), ModelRef.in_folder(entry).identity()
    for keep in steps:
        assert rewrite(entry, keep) > 0
    after = read_manifest(entry)
    assert (after["kept"], kept(entry).identity) == (steps[-1], identity)
    assert after["full"]["files"] == {"model.safetensors": before["files"]["model.safetensors"]}
    assert after["files"].get("model.safetensors") != before["files"]["model.safetensors"]
    for name in ("kind", "name", "key", "made", "subject", "training"):
        assert after[name] == before[name]
    assert {"config.json", "tokenizer.json"} <= after["files"].keys()
    assert damage(entry, KEY) is None
    assert rewrite(entry, "half") == 0  # there is no way back but a training


def test_the_size_is_known_beforehand(entry):
    for keep in ("half", "none"):
        expected = size_kept(entry, keep)
        rewrite(entry, keep)
        assert sum(file.stat().st_size for file in entry.iterdir()) == pytest.approx(expected, abs=2000)


def test_damaged_weights_are_not_made_to_look_sound(entry):
    (entry / "model.safetensors").write_bytes((entry / "model.safetensors").read_bytes()[:-4] + b"\1\2\3\4")
    assert rewrite(entry, "half") == 0
    assert damage(entry) == "model.safetensors has changed"


@pytest.mark.slow
def test_an_entry_is_as_before_or_rewritten_wherever_the_process_is_killed(entry):
    seen = set()
    spare = shutil.copytree(entry, entry.parents[1] / "spare")
    for _ in killed_at_each_operation(lambda: rewrite(entry, "none")):
        assert damage(entry, KEY) is None
        seen.add(kept(entry).keep)
        if kept(entry).keep == "none":
            shutil.rmtree(entry)
            shutil.copytree(spare, entry)
    assert seen == {"full", "none"}
    assert [path.name for path in entry.parent.iterdir() if path.is_dir()] == [entry.name]  # cleared up


# ---------------------------------------------------------------------- several processes


def read(place, begun) -> None:
    with in_use(place):
        begun.set()
        threading.Event().wait(LIMIT)


@pytest.fixture
def reader(entry):
    """Another process that reads the checkpoint until it is killed."""
    begun = PROCESSES.Event()
    process = PROCESSES.Process(target=read, args=(entry, begun))
    process.start()
    assert begun.wait(LIMIT)
    yield process
    process.kill()


def test_what_another_process_reads_stays(entry, reader, capsys):
    assert rewrite(entry, "none") is None
    keeping.keep_as([entry], "none")
    assert "weights of m-rte are in use, so they are kept: " in capsys.readouterr().err
    assert kept(entry).keep == "full"
    reader.kill()
    reader.join()
    assert rewrite(entry, "none") > 0


def test_what_another_process_makes_or_rewrites_stays(entry):
    with held(entry.with_name(f".{KEY.marks}.lock"), "x"):
        assert rewrite(entry, "half") is None
    assert rewrite(entry, "half") > 0


def test_weights_in_16_bits_are_replaced_when_nobody_reads_them_any_more(entry, tiny_bert, tmp_path):
    rewrite(entry, "half")
    half = (entry / "model.safetensors").read_bytes()
    trained, done = threading.Event(), threading.Event()

    def again(folder):
        trained.set()
        return make(tiny_bert)(folder)

    def train():
        whole = lambda one: kept(one).keep == "full"  # noqa: E731
        assert Store(tmp_path / "runs").get_or_make("checkpoints", "m-rte", KEY, again, will_do=whole) == (entry, False)
        done.set()

    thread = threading.Thread(target=train)
    with in_use(entry) as there:
        assert there
        thread.start()
        assert trained.wait(LIMIT)
        assert not done.wait(0.5)
        assert (entry / "model.safetensors").read_bytes() == half
    thread.join(LIMIT)
    assert done.is_set()
    assert kept(entry).keep == "full"
    with in_use(entry) as there:
        assert there


# ---------------------------------------------------------------------- a store that exists


def test_gc_lists_what_less_would_free_and_frees_it_when_told(entry, capsys, monkeypatch):
    store = entry.parents[1]
    words = ("store", "gc", "--keep-older", "--store", store, "--keep-checkpoints", "half")
    assert run(capsys, "store", "gc", "--keep-older", "--store", store) == "nothing to remove\n"
    listed = run(capsys, *words).splitlines()
    assert listed[0].startswith(f"{entry} (")
    assert listed[0].endswith(" in 16 bits")
    assert listed[-1].endswith(
        f"can be removed: bertsecrets store gc --store {store} --keep-older --keep-checkpoints half --yes"
    )
    assert kept(entry).keep == "full"
    assert run(capsys, *words, "--yes").splitlines()[-1].startswith("removed ")
    assert kept(entry).keep == "half"
    assert "m-rte (weights in 16 bits)" in run(capsys, "store", "ls", "--store", store)
    assert run(capsys, *words) == "nothing to remove\n"
    assert "without weights" in run(capsys, *words[:-1], "none", "--yes")
    (only,) = json.loads(run(capsys, "store", "ls", "--json", "--store", store))
    assert only["kept"] == "none"
    assert run(capsys, "store", "verify", "--store", store).endswith("1 checked, none damaged\n")
    assert os.listdir(entry) != []


@pytest.mark.usefixtures("reader")
def test_gc_keeps_what_is_in_use(entry, capsys):
    words = ("store", "gc", "--keep-older", "--store", entry.parents[1], "--keep-checkpoints", "none", "--yes")
    assert "  in use: kept\nremoved 0 bytes\n" in run(capsys, *words)
    assert np.isfinite(load_file(entry / "model.safetensors")["classifier.bias"].numpy()).all()
