"""Every row of the tables in `bad_inputs/`: one clear line, exit code 2, nothing of the user's touched."""

import importlib
import shutil
from pathlib import Path

import pytest
from bad_input import Room, told

TABLES = {
    path.stem: importlib.import_module(f"bad_inputs.{path.stem}").ROWS
    for path in sorted((Path(__file__).parent / "bad_inputs").glob("*.py"))
}


@pytest.fixture
def room(tmp_path, tiny_bert, tiny_glue):
    """A room with copies of the tiny BERT and the tiny GLUE folder."""
    model, glue = tmp_path / "model", tmp_path / "glue"
    shutil.copytree(tiny_bert, model)
    shutil.copytree(tiny_glue, glue)
    return Room(tmp_path, model, glue, tmp_path / "runs")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bad", [pytest.param(row, id=f"{name}: {row}") for name in TABLES for row in TABLES[name]])
def test_a_bad_input_is_one_line(bad, room, monkeypatch):
    assert told(bad, room, monkeypatch).startswith("bertsecrets")  # `told` asserts the rest
