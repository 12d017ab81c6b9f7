"""A specification curve as a table and as a figure: every combination of choices, the least value first."""

from collections.abc import Sequence

import numpy as np

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.claims.quantities import QUANTITIES
from bertsecrets.claims.specifications import CHOICES, Curve, Specification
from bertsecrets.extras import from_extra
from bertsecrets.report.text import MARKS

COLOURS = {"reproduced": "#4477aa", "deviates": "#ee6677"}  # safe for the colour-blind; grey for all else


def curve_table(curve: Curve) -> str:
    """Return a curve as text: its specifications, the share in which the claim holds, and the medians by choice."""
    from tabulate import tabulate

    names = list(curve.specifications[0].ways)
    rows = [
        [*(one.ways[name].name for name in names), format_number(one.verdict.observed),
         format_interval(one.verdict.interval), one.verdict.outcome]
        for one in _ordered(curve)
    ]  # fmt: skip
    table = tabulate(rows, [*names, "observed", "interval", "verdict"], tablefmt="simple", disable_numparse=True)
    return "\n".join([f"{curve.case}: {curve.case.claim.statement}", table, *curve_lines(curve)])


def curve_lines(curve: Curve) -> list[str]:
    """Return, in a few lines, how often a claim holds, the median by choice, and the choices without effect."""
    count = len(curve.specifications)
    share = f"reproduced in {100 * curve.share_holds:.0f} %, of its sign in {100 * curve.share_agrees:.0f} %"
    lines = [f"{curve.case}: {share} of {count} specification{'' if count == 1 else 's'}"]
    for name, medians in curve.medians().items():
        ways = ", ".join(f"{way} {format_number(median)}" for way, median in medians.items())
        lines.append(f"  {name} ({CHOICES[name].question}): median {ways}")
    if curve.idle:
        lines.append(f"  without effect on this task: {', '.join(curve.idle)}")
    return lines


def _ordered(curve: Curve) -> Sequence[Specification]:
    return sorted(curve.specifications, key=lambda one: np.nan_to_num(one.verdict.observed or 0.0))


def draw_curve(curve: Curve) -> str:
    """Return a curve as SVG text: values with their intervals, and below which choices were made in the other way."""
    with from_extra("matplotlib"):
        from bertsecrets.report.figures import Figure, svg

    ordered, names = _ordered(curve), list(curve.specifications[0].ways)
    figure = Figure(figsize=(3 + 0.14 * len(ordered), 2.6 + 0.22 * len(names)), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, max(1, 0.35 * len(names))])
    for place, one in enumerate(ordered):
        colour = COLOURS.get(one.verdict.outcome, "#888888")
        if one.verdict.interval is not None:
            above.plot([place, place], one.verdict.interval, color=colour, linewidth=1)
        if one.verdict.observed is not None:
            above.plot(place, one.verdict.observed, "o", color=colour, markersize=3)
        for row, name in enumerate(names):
            other = one.ways[name] is CHOICES[name].other
            below.plot(place, row, "s", color="#222222" if other else "#dddddd", markersize=4)
    expect = curve.case.claim.expect
    above.axhline(expect.value if expect is not None else 0, color="#222222", linewidth=0.6)
    above.set_ylabel(QUANTITIES[curve.case.claim.quantity or ""].unit)
    above.set_title(f"{curve.case}: dark squares are choices made as named", fontsize=9)
    below.set_yticks(range(len(names)), [CHOICES[name].other.name for name in names], fontsize=8)
    below.set_ylim(len(names) - 0.4, -0.6)
    below.set_xticks([])
    return svg(figure)


assert set(COLOURS) <= set(MARKS)
