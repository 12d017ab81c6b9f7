"""A process killed at any file operation leaves no partial results, and the next run deletes its leftovers."""

import shutil
import socket

from calls import started
from killed import killed_at_each_operation

from bertsecrets.store import files, locks
from bertsecrets.store.entries import Key, Store, damage
from bertsecrets.store.files import copy_whole, whole_folder, write_whole


def package(folder, text):
    """Return a store entry, to be exported by `copy_whole`."""

    def make(temporary):
        (temporary / "sub").mkdir()
        (temporary / "sub" / "weights").write_text(text)
        return {"text": text}

    return Store(folder).get_or_make("k", text, Key({"text": text}, {}), make)[0]


def test_replacing_an_export_never_loses_the_old_one_before_the_new_one_is_complete(tmp_path):
    old, new = package(tmp_path / "runs", "old"), package(tmp_path / "runs", "new")
    place = tmp_path / "out" / "ck"
    copy_whole(old, place)
    seen = set()
    for _ in killed_at_each_operation(lambda: copy_whole(new, place)):
        export = place if place.exists() else place.with_name(".ck.replaced")
        assert damage(export) is None
        seen.add((export.name, (export / "sub" / "weights").read_text()))
        copy_whole(old, place)
        assert [path.name for path in place.parent.iterdir()] == ["ck"]  # leftovers are deleted
    assert seen == {("ck", "old"), (".ck.replaced", "old"), ("ck", "new")}
    assert (place / "sub" / "weights").read_text() == "new"


def test_a_killed_entry_is_complete_or_absent_and_its_leftovers_are_deleted(tmp_path):
    kind = tmp_path / "runs" / "k"
    for _ in killed_at_each_operation(lambda: package(tmp_path / "runs", "x")):
        entries = [path for path in kind.glob("[!.]*") if path.is_dir()] if kind.exists() else []
        assert [damage(entry) for entry in entries] in ([], [None])
        assert sum(path.is_dir() for path in kind.glob(".*")) <= 1 if kind.exists() else True
        for entry in entries:
            shutil.rmtree(entry)
    assert sum(path.is_dir() for path in kind.iterdir()) == 1


def test_a_waiting_process_takes_over_from_one_that_is_killed(tmp_path, monkeypatch):
    code = """
        import os, signal
        from pathlib import Path
        from bertsecrets.store.entries import Key, Store
        def make(folder):
            (folder / "half").write_text("x" * 1000)
            print("begun", flush=True)
            signal.pause()
        Store(Path(os.environ["ROOT"])).get_or_make("checkpoints", "x", Key({"text": "x"}, {}), make)
    """
    holder = started(code, ROOT=str(tmp_path))
    assert holder.stdout.readline() == "begun\n"
    said = []

    def told(text):
        said.append(text)
        if len(said) == 2:
            holder.kill()

    monkeypatch.setattr(locks, "FIRST_MESSAGE_SECONDS", 0.05)
    monkeypatch.setattr(locks, "NEXT_MESSAGE_SECONDS", 0.05)
    monkeypatch.setattr(locks.log, "info", told)
    entry, existed = Store(tmp_path).get_or_make("checkpoints", "x", Key({"text": "x"}, {}), lambda _folder: {})
    holder.communicate()
    line = f"waiting for the checkpoint x, locked by process {holder.pid} on host {socket.gethostname()}"
    assert said[:2] == [line, line]
    assert not existed
    assert [path for path in entry.parent.iterdir() if path.is_dir()] == [entry]


def test_a_killed_write_leaves_the_old_or_the_new_file(tmp_path):
    file = tmp_path / "x.json"
    file.write_text("old")
    for _ in killed_at_each_operation(lambda: write_whole(file, "new")):
        assert file.read_text() in ("old", "new")
        write_whole(file, "old")
        assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert file.read_text() == "new"


def test_temporary_files_of_running_processes_are_not_deleted(tmp_path):
    with whole_folder(tmp_path / "a") as first:
        (first / "x").write_text("first")
        with whole_folder(tmp_path / "a", replace=True) as second:
            (second / "x").write_text("second")
        write_whole(tmp_path / "a.json", "x")
        assert (first / "x").read_text() == "first"
        shutil.rmtree(tmp_path / "a")
    assert (tmp_path / "a" / "x").read_text() == "first"


def test_hidden_files_of_the_user_are_not_deleted(tmp_path):
    mine = [tmp_path / name for name in (".x.settings", ".x.notes.tmp", ".x.tmp", ".xy.abcdefgh.tmp", "x.abcdefgh.tmp")]
    for path in mine:
        path.write_text("mine")
    write_whole(tmp_path / "x", "text")
    assert all(path.read_text() == "mine" for path in mine)


def test_an_export_is_synced_before_it_gets_its_name(tmp_path, monkeypatch):
    source, place = package(tmp_path / "runs", "x"), tmp_path / "out" / "ck"
    synced = []
    monkeypatch.setattr(files, "_sync", lambda path: synced.append((path.name, place.exists())))
    copy_whole(source, place)
    before = [name for name, there in synced if not there]
    assert {"weights", "sub", "manifest.json"} < set(before)
    assert before[-1].startswith(".ck.")  # the folder itself
    assert synced[-1] == ("out", True)
