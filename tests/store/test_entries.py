"""An entry is made once, and recomputed if it is incomplete or damaged."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from calls import started
from hypothesis import given
from hypothesis import strategies as st

from bertsecrets.store.entries import DamagedEntryWarning, Key, Store, damage, read_manifest, write_json
from bertsecrets.store.files import digest, file_sha256
from bertsecrets.types import slug

KEY = Key({"task": "rte", "seed": 1}, {"code": "c", "software": {}, "device": None})


def maker(text="hello", calls=None):
    def make(folder):
        (folder / "sub").mkdir()
        (folder / "sub" / "file.txt").write_text(text)
        if calls is not None:
            calls.append(text)
        return {"fact": 1}

    return make


def test_an_entry_is_made_once_and_reused(tmp_path):
    store, calls = Store(tmp_path / "deep" / "runs"), []
    folder, reused = store.get_or_make("checkpoints", "name", KEY, maker(calls=calls))
    assert not reused
    assert store.get_or_make("checkpoints", "name", KEY, maker("other", calls)) == (folder, True)
    assert calls == ["hello"]
    manifest = read_manifest(folder)
    assert (manifest["key"], manifest["fact"]) == (KEY.as_json(), 1)
    assert manifest["files"] == {"sub/file.txt": file_sha256(folder / "sub" / "file.txt")}


def test_the_name_of_an_entry_is_computed_from_its_key_alone(tmp_path):
    store = Store(tmp_path)
    folder, _ = store.get_or_make("checkpoints", ".tiny-bert", KEY, maker())
    assert folder == tmp_path / "checkpoints" / KEY.name
    assert store.get_or_make("checkpoints", "renamed", KEY, maker("other")) == (folder, True)
    keys = [Key({"a": 1, "b": 2}, {}), Key({"a": 2}, {}), Key({"a": 1}, {"code": "c"}), Key({}, {"a": 1})]
    assert len({key.name for key in (*keys, Key({"b": 2, "a": 1}, {}))}) == len(keys)
    of_checkpoint = Key({"measure": "scores", "checkpoint": KEY.as_json()}, {})
    assert of_checkpoint.name == f"scores-rte-1-{of_checkpoint.digests}"


def test_no_folder_is_listed_to_find_an_entry(tmp_path, monkeypatch):
    store = Store(tmp_path)
    folder, _ = store.get_or_make("checkpoints", "n", KEY, maker())
    folder.parent.chmod(0o311)  # files can be opened by name, but not listed
    for name in ("listdir", "scandir"):
        listed = getattr(os, name)

        def refuse(path=".", listed=listed):
            assert Path(path) != folder.parent
            return listed(path)

        monkeypatch.setattr(os, name, refuse)
    try:
        assert store.find("checkpoints", KEY) == folder
        assert store.get_or_make("checkpoints", "n", KEY, maker()) == (folder, True)
        assert store.find("checkpoints", Key({"task": "mrpc"}, {})) is None
    finally:
        folder.parent.chmod(0o755)


def test_an_entry_under_the_name_of_another_counts_as_damaged(tmp_path):
    store = Store(tmp_path)
    other, _ = store.get_or_make("checkpoints", "name", Key({"seed": 2}, KEY.made_by), maker("other"))
    folder, _ = store.get_or_make("checkpoints", "name", KEY, maker())
    shutil.rmtree(folder)
    shutil.copytree(other, folder)
    assert damage(folder) == "a different entry has this name"
    with pytest.warns(DamagedEntryWarning, match="a different entry has this name"):
        assert store.get_or_make("checkpoints", "name", KEY, maker())[1] is False
    assert (folder / "sub" / "file.txt").read_text() == "hello"


def test_every_changed_byte_of_a_manifest_is_noticed(tmp_path):
    folder, _ = Store(tmp_path).get_or_make("checkpoints", "name", KEY, maker())
    path = folder / "manifest.json"
    whole = path.read_bytes()
    same = json.loads(whole)
    for place in range(len(whole)):
        for bit in (1, 4):
            flipped = bytearray(whole)
            flipped[place] ^= bit
            path.write_bytes(flipped)
            assert damage(folder) or json.loads(bytes(flipped)) == same


def test_finding_an_entry_writes_nothing(tmp_path):
    assert Store(tmp_path / "runs").find("checkpoints", KEY) is None
    folder, _ = Store(tmp_path).get_or_make("checkpoints", "name", KEY, maker())
    locks = sorted(tmp_path.rglob("*.lock"))
    for lock in locks:
        lock.unlink()
    assert Store(tmp_path).get_or_make("checkpoints", "name", KEY, maker()) == (folder, True)
    assert not list(tmp_path.rglob("*.lock"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "sub" / "file.txt").write_text("hello!"), "sub/file.txt has changed"),
        (lambda folder: (folder / "sub" / "file.txt").unlink(), "sub/file.txt is missing"),
        (lambda folder: (folder / "special_tokens_map.json").write_text("{}"), r"special_tokens_map\.json was added"),
        (lambda folder: (folder / "manifest.json").unlink(), r"cannot read .*manifest\.json: No such file"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "is not valid JSON"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), r"manifest\.json of .* has changed"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest"),
    ],
)
def test_a_damaged_entry_is_reported_set_aside_and_made_again(tmp_path, damage, message):
    store = Store(tmp_path)
    folder, _ = store.get_or_make("checkpoints", "name", KEY, maker())
    damage(folder)
    with pytest.warns(DamagedEntryWarning, match=message) as caught:
        again, reused = store.get_or_make("checkpoints", "name", KEY, maker())
    assert str(folder) in str(caught[0].message)
    assert "delete the folder" not in str(caught[0].message)  # since the store replaces it
    assert (again, reused) == (folder, False)
    assert (folder / "sub" / "file.txt").read_text() == "hello"
    assert folder.with_name(f"{folder.name}.damaged").is_dir()
    assert store.get_or_make("checkpoints", "name", KEY, maker())[1] is True


def test_two_processes_make_an_entry_once(tmp_path):
    code = """
        import os, time
        from pathlib import Path
        from bertsecrets.store.entries import Key, Store
        def make(folder):
            with open(os.environ["LOG"], "a") as log:
                log.write("made\\n")
            time.sleep(0.5)
            (folder / "x").write_text("x")
            return {}
        print(Store(Path(os.environ["ROOT"])).get_or_make("k", "n", Key({}, {}), make)[1])
    """
    both = [started(code, ROOT=str(tmp_path / "runs"), LOG=str(tmp_path / "log")) for _ in range(2)]
    outputs = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert outputs == ["False", "True"]
    assert (tmp_path / "log").read_text() == "made\n"


def test_json_has_null_for_nan_and_infinity(tmp_path):
    write_json(tmp_path / "x.json", {"a": [1.5, math.nan, (math.inf, -math.inf)], "b": "\u00e9"})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [1.5, None, [None, None]], "b": "\u00e9"}


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=5))
def test_equal_data_have_equal_digests(data):
    assert digest(data) == digest(dict(reversed(data.items())))
    assert digest(data) != digest({**data, "one more": 1})


@given(st.text(max_size=30))
def test_a_slug_is_a_plain_file_name(text):
    assert slug(text)
    assert "/" not in slug(text)
    assert all(c.isalnum() or c in "._-" for c in slug(text))
