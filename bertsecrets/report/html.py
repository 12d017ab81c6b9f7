"""The report as one self-contained HTML page: verdicts, figures, provenance."""

from collections.abc import Sequence

from bertsecrets.claims.units import smallest
from bertsecrets.claims.verdict import Verdict
from bertsecrets.drift.comparison import Comparison
from bertsecrets.extras import from_extra
from bertsecrets.report.drift import HEADER, headline, rows, summary_lines
from bertsecrets.report.figures import figures_of
from bertsecrets.report.json import unique
from bertsecrets.report.text import cite, count_line, outcome_in_words, run_lines, task_title, verdict_row
from bertsecrets.settings import JudgeParams
from bertsecrets.types import Measurement

with from_extra("jinja2"):
    from jinja2 import Environment, PackageLoader, select_autoescape


def page(verdicts: Sequence[Verdict], model: str, settings: JudgeParams, *, note: str = "") -> str:
    """Return the page that shows these verdicts, with the figures of their measurements.

    Args:
        model: as the user named it, for the heading.
        settings: of the intervals in the figures, and of what the verdicts say together.
        note: what is missing from the page, if it is incomplete.
    """
    measurements = unique([measurement for verdict in verdicts for measurement in verdict.measurements])
    return _render(
        "page.html",
        note=note,
        model=model,
        counts=count_line(verdicts),
        together=run_lines(verdicts, settings.confidence),
        rows=[(verdict_row(verdict), verdict) for verdict in verdicts],
        figures=[figure for measurement in measurements for figure in figures_of(measurement, settings)],
        measurements=measurements,
        task_title=task_title,
        outcome_in_words=outcome_in_words,
    )


def measurement_part(measurement: Measurement, settings: JudgeParams) -> str:
    """Return a measurement as a piece of HTML: its values, figures and provenance."""
    return _render("measurement.html", m=measurement, figures=figures_of(measurement, settings))


def verdict_part(verdict: Verdict, settings: JudgeParams) -> str:
    """Return a verdict as a piece of HTML: its row, its reason, and the figures of its measurements."""
    measurements = unique(verdict.measurements)
    figures = [figure for measurement in measurements for figure in figures_of(measurement, settings)]
    shown = {"row": verdict_row(verdict), "verdict": verdict, "figures": figures}
    return _render("verdict.html", **shown, cite=cite, outcome_in_words=outcome_in_words)


def comparison_page(comparison: Comparison) -> str:
    """Return the page that shows how far one model has drifted from another."""
    before, after = headline(comparison)
    units = dict.fromkeys(difference.unit for one in comparison.measures for difference in one.differences)
    return _render(
        "comparison.html",
        before=before,
        after=after,
        header=HEADER,
        rows=rows(comparison),
        lines=list(summary_lines(comparison)),
        drifted=comparison.drifted,
        effects=[(unit, *smallest(unit)) for unit in units],
    )


def _render(template: str, **shown) -> str:
    environment = Environment(loader=PackageLoader("bertsecrets.report"), autoescape=select_autoescape(default=True))
    return environment.get_template(template).render(**shown)
