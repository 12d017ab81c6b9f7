"""`bertsecrets lab specifications`: a claim over all combinations of choices, measured once, drawn and kept."""

import json
import xml.etree.ElementTree as ET

import pytest
from calls import run, told

from bertsecrets.caches import MeasurementCache

pytestmark = pytest.mark.usefixtures("quick")
FEW = ("lab", "specifications", "--task", "rte", "--claim", "C1", "E1", "--choices", "padding,casing")


def test_a_run_says_how_often_claims_hold_and_what_each_choice_changes(capsys, shared, tmp_path):
    out = run(capsys, *FEW, *shared, "--json", tmp_path / "curves.json", "--figures", tmp_path / "drawn")
    curves = {curve["id"]: curve for curve in json.loads((tmp_path / "curves.json").read_text())}
    assert {name: curve["specifications"] for name, curve in curves.items()} == {"C1-rte": 4, "E1-rte": 2}
    assert "E1-rte: reproduced in 0 %, of its sign in " in out
    assert "casing (how the uncased model's inputs are written): median lower" in out
    drawn = ET.parse(tmp_path / "drawn" / "C1-rte.svg").getroot()
    assert drawn.tag.endswith("svg")
    assert len(list(drawn.iter())) > 20


def test_what_is_in_the_store_is_not_measured_again(capsys, shared, monkeypatch):
    first = run(capsys, *FEW, *shared)
    monkeypatch.setattr(MeasurementCache, "_made", None)
    assert run(capsys, *FEW, *shared) == first


def test_bad_input_is_told_in_one_line(capsys, shared):
    assert "unknown choice 'pading'" in told(capsys, *FEW[:-1], "pading", *shared)
    assert "unknown claim 'C99'" in told(capsys, "lab", "specifications", "--task", "rte", "--claim", "C99", *shared)
    assert "unknown task 'rtee'" in told(capsys, "lab", "specifications", "--task", "rtee", *shared)
