"""Files and folders are written atomically, the user's files are never lost, and failures give one line."""

import errno
import os
import resource
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from calls import started
from killed import killed_at_each_operation
from safetensors.torch import save_file

from bertsecrets.errors import UserError
from bertsecrets.store import files, locks
from bertsecrets.store.entries import Key, Store, damage
from bertsecrets.store.files import check_free, copy_whole, file_sha256, guarded_writes, whole_folder, write_whole


@contextmanager
def limited_files(size: int):
    """Fake a full disk with a limit on file sizes, so that writes fail halfway."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_gives_one_line_and_keeps_the_old_file(tmp_path):
    file = tmp_path / "result.json"
    file.write_text("old")
    with limited_files(1000), pytest.raises(UserError, match=f"^cannot write {file}: ") as error:
        write_whole(file, "x" * 100_000)
    assert "--store" not in str(error.value)  # the file is not in the store
    assert "\n" not in str(error.value)
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EISDIR, errno.EIO]
)
def test_every_disk_error_becomes_one_line_with_advice(code):
    with pytest.raises(UserError, match=r"cannot write here: .*choose another"), guarded_writes(Path("here")):
        raise OSError(code, "reason", "here")


@pytest.mark.parametrize(
    "error",
    [
        OSError("no such model"),
        ConnectionRefusedError(111, "refused"),
        BrokenPipeError(32),
        FileNotFoundError(errno.ENOENT, "No such file", "/of/another/place.txt"),
        PermissionError(errno.EACCES, "Permission denied", "/of/another/place.txt"),
    ],
)
def test_errors_about_other_places_are_raised_unchanged(error):
    with pytest.raises(type(error)), guarded_writes(Path("here")):
        raise error


def test_saving_weights_to_a_full_disk_gives_one_line(tmp_path):
    with limited_files(1000), pytest.raises(UserError, match="^cannot write.*$"), guarded_writes(Path("there")):
        save_file({"w": torch.zeros(10_000)}, tmp_path / "w.safetensors")


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    with whole_folder(tmp_path / "a") as room:
        (room / "x").write_text("x")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a" / "x").read_text() == "x"
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "b") as room:
        (room / "x").write_text(str(1 / 0))
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def package(folder, text):
    """Return a store entry, to be exported by `copy_whole`."""

    def make(temporary):
        (temporary / "sub").mkdir()
        (temporary / "sub" / "weights").write_text(text)
        return {"text": text}

    return Store(folder).get_or_make("k", text, Key({"text": text}, {}), make)[0]


def test_a_copy_replaces_an_earlier_copy_but_never_a_folder_of_the_user(tmp_path):
    copy_whole(package(tmp_path / "runs", "w"), tmp_path / "copy")
    copy_whole(package(tmp_path / "runs", "w"), tmp_path / "copy")
    assert (tmp_path / "copy" / "sub" / "weights").read_text() == "w"
    (tmp_path / "copy" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"copy contains other files \(thesis.txt\).*choose a new folder"):
        copy_whole(package(tmp_path / "runs", "w"), tmp_path / "copy")
    assert (tmp_path / "copy" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    copy_whole(package(tmp_path / "runs", "w"), tmp_path / "empty")
    assert (tmp_path / "empty" / "manifest.json").is_file()


@pytest.mark.parametrize("manifest", ["{}", "[]", "{", '{"files": 3}', '{"files": ["manifest.json"]}'])
def test_a_foreign_manifest_does_not_make_a_folder_replaceable(tmp_path, manifest):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.json").write_text(manifest)
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="contains other files"):
        copy_whole(package(tmp_path / "runs", "w"), mine)
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_a_folder_is_replaceable_only_with_exactly_the_expected_files(tmp_path):
    (tmp_path / "report.json").write_text("mine")
    with pytest.raises(UserError, match=r"contains other files \(report.json\)"):
        check_free(tmp_path, ("report.json", "weights"))
    (tmp_path / "weights").write_text("ours")
    check_free(tmp_path, ("report.json", "weights"))
    (tmp_path / "lock").touch()
    check_free(tmp_path, ("report.json", "weights"), more=("lock",))
    with pytest.raises(UserError, match=r"\(lock\)"):
        check_free(tmp_path, ("report.json", "weights"))


@pytest.mark.parametrize("name", ["file", "file/deeper", "x" * 300])
def test_a_folder_never_replaces_a_file(tmp_path, name):
    (tmp_path / "file").write_text("years of work")
    for refuse in (check_free, partial(copy_whole, package(tmp_path / "runs", "w"))):
        with pytest.raises(UserError, match="^cannot write .*: choose another location$"):
            refuse(tmp_path / name)
    assert (tmp_path / "file").read_text() == "years of work"


def test_writing_through_a_link_keeps_the_link(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("there") / "file.txt")
    for text in ("made", "replaced"):
        write_whole(link, text)
        assert link.is_symlink()
        assert (tmp_path / "there" / "file.txt").read_text() == text


def test_writing_to_a_pipe_does_not_replace_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "log"])
def test_writing_to_the_file_of_standard_output_appends_to_what_was_printed(name, tmp_path):
    (tmp_path / "log").write_text("old\n")
    imports = "from pathlib import Path; from bertsecrets.store.files import write_whole"
    code = f"{imports}; print('a'); write_whole(Path({name!r}), 'b\\n'); print('c')"
    with (tmp_path / "log").open("a") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "old\na\nb\nc\n"


@pytest.mark.parametrize("path", [Path("."), Path("x" * 300), Path("/proc/x")])
def test_an_impossible_path_gives_one_line(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^cannot write {path}: .*: choose another"):
        write_whole(path, "text")
    assert list(tmp_path.iterdir()) == []


def test_a_digest_changes_with_the_content_of_a_file(tmp_path):
    (tmp_path / "x").write_text("abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of "abc", as published in the standard
    assert file_sha256(tmp_path / "x") == known
    (tmp_path / "x").write_text("abcd")
    assert file_sha256(tmp_path / "x") != known
    with pytest.raises(UserError, match="cannot read"):
        file_sha256(tmp_path / "none")


# ---------------------------------------------------------------------- a process killed at any file operation


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


def test_a_forked_process_does_not_delete_temporary_folders():
    code = (
        "import os, sys\nfrom bertsecrets.store.files import temporary_folder\n"
        "class Owner: pass\n"
        "owner = Owner()\nfolder = temporary_folder(owner)\n"
        "if os.fork() == 0:\n    sys.exit()\n"
        "os.wait()\nprint(folder.is_dir())\ndel owner\nprint(folder.is_dir())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
