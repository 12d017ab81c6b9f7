"""The words and the drawing of how the verdicts on a claim moved: `bertsecrets history`."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from bertsecrets.claims.band import format_interval, format_number
from bertsecrets.compare.history import Step, ends, steps
from bertsecrets.report.tables import table
from bertsecrets.report.text import task_title

WIDTH = 41  # characters of the drawing
LEGEND = "drawn: o observed, = its interval (< and > where it goes on), | an end of the band, # both"
HEADER = ("date", "commit", "seeds", "observed", "verdict")


def history_lines(series: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a series of kept verdicts (`store.verdicts`) as lines: a table with a drawing, and where it stepped."""
    first = series[0]
    limited = ", on a part of the rows" if first["limited"] else ""
    yield f"{first['id']} on {task_title(first['task'])}, {first['model']}{limited}, in {first['unit']}"
    stepped = steps(series)
    low, high = _range(series)
    rows = [
        [
            moment(one),
            commit(one),
            seed_ranges(one["seeds"]),
            _observed(one),
            _outcome(one, stepped=any(step.after is one for step in stepped)),
            drawing(one, low, high),
        ]
        for one in series
    ]
    axis = f"{format_number(low)}{format_number(high):>{WIDTH - len(format_number(low))}}"
    yield table((*HEADER, axis), rows)
    for step in stepped:
        yield step_in_words(step)


def moment(verdict: Mapping[str, Any]) -> str:
    """Return when a verdict was given first, to the minute.

    >>> moment({"made": "2026-11-02T10:00:59Z"})
    '2026-11-02 10:00'
    """
    return verdict["made"][:16].replace("T", " ")


def commit(verdict: Mapping[str, Any]) -> str:
    """Return the commit that gave a verdict in short, with `+` if files of the suite were changed; `-` if unknown."""
    return (verdict["commit"][:7] + ("+" if verdict["modified"] else "")) if verdict["commit"] else "-"


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds in short.

    >>> seed_ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    runs = [[seed for _, seed in run] for _, run in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "-"


def _outcome(verdict: Mapping[str, Any], *, stepped: bool) -> str:
    """Return an outcome, whether the observed value has stepped, and how often the very same verdict was given."""
    again = f"{verdict['times']} times, last {verdict['last'][:10]}" if verdict["times"] > 1 else ""
    return ", ".join(filter(None, (verdict["verdict"], "stepped" if stepped else "", again)))


def _observed(verdict: Mapping[str, Any]) -> str:
    interval = ends(verdict["interval"])
    return format_number(verdict["observed"]) + (f" {format_interval(interval)}" if interval else "")


def step_in_words(step: Step) -> str:
    """Return a step in one line: between which verdicts, how far, by whom, and what differed."""
    before, after = (f"{moment(one)} ({commit(one)})" for one in (step.before, step.after))
    moved = f"{format_number(step.before['observed'])} to {format_number(step.after['observed'])}"
    by_judge = "the measurements are the same, so this is the judge's doing; " if step.same else ""
    differing = ", ".join(step.differing) or "nothing that is on record differs"
    return f"stepped between {before} and {after}: {moved}; {by_judge}{differing}"


def _range(series: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the ends of the axis: all that is drawn lies between them."""
    intervals = [ends(one[name]) or () for one in series for name in ("interval", "band")]
    numbers = [one["observed"] for one in series if one["observed"] is not None]
    numbers += [end for interval in intervals for end in interval]
    finite = [number for number in numbers if math.isfinite(number)] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if low < high else (low - 1, high + 1)


def drawing(verdict: Mapping[str, Any], low: float, high: float, width: int = WIDTH) -> str:
    """Return an observed value with its interval and the ends of its band, drawn on an axis from `low` to `high`.

    >>> drawing({"observed": 5, "interval": (3, None), "band": (4, None)}, 0, 10, width=11)
    '...=#o====>'
    """

    def place(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (width - 1))

    signs = ["."] * width
    interval, band = ends(verdict["interval"]), ends(verdict["band"])
    if interval is not None:
        first, last = map(place, interval)
        signs[first : last + 1] = "=" * (last + 1 - first)
        signs[first] = "<" if interval[0] == -math.inf else "="
        signs[last] = ">" if interval[1] == math.inf else "="
    for end in band or ():
        if math.isfinite(end):
            signs[place(end)] = "|" if signs[place(end)] == "." else "#"
    if verdict["observed"] is not None:
        signs[place(verdict["observed"])] = "o"
    return "".join(signs)
