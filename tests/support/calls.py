"""Run commands in this process as a user would, and code in a subprocess.

The word `instruments` in front of a command stands for `python -m instruments`, no word for `bertsecrets`.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from bertsecrets.cli.main import main

PROGRAMS = ("bertsecrets", "python -m instruments")  # with which messages begin


def command(words: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    if words and words[0] == "instruments":
        from instruments.__main__ import main as instruments_main

        return instruments_main(list(words[1:]))
    return main(list(words))


def told(capsys, *arguments) -> str:
    """Run a command that must fail with exit code 2 and a one-line error, and return the line."""
    try:
        code = command([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2, captured
    lines = [line for line in captured.err.splitlines() if not line.startswith(("fine-tuning", "attention of"))]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith(PROGRAMS)
    return lines[0]


def run(capsys, *arguments, code: int = 0) -> str:
    assert command([str(a) for a in arguments]) == code
    return capsys.readouterr().out


def started(code: str, **environment: str) -> subprocess.Popen[str]:
    """Start a Python subprocess that runs the code and can import the suite."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
