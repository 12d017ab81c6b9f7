"""Bars are for people who watch: none in a log or where TQDM_DISABLE is set, in commands and in pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TQDM_"))}
BAR = "\N{BOX DRAWINGS HEAVY HORIZONTAL}"  # of every bar


def told(words, *, terminal: bool, **environment: str) -> str:
    """What a command writes to standard error: a terminal, or a pipe."""
    command = [sys.executable, "-m", *map(str, words)]
    given = {"cwd": ROOT, "env": CLEAN | {"PYTHONPATH": str(ROOT)} | environment}
    if not terminal:
        return subprocess.run(command, **given, capture_output=True, text=True).stderr
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 120))  # a bar takes no more than there is
    with subprocess.Popen(command, **given, stdout=subprocess.DEVNULL, stderr=theirs):
        os.close(theirs)
        said = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return said.decode()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # as Linux says that nobody writes any more
        return b""


@pytest.fixture
def options(tiny_glue, tiny_bert, tmp_path):
    """What trains, reads attention and disables heads, in a store of its own."""
    return [
        *("--model", tiny_bert, "--glue", tiny_glue, "--device", "cpu", "--offline", "--allow-unofficial-data"),
        *("--limit", "12", "--store", tmp_path / "runs"),
    ]


def test_bars_are_drawn_on_a_terminal(options, quick_params):
    words = ["bertsecrets", "report", "--task", "rte", "--claim", "G3", "--claim", "C2", *options]
    said = told(words, terminal=True, BERTSECRETS_PARAMS=str(quick_params))
    assert [title for title in ("fine-tuning", "attention of", "disabling heads") if title not in said] == []
    assert BAR in said
    assert "sets/s" in said
    assert "100%" in said


@pytest.mark.parametrize(
    ("words", "terminal"),
    [
        (("bertsecrets", "report", "--task", "rte", "--claim", "G3", "--claim", "C2"), True),
        (("bertsecrets", "report", "--task", "rte", "--claim", "G3", "--claim", "C2"), False),
        (("pytest", "benchmarks", "-k", "rte and (G3 or C2) and not C2p", "-p", "no:cacheprovider", "-s"), False),
    ],
    ids=["told not to", "piped", "pytest, piped"],
)
def test_bars_are_left_out_in_a_log_and_where_the_user_says_so(words, terminal, options, quick_params):
    off = {"TQDM_DISABLE": "1"} if terminal else {}
    said = told([*words, *options], terminal=terminal, BERTSECRETS_PARAMS=str(quick_params), **off)
    assert BAR not in said
    assert "\r" not in said.replace("\r\n", "\n")
    assert "\x1b" not in said


def test_a_calibration_draws_no_bar_against_the_users_will():
    few = ("--kind", "score figure", "--worlds", "2", "--examples", "20", "--seeds", "1", "--spread", "0.5")
    assert BAR not in told(["bertsecrets", "calibrate", *few], terminal=True, TQDM_DISABLE="1")
