"""A specification curve as a table and a chart, with all combinations of choices ordered by observed value."""

from collections.abc import Sequence

import numpy as np

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.expectations import Figure
from bertsecrets.errors import from_extra
from bertsecrets.report.tables import table
from instruments.specifications import CHOICES, Curve, Specification

# Colour-blind readers can distinguish these colours.
COLOURS = {"reproduced": "#4477aa", "compatible": "#66ccee", "deviates": "#ee6677"}
OTHER_COLOUR = "#888888"


def curve_table(curve: Curve) -> str:
    """Return a curve as text, with a table of its specifications followed by `curve_lines`."""
    names = list(curve.specifications[0].combination)
    rows = [
        [*each.ways.values(), format_number(each.verdict.observed), format_interval(each.verdict.interval),
         each.verdict.status]
        for each in _ordered(curve)
    ]  # fmt: skip
    shown = table([*names, "observed", "interval", "verdict"], rows)
    return "\n".join([f"{curve.case}: {curve.case.claim.statement}", shown, *curve_lines(curve)])


def curve_lines(curve: Curve) -> list[str]:
    """Return lines with the fraction of combinations under which a claim holds, medians by choice, and idle choices."""
    count = len(curve.specifications)
    passes = curve.case.claim.expect.passes
    share = f"{passes} in {100 * curve.share_holds:.0f} %, same sign in {100 * curve.share_agrees:.0f} %"
    lines = [f"{curve.case}: {share} of {count} specification{'' if count == 1 else 's'}"]
    for name, medians in curve.medians().items():
        ways = ", ".join(f"{way} {format_number(median)}" for way, median in medians.items())
        lines.append(f"  {name} ({CHOICES[name].question}): median {ways}")
    if curve.idle:
        lines.append(f"  without effect on this task: {', '.join(curve.idle)}")
    return lines


def _ordered(curve: Curve) -> Sequence[Specification]:
    return sorted(curve.specifications, key=lambda each: np.nan_to_num(each.verdict.observed or 0.0))


def draw_curve(curve: Curve) -> str:
    """Return a curve as SVG text, with values and intervals in the upper panel and alternatives in the lower."""
    with from_extra("altair"):
        import altair as alt

        from bertsecrets.report.charts import INK, as_spec, rounded, svg

    unit, expect = curve.case.unit, curve.case.claim.expect
    threshold = curve.case.figure.published if isinstance(expect, Figure) else expect.value
    nothing = float("nan")
    points, choices = [], []
    for place, each in enumerate(_ordered(curve)):
        verdict = each.verdict
        low, high = verdict.interval or (nothing, nothing)
        points.append(
            {
                "place": place,
                "value": rounded(nothing if verdict.observed is None else verdict.observed),
                "low": rounded(low),
                "high": rounded(high),
                "colour": COLOURS.get(verdict.status, OTHER_COLOUR),
            }
        )
        choices += [
            {"place": place, "choice": CHOICES[name].other, "opacity": 1.0 if alternative else 0.12}
            for name, alternative in each.combination.items()
        ]
    x = alt.X("place:O", axis=None)
    base = alt.Chart(alt.InlineData(values=points)).encode(x=x, color=alt.Color("colour:N", scale=None))
    limit = alt.Chart(alt.InlineData(values=[{}])).mark_rule(opacity=0.6)
    above = alt.layer(
        limit.encode(y=alt.datum(threshold)),
        base.mark_rule().encode(y=alt.Y("low:Q", title=unit), y2="high:Q"),
        base.mark_circle(size=24, opacity=1).encode(y="value:Q"),
    ).properties(width=alt.Step(11), height=190, title=f"{curve.case}: dark squares mark the named alternatives")
    below = (
        alt.Chart(alt.InlineData(values=choices))
        .mark_square(size=50, color=INK)
        .encode(x=x, y=alt.Y("choice:N", title=None, sort=None), opacity=alt.Opacity("opacity:Q", scale=None))
        .properties(width=alt.Step(11), height=alt.Step(15))
    )
    return svg(as_spec(alt.vconcat(above, below, spacing=8)))
