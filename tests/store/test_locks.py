"""Locks exclude other processes, waiting is reported, and in-use marks end with their process."""

import errno
import fcntl
import os

import pytest
from calls import started

from bertsecrets.store import locks
from bertsecrets.store.locks import held, held_now, in_use, unused

HOLDS = """
    import os, time
    from pathlib import Path
    from bertsecrets.store.locks import held, in_use
    with {call}:
        print("begun", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def holder(request, tmp_path):
    """A subprocess that holds the lock, or marks the folder as in use, until it is killed."""
    process = started(HOLDS.format(call=request.param), PLACE=str(tmp_path / "x"))
    assert process.stdout.readline() == "begun\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("holder", ["held(Path(os.environ['PLACE']), 'x')"], indirect=True)
def test_held_now_does_not_wait(holder, tmp_path):
    with held_now(tmp_path / "x") as got:
        assert not got
    holder.kill()
    holder.wait()
    with held_now(tmp_path / "x") as got:
        assert got


@pytest.mark.parametrize("content", [b"", b"\xff", b"process 1\x1b[31m"])
def test_a_lock_file_with_foreign_content_names_no_process(tmp_path, monkeypatch, content):
    (tmp_path / "x").write_bytes(content)
    said = []
    with (tmp_path / "x").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def told(text):
            said.append(text)
            fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr(locks, "FIRST_MESSAGE_SECONDS", 0.05)
        monkeypatch.setattr(locks.log, "info", told)
        with held(tmp_path / "x", "y"):
            pass
    assert said == ["waiting for y, locked by another process"]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_a_file_system_without_locks_is_used_without_them(tmp_path, monkeypatch, code):
    def flock(handle, kind):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path / "x", "x"), in_use(tmp_path) as exists, unused(tmp_path) as deletable:
        assert (exists, deletable) == (True, False)
    monkeypatch.undo()
    with held_now(tmp_path / "x") as got:  # nothing has to be removed
        assert got


@pytest.mark.parametrize("holder", ["in_use(Path(os.environ['PLACE']).parent)"], indirect=True)
def test_a_folder_is_in_use_until_the_process_that_uses_it_ends(holder, tmp_path):
    with unused(tmp_path) as free:
        assert not free
    with in_use(tmp_path) as there:  # several processes may use it
        assert there
    holder.kill()
    holder.wait()
    with unused(tmp_path) as free:
        assert free


def test_a_missing_folder_is_neither_in_use_nor_unused(tmp_path):
    with in_use(tmp_path / "none") as there, unused(tmp_path / "none") as free:
        assert not there
        assert not free
