"""Locks: one process at a time, waiting that says so, and marks on what is used that end with their process."""

import fcntl
import os
import signal
import socket

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
    """Another process that holds the lock, or has marked the folder, until it is killed."""
    process = started(HOLDS.format(call=request.param), PLACE=str(tmp_path / "x"))
    assert process.stdout.readline() == "begun\n"
    yield process
    process.kill()
    process.communicate()


HOLDING = pytest.mark.parametrize("holder", ["held(Path(os.environ['PLACE']), 'x')"], indirect=True)
USING = pytest.mark.parametrize("holder", ["in_use(Path(os.environ['PLACE']).parent)"], indirect=True)


@HOLDING
def test_waiting_says_for_what_and_for_which_process(holder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "FIRST", 0.05)
    monkeypatch.setattr(locks, "AGAIN", 0.05)
    said = []

    def told(text, **_stream):
        said.append(text)
        if len(said) == 2:
            os.kill(holder.pid, signal.SIGKILL)

    monkeypatch.setattr(locks, "print", told, raising=False)
    with held(tmp_path / "x", "the checkpoint y"):
        pass
    line = f"bertsecrets: waiting for the checkpoint y, which process {holder.pid} on host {socket.gethostname()} holds"
    assert said[:2] == [line, line]


@HOLDING
def test_waiting_ends_at_once_with_an_interrupt(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "FIRST", 0.05)

    def interrupt(*_text, **_stream):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(locks, "print", interrupt, raising=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in a job in the background it is ignored
    try:
        with pytest.raises(KeyboardInterrupt), held(tmp_path / "x", "y"):
            pytest.fail("the lock is another's")
    finally:
        signal.signal(signal.SIGINT, before)
    assert holder.poll() is None


@HOLDING
def test_a_lock_that_is_taken_is_not_waited_for_when_not_wanted(holder, tmp_path):
    with held_now(tmp_path / "x") as got:
        assert not got
    holder.kill()
    holder.wait()
    with held_now(tmp_path / "x") as got:
        assert got


@pytest.mark.parametrize("content", [b"", b"\xff", b"process 1\x1b[31m", b"years of work"])
def test_a_lock_file_that_says_nothing_sensible_is_another_process(tmp_path, monkeypatch, content):
    (tmp_path / "x").write_bytes(content)
    said = []
    with (tmp_path / "x").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def told(text, **_stream):
            said.append(text)
            fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr(locks, "FIRST", 0.05)
        monkeypatch.setattr(locks, "print", told, raising=False)
        with held(tmp_path / "x", "y"):
            pass
    assert said == ["bertsecrets: waiting for y, which another process holds"]


@USING
def test_what_a_process_uses_is_unused_once_it_is_killed(holder, tmp_path):
    with unused(tmp_path) as free:
        assert not free
    with in_use(tmp_path) as there:  # several may use it
        assert there
    holder.kill()
    holder.wait()
    with unused(tmp_path) as free:
        assert free


def test_what_is_gone_is_neither_used_nor_unused(tmp_path):
    with in_use(tmp_path / "none") as there, unused(tmp_path / "none") as free:
        assert not there
        assert not free
