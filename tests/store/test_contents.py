"""`bertsecrets store ls | verify | gc`."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from calls import run, told

from bertsecrets.ablation.grid import Grid
from bertsecrets.cli.store import age
from bertsecrets.measures.registry import get_measure
from bertsecrets.provenance import TRAINING_MODULE, made_by
from bertsecrets.store.contents import ABANDONED_DAYS
from bertsecrets.store.entries import Key, Store, write_manifest
from bertsecrets.store.files import whole_folder, with_digest, write_whole
from bertsecrets.store.locks import in_use

SUBJECT = {"model": "m", "task": "rte", "initialisation": "pretrained", "seed": 1}
SETS = [frozenset({(0, 0)})]


def make(folder: Path, **facts):
    (folder / "data").write_text("x" * 1000)
    return facts


def key(kind: str, code: str | None = None, **inputs) -> Key:
    """Return a key with the current code, or with `code` if given."""
    if kind == "checkpoints":
        own = made_by(TRAINING_MODULE, None)
    else:
        own, inputs = get_measure("head-ablation").made_by(None), {"measure": "head-ablation", **inputs}
    return Key(inputs, own | ({"code": code} if code else {}))


def entry(root: Path, kind: str, code: str | None = None, **inputs) -> Path:
    facts = {"subject": SUBJECT} | ({"measure": "head-ablation"} if kind == "measurements" else {})
    return Store(root).get_or_make(kind, "m-rte", key(kind, code, **inputs), lambda folder: make(folder, **facts))[0]


def grid(root: Path, code: str | None = None, **inputs) -> Path:
    of = key("measurements", code, **inputs)
    place = root / "grids" / of.name
    about = {"measure": "head-ablation", "made_by": of.made_by}
    Grid.open(place, SETS, layers=1, size=1, about=about).fill(lambda sets, _progress: np.zeros(len(sets)))
    return place


@pytest.fixture
def store(tmp_path):
    """A store with one undamaged item of every kind."""
    root = tmp_path / "runs"
    entry(root, "checkpoints")
    entry(root, "measurements")
    grid(root, unfinished=True)
    write_whole(root / "parses" / "en.json", json.dumps(with_digest({"parses": []})))
    with whole_folder(training(root) / "step-000000001") as state:
        make(state)
        write_manifest(state, {"kind": "training"})
    return root


def training(root: Path) -> Path:
    place = root / "training" / key("checkpoints", under="way").name
    place.mkdir(parents=True, exist_ok=True)
    return place


def test_ls_lists_size_age_subject_and_versions_of_every_entry(capsys, store):
    lines = run(capsys, "store", "ls", "--store", store).splitlines()
    (checkpoint,) = [line for line in lines if line.startswith("checkpoints")]
    assert "kB" in checkpoint
    assert "under a minute" in checkpoint
    assert "m-rte" in checkpoint
    assert f"code {key('checkpoints').made_by['code'][:8]}, " in checkpoint
    assert "torch " in checkpoint
    assert any(line.startswith("grids") and "head-ablation" in line for line in lines)
    assert any(line.startswith("parses: 1, ") for line in lines)
    data = json.loads(run(capsys, "store", "ls", "--json", "--store", store))
    kinds = [item["kind"] for item in data]
    assert kinds == ["checkpoints", "measurements", "grids", "training", "parses"]
    assert data[0]["subject"] == SUBJECT
    assert data[0]["bytes"] > 1000
    assert data[0]["made_by"] == key("checkpoints").made_by


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("checkpoints/*/data", "checkpoints/[!.]*"),
        ("checkpoints/*/manifest.json", "checkpoints/[!.]*"),
        ("measurements/*/data", "measurements/[!.]*"),
        ("grids/*/grid.json", "grids/*/grid.json"),
        ("grids/*/portion-0000/predicted.npz", "grids/*/portion-0000"),
        ("training/*/*/data", "training/*/*"),
        ("parses/*.json", "parses/*.json"),
    ],
)
def test_verify_names_every_kind_of_damage_with_exit_code_2(capsys, store, pattern, named):
    (file,) = store.glob(pattern)
    content = file.read_bytes()
    for place in (0, len(content) // 2, len(content) - 3):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.MonkeyPatch.context() as patch:
            said: list[str] = []
            patch.setattr("bertsecrets.cli.store.print", said.append, raising=False)
            line = told(capsys, "store", "verify", "--store", store)
        (path,) = store.glob(named)
        assert [text.partition(": ")[0] for text in said] == [str(path)]
        assert f"1 of 6 items damaged in {store}" in line


def test_a_missing_store_gives_one_line(capsys, tmp_path):
    for action in ("ls", "verify", "gc"):
        assert f"no store at {tmp_path / 'none'}" in told(capsys, "store", action, "--store", tmp_path / "none")


def unlocked(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if not path.name.endswith(".lock")}


def unneeded(root: Path) -> dict[str, Path]:
    """Add one item of every kind that `gc` deletes, and return them by the reason that it states."""
    of_older = entry(root, "checkpoints", code="other")
    damaged = Path(shutil.copytree(of_older, of_older.with_name(of_older.name + ".damaged")))
    killed = [
        root / "checkpoints" / ".m-rte.abcdefgh.tmp",
        root / "measurements" / ".m-rte.replaced",
        grid(root, unfinished=True) / ".portion-0000.abcdefgh.tmp",
    ]
    for place in killed:
        place.mkdir()
        make(place)
    half = root / "parses" / ".en.json.abcdefgh.tmp"
    half.write_text("x")
    old_state = root / "training" / key("checkpoints", left="long ago").name
    old_state.mkdir()
    os.utime(old_state, times=((datetime.now() - timedelta(days=ABANDONED_DAYS + 1)).timestamp(),) * 2)
    done_state = root / "training" / key("checkpoints").name
    done_state.mkdir()
    return {
        "made by other code": of_older,
        "its checkpoint was made by other code": entry(
            root, "measurements", checkpoint=key("checkpoints", code="other").as_json()
        ),
        "a damaged entry that was recreated": damaged,
        **{f"left behind by a killed process{' ' * place}": path for place, path in enumerate([*killed, half])},
        "parts of a finished measurement": grid(root),
        "made by other code ": grid(root, code="other"),
        f"the state of a training run interrupted {ABANDONED_DAYS + 1} days ago": old_state,
        "the state of a finished training run": done_state,
    }


def test_gc_lists_with_reasons_and_deletes_only_with_yes(capsys, store):
    needed = unlocked(store)
    places = unneeded(store)
    said = run(capsys, "store", "gc", "--store", store).splitlines()
    listed = dict(line.rpartition(" (")[::2] for line in said[:-1])
    assert {Path(path): reason.partition("): ")[2] for path, reason in listed.items()} == {
        place: reason.strip() for reason, place in places.items()
    }
    assert said[-1].endswith(f"can be removed: bertsecrets store gc --store {store} --yes")
    assert all(place.exists() for place in places.values())
    assert "removed " in run(capsys, "store", "gc", "--yes", "--store", store)
    assert unlocked(store) == needed


def test_gc_keeps_outdated_entries_with_keep_older(capsys, store):
    places = unneeded(store)
    run(capsys, "store", "gc", "--yes", "--keep-older", "--store", store)
    assert [reason.strip() for reason, place in places.items() if place.exists()] == [
        "made by other code",
        "its checkpoint was made by other code",
        "made by other code",
    ]


def test_gc_deletes_checkpoints_if_none_are_kept(capsys, store):
    words = ("store", "gc", "--store", store, "--keep-checkpoints", "none")
    (checkpoint,) = (store / "checkpoints").glob("[!.]*")
    listed, last = run(capsys, *words).splitlines()
    assert listed.startswith(f"{checkpoint} (")
    assert listed.endswith("): will be retrained if a new measurement needs it")
    assert last.endswith("--keep-checkpoints none --yes")
    with in_use(checkpoint):
        assert "  in use: kept\nremoved 0 bytes\n" in run(capsys, *words, "--yes")
    assert "removed " in run(capsys, *words, "--yes")
    assert not checkpoint.exists()
    assert run(capsys, *words) == "nothing to remove\n"
    assert run(capsys, "store", "verify", "--store", store).endswith("5 checked, none damaged\n")


def test_a_folder_that_cannot_be_listed_is_reported(capsys, store, monkeypatch):
    listdir = os.listdir

    def refuse(path="."):
        if Path(path) == store / "measurements":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    for action in ("ls", "verify", "gc"):
        line = told(capsys, "store", action, "--store", store)
        assert f"cannot list {store / 'measurements'}: Permission denied" in line


def test_gc_keeps_entries_in_use_by_another_process(capsys, store):
    older = entry(store, "checkpoints", code="other")
    with (
        in_use(older),
        whole_folder(store / "checkpoints" / "another") as temporary,
    ):
        said = run(capsys, "store", "gc", "--yes", "--store", store)
        assert temporary.exists()
        assert str(temporary) not in said
        assert older.exists()
        assert "in use: kept" in said
    run(capsys, "store", "gc", "--yes", "--store", store)
    assert not older.exists()


def test_ages_are_readable():
    now = datetime.now(UTC)
    ages = [age(now - timedelta(seconds=seconds)) for seconds in (-5, 59, 61, 7300, 86401, 900_000)]
    assert ages == ["under a minute", "under a minute", "1 minute", "2 hours", "1 day", "10 days"]
