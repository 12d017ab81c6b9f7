"""The report as one HTML page that needs nothing beside it: verdicts, figures, provenance."""

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, select_autoescape

from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.drawings import draw
from bertsecrets.report.text import count_line, task_title, verdict_row
from bertsecrets.types import Measurement


def page(verdicts: Sequence[Verdict], model: str) -> str:
    """The whole page."""
    environment = Environment(loader=PackageLoader("bertsecrets.report"), autoescape=select_autoescape(default=True))
    measurements = unique([found for verdict in verdicts for found in verdict.measurements])
    return environment.get_template("page.html").render(
        model=model,
        counts=count_line(verdicts),
        rows=[(verdict_row(verdict), verdict) for verdict in verdicts],
        figures=[drawn for found in measurements for drawn in draw(found)],
        measurements=measurements,
        task_title=task_title,
    )


def unique(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Each measurement once, in order."""
    seen: dict[str, Measurement] = {}
    for found in measurements:
        seen.setdefault(f"{found.measure} {found.subject} {sorted(found.options.items())}", found)
    return list(seen.values())
