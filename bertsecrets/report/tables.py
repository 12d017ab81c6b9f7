"""Tables as text for a terminal, as Markdown or as HTML, laid out by tabulate."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from tabulate import Line, TableFormat, tabulate

Format = Literal["text", "markdown", "html"]
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
GAP_SPACES = 2  # spaces between the columns of a text table


def table(header: Sequence[object], rows: Iterable[Sequence[object]], form: Format = "text") -> str:
    """Return a table. None makes an empty cell.

    Args:
        rows: Cells by row. Markdown cells are not escaped (use `markdown.prose`); HTML cells are escaped unless they
            are `Markup`. Text cells may contain line breaks and colours.
    """
    clean = [[_cell(cell, form) for cell in row] for row in (header, *rows)]
    if form == "text":
        laid_out = tabulate(clean, tablefmt="plain", disable_numparse=True, stralign="left")
        first, *rest = [line.rstrip() for line in laid_out.splitlines()]
        width = max(len(COLOUR_CODES.sub("", line)) for line in (first, *rest))
        return "\n".join([first, "─" * width, *rest])
    return tabulate(clean[1:], clean[0], tablefmt=TABLE_FORMATS[form], disable_numparse=True, stralign=None)


def sectioned(header: Sequence[str], sections: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return a text table that is divided into sections. Each starts with a title line and ends with an empty line."""
    rows = [row for of_section in sections.values() for row in of_section]
    first, rule, *body = table(header, rows).splitlines()
    lines, rest = [first, rule], iter(body)
    for title, of_section in sections.items():
        height = sum(max(cell.count("\n") + 1 for cell in row) for row in of_section)
        lines += [title, *(next(rest) for _ in range(height)), ""]
    return "\n".join(lines).rstrip("\n")


def fold(text: str, width: int, indent: int = 2) -> str:
    """Wrap text to a given width. Continuation lines are indented."""
    wrapped = (
        textwrap.wrap(line, width, subsequent_indent=" " * indent, break_on_hyphens=False) for line in text.splitlines()
    )
    return "\n".join(line for lines in wrapped for line in lines)


def _cell(value: object, form: Format) -> str:
    if value is None:
        return ""
    if form == "html":
        from markupsafe import escape

        return str(escape(value))
    return str(value).replace("|", "\\|") if form == "markdown" else str(value)


def _markdown_row(cells: Sequence[str], *_: object) -> str:
    return f"| {' | '.join(cells)} |"


def _html_row(header: bool, cells: Sequence[str], *_: object) -> str:
    first, *others = (cell.strip() for cell in cells)
    if header:
        columns = "".join(f'<th scope="col">{cell}</th>' for cell in (first, *others))
        return f"<thead><tr>{columns}</tr></thead><tbody>"
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'


TABLE_FORMATS = {
    "markdown": TableFormat(
        None, lambda widths, _: _markdown_row(["---"] * len(widths)), None, None, _markdown_row, _markdown_row, 0, None
    ),
    "html": TableFormat(
        Line("<table>", "", "", ""), None, None, Line("</tbody></table>", "", "", ""),
        partial(_html_row, True), partial(_html_row, False), 0, None,
    ),
}  # fmt: skip
