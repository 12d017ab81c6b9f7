"""Files and folders are written atomically, the user's files are never lost, and failures give one line."""

import errno
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bertsecrets.errors import UserError
from bertsecrets.store.entries import Key, Store
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


def test_a_copy_replaces_an_earlier_copy_but_never_a_folder_of_the_user(tmp_path):
    copy_whole(entry(tmp_path), tmp_path / "copy")
    copy_whole(entry(tmp_path), tmp_path / "copy")
    assert (tmp_path / "copy" / "weights").read_text() == "w"
    (tmp_path / "copy" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"copy contains other files \(thesis.txt\).*choose a new folder"):
        copy_whole(entry(tmp_path), tmp_path / "copy")
    assert (tmp_path / "copy" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    copy_whole(entry(tmp_path), tmp_path / "empty")
    assert (tmp_path / "empty" / "manifest.json").is_file()


def entry(tmp_path):
    def make(folder):
        (folder / "weights").write_text("w")
        return {}

    return Store(tmp_path / "runs").get_or_make("k", "n", Key({}, {}), make)[0]


@pytest.mark.parametrize("manifest", ["{}", "[]", "{", '{"files": 3}', '{"files": ["manifest.json"]}'])
def test_a_foreign_manifest_does_not_make_a_folder_replaceable(tmp_path, manifest):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.json").write_text(manifest)
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="contains other files"):
        copy_whole(entry(tmp_path), mine)
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
    for refuse in (check_free, partial(copy_whole, entry(tmp_path))):
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
