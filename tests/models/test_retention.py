"""Dropping the weights of stored checkpoints: everything else remains, and weights in use are kept."""

import json
import shutil
import threading

import pytest
from calls import run
from faults import LIMIT, PROCESSES
from killed import killed_at_each_operation

from bertsecrets.models.locations import ModelRef
from bertsecrets.models.retention import drop, drop_weights, weights_bytes
from bertsecrets.store.entries import Key, Store, damage, has_weights, read_manifest
from bertsecrets.store.locks import held, in_use

KEY = Key({"task": "rte"}, {"code": "x"})
SUBJECT = {"model": "m", "task": "rte", "initialisation": "pretrained", "seed": 1}


@pytest.fixture
def entry(tmp_path, tiny_bert):
    def fill(folder):
        shutil.copytree(tiny_bert, folder, dirs_exist_ok=True)
        return {"subject": SUBJECT, "training": {"seconds": 3.0}}

    return Store(tmp_path / "runs").get_or_make("checkpoints", "m-rte", KEY, fill)[0]


@pytest.fixture
def record(entry):
    return entry.parents[1] / "dropped" / entry.name


def test_everything_but_the_weights_remains_with_their_identity(entry, record):
    identity, facts = ModelRef.in_folder(entry).identity(), read_manifest(entry)
    others = {path.name: path.read_bytes() for path in entry.iterdir() if path.name != "manifest.json"}
    size = others.pop("model.safetensors")
    assert weights_bytes(entry) == len(size)
    assert drop(entry) == pytest.approx(len(size), abs=500)
    assert not entry.exists()
    assert (has_weights(entry), has_weights(record)) == (True, False)
    assert {path.name: path.read_bytes() for path in record.iterdir() if path.name != "manifest.json"} == others
    assert ModelRef.in_folder(record).identity() == identity
    manifest = read_manifest(record)
    assert damage(record, KEY) is None
    assert all(manifest[name] == facts[name] for name in ("subject", "training", "key", "made"))


def test_damaged_weights_are_not_dropped(entry, record):
    (entry / "model.safetensors").write_bytes(b"\1\2\3\4")
    assert drop(entry) == 0
    assert entry.exists()
    assert not record.exists()


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_checkpoint_or_its_record(entry, record):
    seen = set()
    spare = shutil.copytree(entry, entry.parents[1] / "spare")
    for _ in killed_at_each_operation(lambda: drop(entry)):
        present = [folder for folder in (entry, record) if folder.exists()]
        assert present
        assert all(damage(folder, KEY) is None for folder in present)
        seen.add(tuple(has_weights(folder) for folder in present))
        if not entry.exists():
            shutil.copytree(spare, entry)
    assert {(True,), (False,)} <= seen


# ---------------------------------------------------------------------- several processes


def read(place, begun) -> None:
    with in_use(place):
        begun.set()
        threading.Event().wait(LIMIT)


@pytest.fixture
def reader(entry):
    """A subprocess that reads the checkpoint until it is killed."""
    begun = PROCESSES.Event()
    process = PROCESSES.Process(target=read, args=(entry, begun))
    process.start()
    assert begun.wait(LIMIT)
    yield process
    process.kill()


def test_weights_that_another_process_reads_stay(entry, record, reader, capsys):
    drop_weights([entry])
    assert "kept the weights of m-rte, which are in use: " in capsys.readouterr().err
    assert entry.exists()
    assert not record.exists()
    reader.kill()
    reader.join()
    drop_weights([entry, entry, record])
    assert "deleted the weights of m-rte: " in capsys.readouterr().err
    assert not entry.exists()


def test_weights_that_another_process_makes_stay(entry):
    with held(entry.with_name(f".{KEY.marks}.lock"), "x"):
        assert drop(entry) is None
    assert drop(entry) > 0


# ---------------------------------------------------------------------- garbage collection


def test_gc_lists_weights_and_deletes_them_on_request(entry, record, capsys):
    store = entry.parents[1]
    words = ("store", "gc", "--keep-older", "--store", store, "--keep-checkpoints", "none")
    assert run(capsys, *words[:-2]) == "nothing to remove\n"
    listed = run(capsys, *words).splitlines()
    assert listed[0].startswith(f"{entry} (")
    assert listed[0].endswith(" without weights")
    assert listed[-1].endswith(f"store gc --store {store} --keep-older --keep-checkpoints none --yes")
    assert entry.exists()
    assert run(capsys, *words, "--yes").splitlines()[-1].startswith("removed ")
    assert "m-rte (weights dropped)" in run(capsys, "store", "ls", "--store", store)
    assert run(capsys, *words) == "nothing to remove\n"
    (only,) = json.loads(run(capsys, "store", "ls", "--json", "--store", store))
    assert only["kept"] == "none"
    assert run(capsys, "store", "verify", "--store", store).endswith("1 checked, none damaged\n")
    shutil.copytree(record, entry)
    assert f"{record} (" in run(capsys, *words[:-2])  # trained again


@pytest.mark.usefixtures("reader")
def test_gc_keeps_weights_in_use(entry, capsys):
    words = ("store", "gc", "--keep-older", "--store", entry.parents[1], "--keep-checkpoints", "none", "--yes")
    assert "  in use: kept\nremoved 0 bytes\n" in run(capsys, *words)
    assert damage(entry) is None
