"""Reports of verdicts: tables for a terminal, Markdown, JSON, an HTML page with charts, and notebooks."""

from typing import Any

from bertsecrets.errors import UserError, check_extra
from bertsecrets.types import Measurement, as_chart, as_html


def show_in_notebooks() -> None:
    """Register the functions that show measurements and verdicts in notebooks."""
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.judging import Verdicts

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
        from bertsecrets.report.replicas import main_figure
        from bertsecrets.settings import load_settings

        chart = main_figure(shown, load_settings().judge)
        if chart is None:
            raise UserError(f"the measure {shown.measure} has no chart for these values")
        return as_altair(chart)

    @as_chart.register(Verdict)
    def _(shown: Verdict) -> Any:
        if not shown.measurements:
            raise UserError(f"the verdict on {shown.case} has no measurement")
        return as_chart(shown.measurements[0])

    @as_chart.register(Verdicts)
    def _(shown: Verdicts) -> Any:
        from bertsecrets.report.outcomes import OUTCOMES

        check_extra("report")
        import altair as alt

        from bertsecrets.report.charts import inline

        fields = {"task", "observed", "unit", "published", "reason"}
        rows = [
            {"claim": verdict.case.claim.name, "outcome": verdict.status}
            | verdict.data.model_dump(mode="json", include=fields)
            for verdict in shown
        ]
        colours = alt.Scale(domain=[*OUTCOMES], range=[look.ink[0] for look in OUTCOMES.values()])
        return inline(
            alt.Chart(alt.InlineData(values=rows), title="Outcomes")
            .mark_rect(stroke="white")
            .encode(
                x=alt.X("task:N", sort=None, title=None),
                y=alt.Y("claim:N", sort=None, title=None),
                color=alt.Color("outcome:N", scale=colours, title=None),
                tooltip=[f"{name}:N" for name in rows[0]] if rows else [],
            )
        )
