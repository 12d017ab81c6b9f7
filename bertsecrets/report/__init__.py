"""Reports of verdicts: tables for a terminal, Markdown, JSON, an HTML page with figures, and notebooks."""

from bertsecrets.types import Measurement, as_html


def show_in_notebooks() -> None:
    """Make `_repr_html_` of measurements and verdicts show their figures."""
    from bertsecrets.claims.verdict import Verdict

    @as_html.register(Measurement)
    def _(shown: Measurement) -> str:
        from bertsecrets.report.html import measurement_part

        return measurement_part(shown)

    @as_html.register(Verdict)
    def _(shown: Verdict) -> str:
        from bertsecrets.report.html import verdict_part

        return verdict_part(shown)
