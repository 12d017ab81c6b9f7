"""The layout of every table: aligned text, escaped Markdown and HTML."""

import pytest
from markupsafe import Markup

from bertsecrets.report.markdown import bounded
from bertsecrets.report.tables import sectioned, table

GREEN = "\x1b[32m{}\x1b[0m"


def test_coloured_cells_and_cells_of_several_lines_are_aligned():
    assert table(("a", "b"), [("x\ny", GREEN.format("long")), ("1", None)]).splitlines() == [
        "a  b",
        "───────",
        f"x  {GREEN.format('long')}",
        "y",
        "1",
    ]


def test_each_section_has_its_title_and_all_its_lines():
    shown = sectioned(("a", "b"), {"First": [("x\ny", "1"), ("z", "2")], "Second": [("x", "3\n4")]})
    assert shown.splitlines()[2:] == ["First", "x  1", "y", "z  2", "", "Second", "x  3", "   4"]


@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("markdown", "| a\\|b | <c> | <b>d</b> |"),
        ("html", '<tr><th scope="row">a|b</th><td>&lt;c&gt;</td><td><b>d</b></td></tr>'),
    ],
)
def test_cells_are_escaped_except_markup(form, row):
    assert row in table(("x", "y", "z"), [("a|b", "<c>", Markup("<b>d</b>"))], form).splitlines()


def test_rows_beyond_the_limit_are_counted():
    assert bounded(("a",), [("x" * 20,)] * 3, 50).endswith(f"| {'x' * 20} |\n\nand 1 more")
