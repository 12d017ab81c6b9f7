"""Progress bars appear only on terminals, unless TQDM_DISABLE is set; `test_benchmarks.py` has a run of pytest."""

import io
import sys

import pytest

from bertsecrets.cli.main import main

BAR = "\N{BOX DRAWINGS HEAVY HORIZONTAL}"  # part of every bar
REPORT = ("report", "--task", "rte", "--claim", "G3", "--claim", "C2")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_bars_are_drawn_on_a_terminal_but_not_in_a_log(shared, quick, tmp_path, monkeypatch, stream):
    """With a new store, the run has to train, read attention and disable heads."""
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")  # bars fit into the terminal
    monkeypatch.setattr(sys, "stderr", stream())
    main([*REPORT, *shared, "--limit", "12", "--store", str(tmp_path / "runs")])
    said = sys.stderr.getvalue()
    titles = ("fine-tuning", "attention of", "disabling heads", "sets/s", "100%", BAR, "\x1b", "\r")
    assert {text in said for text in titles} == {stream is Terminal}
