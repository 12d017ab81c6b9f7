"""GLUE's files as K19's notebook reads them: a quotation mark at the beginning of a field swallows what follows."""

from dataclasses import replace

import pytest

from bertsecrets.errors import NotApplicableError
from bertsecrets.texts.glue import Source, load_folder
from bertsecrets.texts.quoting import read_quoted
from bertsecrets.texts.rows import TaskRows
from bertsecrets.texts.tasks import TASKS

HEADER = "index\tsentence1\tsentence2\tlabel"


def split_of(folder, *lines):
    """RTE's validation rows from a file with these lines."""
    (folder / "RTE").mkdir(exist_ok=True)
    (folder / "RTE" / "dev.tsv").write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return load_folder(folder, TASKS["rte"], "dev")


def test_a_quotation_mark_swallows_the_rows_up_to_the_next_one(tmp_path):
    split = split_of(
        tmp_path,
        "0\tA cat.\tA dog.\tentailment",
        '1\t"Well, he said.\tShe said.\tnot_entailment',
        "2\tA bird.\tA fish.\tentailment",
        '3\tHe said "no" twice.\tOdd" end.\tentailment',
        "4\tAn ant.\tA bee.\tnot_entailment",
    )
    quoted = read_quoted(split)
    assert quoted.sentence1[0] == "A cat."
    assert quoted.sentence1[1].startswith("Well, he said.\tShe said.")
    assert "2\tA bird." in quoted.sentence1[1]
    assert len(quoted) < len(split)
    assert len(quoted.sentence2) == len(quoted.labels) == len(quoted)


def test_quotation_marks_inside_a_field_are_text(tmp_path):
    split = split_of(tmp_path, '0\tHe said "no".\tA 3" nail.\tentailment')
    assert read_quoted(split).fingerprint == split.fingerprint


def test_a_field_that_is_quoted_whole_loses_its_marks_and_nothing_else(tmp_path):
    quoted = read_quoted(split_of(tmp_path, '0\t"A cat."\tA dog.\tentailment', "1\tAn ant.\tA bee.\tnot_entailment"))
    assert list(quoted.sentence1) == ["A cat.", "An ant."]
    assert list(quoted.labels) == ["entailment", "not_entailment"]


def test_what_was_read_from_elsewhere_cannot_be_read_so(tmp_path):
    split = replace(split_of(tmp_path, "0\tA cat.\tA dog.\tentailment"), origin="nyu-mll/glue@abc rte")
    with pytest.raises(NotApplicableError, match="give a local folder with --glue"):
        read_quoted(split)


def test_limits_count_the_rows_that_are_left(tiny_glue):
    rows = TaskRows(Source(glue=tiny_glue, allow_unofficial=True), limit=5)
    assert len(rows.split("rte", "dev", quoted=True)) == 5
