"""Tables as text for a terminal, as Markdown or as HTML, for reports and commands."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

from tabulate import tabulate

Format = Literal["text", "markdown", "html"]
COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
GAP_SPACES = 2  # spaces between the columns of a text table


def table(header: Sequence[object], rows: Iterable[Sequence[object]], form: Format = "text") -> str:
    """Return a table. None makes an empty cell.

    Args:
        rows: Cells by row. Markdown cells are not escaped (use `markdown.prose`); HTML cells are escaped unless they
            are `Markup`. Text cells may contain line breaks and colours.
    """
    head, *body = clean = [[_cell(cell, form) for cell in row] for row in (header, *rows)]
    if form == "markdown":
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *body))
    if form == "html":
        columns = "".join(f'<th scope="col">{cell}</th>' for cell in head)
        lines = ["<table>", f"<thead><tr>{columns}</tr></thead><tbody>"]
        for first, *others in body:
            lines.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>')
        return "\n".join([*lines, "</tbody></table>"])
    laid_out = tabulate(clean, tablefmt="plain", disable_numparse=True, stralign="left")
    first, *rest = [line.rstrip() for line in laid_out.splitlines()]
    width = max(len(COLOUR_CODES.sub("", line)) for line in (first, *rest))
    return "\n".join([first, "─" * width, *rest])


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

        return str(escape(value)).strip()
    return str(value).replace("|", "\\|") if form == "markdown" else str(value)
