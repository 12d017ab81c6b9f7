"""Reports of verdicts: tables for a terminal, Markdown, JSON, an HTML page with figures, and notebooks."""

from typing import Any

from bertsecrets.errors import UserError
from bertsecrets.types import Measurement, as_chart, as_html


def show_in_notebooks() -> None:
    """Register how notebooks show measurements and verdicts."""
    from bertsecrets.claims.verdict import Verdict

    @as_html.register(Measurement)
    def _(shown: Measurement) -> str:
        from bertsecrets.report.html import measurement_part

        return measurement_part(shown)

    @as_html.register(Verdict)
    def _(shown: Verdict) -> str:
        from bertsecrets.report.html import verdict_part

        return verdict_part(shown)

    @as_chart.register(Measurement)
    def _(shown: Measurement) -> Any:
        from bertsecrets.report.charts import as_altair
        from bertsecrets.report.replicas import figures_of
        from bertsecrets.settings import load_settings

        charts = figures_of(shown, load_settings().judge)
        if not charts:
            raise UserError(f"the measure {shown.measure} has no figure")
        return as_altair(charts[0])

    @as_chart.register(Verdict)
    def _(shown: Verdict) -> Any:
        if not shown.measurements:
            raise UserError(f"the verdict on {shown.case} has no measurement")
        return as_chart(shown.measurements[0])
