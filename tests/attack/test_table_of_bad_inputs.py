"""Every bad input in `bad_inputs/` gives a one-line error and exit code 2, and leaves the user's files unchanged."""

import importlib
from pathlib import Path

import pytest
from bad_input import Room, told

TABLES = {
    path.stem: importlib.import_module(f"bad_inputs.{path.stem}").ROWS
    for path in sorted((Path(__file__).parent / "bad_inputs").glob("*.py"))
}
ROWS = [
    pytest.param(row, id=f"{name}: {row}", marks=[pytest.mark.slow] * (row.slow or row.command[0] == "instruments"))
    for name, rows in TABLES.items()
    for row in rows
]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bad", ROWS)
def test_a_bad_input_is_one_line(bad, tmp_path, tiny_bert, tiny_glue, runs, monkeypatch):
    room = Room(tmp_path, tiny_bert, tiny_glue, runs)
    told(bad, room, monkeypatch)
