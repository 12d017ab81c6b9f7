"""Progress bars appear only on terminals, unless TQDM_DISABLE is set, on the command line and in pytest."""

import os
import sys
import threading

import pytest
from faults import pytest_benchmarks

from bertsecrets.cli.main import main

pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
BAR = "\N{BOX DRAWINGS HEAVY HORIZONTAL}"  # part of every bar
REPORT = ("report", "--task", "rte", "--claim", "G3", "--claim", "C2")


class Terminal:
    """A pseudo-terminal that is read in the background, so that writers do not block."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        termios.tcsetwinsize(self.ours, (24, 120))  # bars fit into the terminal
        self.stream = os.fdopen(theirs, "w")
        self.read: list[bytes] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self.ours, 65536):
                self.read.append(data)
        except OSError:  # on Linux, when all writers have closed it
            pass

    def said(self) -> str:
        self.stream.close()
        self.reader.join()
        os.close(self.ours)
        return b"".join(self.read).decode()


@pytest.fixture
def options(tiny_glue, tiny_bert, tmp_path):
    """Options with a new store, so that a run has to train, read attention and disable heads."""
    return [
        *("--model", tiny_bert, "--glue", tiny_glue, "--device", "cpu", "--offline", "--allow-unofficial-data"),
        *("--limit", "12", "--store", tmp_path / "runs"),
    ]


def test_bars_are_drawn_on_a_terminal(options, quick, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    main([*REPORT, *map(str, options)])
    said = terminal.said()
    assert [title for title in ("fine-tuning", "attention of", "disabling heads") if title not in said] == []
    assert BAR in said
    assert "sets/s" in said
    assert "100%" in said


def check_plain(said: str) -> None:
    assert BAR not in said
    assert "\r" not in said.replace("\r\n", "\n")
    assert "\x1b" not in said


def test_no_bar_is_drawn_in_a_log(options, quick, monkeypatch, capfd):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    main([*REPORT, *map(str, options)])
    check_plain(capfd.readouterr().err)


@pytest.mark.slow
def test_pytest_draws_no_bar_in_a_log(options, quick_params, tmp_path):
    chosen = ("-k", "rte and (G3 or C2) and not C2p", "-s", *options)
    output = tmp_path / "output"
    pytest_benchmarks(*chosen, output=output, BERTSECRETS_PARAMS=str(quick_params), TQDM_DISABLE="")
    assert "C2" in (output / "out").read_text()
    check_plain((output / "err").read_text())
