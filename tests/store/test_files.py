"""Files and folders appear whole or not at all, and nothing of the user's is lost; what fails is one line."""

import errno
import os
import resource
import tempfile
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
    """Let no file grow beyond a size, which stands in for a full disk: writing fails half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_line_and_keeps_the_old_file(tmp_path):
    file = tmp_path / "result.json"
    file.write_text("old")
    with limited_files(1000), pytest.raises(UserError, match=f"^cannot write {file}: ") as error:
        write_whole(file, "x" * 100_000)
    assert "--store" not in str(error.value)  # which is not where it was to go
    assert "\n" not in str(error.value)
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EISDIR])
def test_each_way_a_disk_fails_has_its_line(code):
    with pytest.raises(UserError, match=r"cannot write here: .*name another"), guarded_writes(Path("here")):
        raise OSError(code, "reason", "here")


def test_a_copy_on_a_full_disk_is_one_line_and_keeps_the_old_copy(tmp_path):
    """`copytree` collects what fails in an error of its own."""
    for name, content in (("source", "x" * 100_000), ("copy", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(content)
    line = f"^cannot write {tmp_path / 'copy'}: the file would be larger than.*$"
    with limited_files(1000), pytest.raises(UserError, match=line):
        copy_whole(tmp_path / "source", tmp_path / "copy", ("weights",))
    assert (tmp_path / "copy" / "weights").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "source"]


def test_any_other_error_of_the_system_is_told_in_its_words():
    with pytest.raises(UserError, match="^cannot write here: odd: name another place$"), guarded_writes(Path("here")):
        raise OSError(errno.EIO, "odd")


@pytest.mark.parametrize(
    "error",
    [
        OSError("no such model"),
        ConnectionRefusedError(111, "refused"),
        BrokenPipeError(32),
        FileNotFoundError(errno.ENOENT, "No such file", "/of/another/place.txt"),
    ],
)
def test_errors_of_no_place_are_not_dressed_up(error):
    with pytest.raises(type(error)), guarded_writes(Path("here")):
        raise error


def test_weights_on_a_full_disk_are_one_line_too(tmp_path):
    """safetensors has an error class of its own for it."""
    with limited_files(1000), pytest.raises(UserError, match="^cannot write.*$"), guarded_writes(Path("there")):
        save_file({"w": torch.zeros(10_000)}, tmp_path / "w.safetensors")


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with whole_folder(tmp_path / "a") as room:
        (room / "x").write_text("x")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a" / "x").read_text() == "x"
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "b") as room:
        (room / "x").write_text(str(1 / 0))
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_copy_replaces_an_earlier_one_of_ours_but_never_a_users_folder(tmp_path):
    copy_whole(entry(tmp_path), tmp_path / "copy")
    copy_whole(entry(tmp_path), tmp_path / "copy")
    assert (tmp_path / "copy" / "weights").read_text() == "w"
    (tmp_path / "copy" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"copy holds other files \(thesis.txt\).*name a new folder"):
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
def test_a_users_manifest_does_not_make_a_folder_ours(tmp_path, manifest):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.json").write_text(manifest)
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="holds other files"):
        copy_whole(entry(tmp_path), mine)
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_a_folder_is_ours_only_with_all_of_its_files(tmp_path):
    (tmp_path / "report.json").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files \(report.json\)"):
        check_free(tmp_path, ("report.json", "weights"))
    (tmp_path / "weights").write_text("ours")
    check_free(tmp_path, ("report.json", "weights"))
    (tmp_path / "lock").touch()
    check_free(tmp_path, ("report.json", "weights"), more=("lock",))
    with pytest.raises(UserError, match=r"\(lock\)"):
        check_free(tmp_path, ("report.json", "weights"))


@pytest.mark.parametrize("name", ["file", "file/deeper", "x" * 300])
def test_a_file_is_never_replaced_by_a_folder(tmp_path, name):
    (tmp_path / "file").write_text("years of work")
    for refuse in (check_free, partial(copy_whole, entry(tmp_path))):
        with pytest.raises(UserError, match="^cannot write .*: name another place$"):
            refuse(tmp_path / name)
    assert (tmp_path / "file").read_text() == "years of work"


def test_a_copy_is_open_to_others_though_its_source_is_not(tmp_path):
    source = Path(tempfile.mkdtemp(dir=tmp_path))
    copy_whole(source, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o755


def test_text_is_replaced_whole(tmp_path):
    write_whole(tmp_path / "new" / "file.txt", "one")
    write_whole(tmp_path / "new" / "file.txt", "two \u00e9")
    assert (tmp_path / "new" / "file.txt").read_text(encoding="utf-8") == "two \u00e9"
    assert (tmp_path / "new" / "file.txt").stat().st_mode & 0o777 == 0o644


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(Path("there") / "file.txt")
    for text in ("made", "replaced"):
        write_whole(link, text)
        assert link.is_symlink()
        assert (tmp_path / "there" / "file.txt").read_text() == text


def test_a_pipe_is_written_into_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("path", [Path("."), Path("x" * 300), Path("/proc/x")])
def test_a_place_where_no_file_can_be_is_one_line(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^cannot write {path}: .*: name another"):
        write_whole(path, "text")
    assert list(tmp_path.iterdir()) == []


def test_a_digest_follows_a_files_content(tmp_path):
    (tmp_path / "x").write_text("abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of "abc", from the standard
    assert file_sha256(tmp_path / "x") == known
    (tmp_path / "x").write_text("abcd")
    assert file_sha256(tmp_path / "x") != known
    with pytest.raises(UserError, match="cannot read"):
        file_sha256(tmp_path / "none")
