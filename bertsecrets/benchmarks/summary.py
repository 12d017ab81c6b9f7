"""What a run of the benchmarks says of its verdicts: the table on the terminal, and the properties in JUnit's XML."""

from math import inf
from typing import Any

import pytest

from bertsecrets.benchmarks.exit_code import OUTCOME
from bertsecrets.benchmarks.stash import VERDICTS
from bertsecrets.formats import ERROR, Ends, VerdictData
from bertsecrets.settings import load_settings


def junit_properties(verdict: VerdictData) -> list[tuple[str, object]]:
    """Return what JUnit's XML says of a verdict; what it does not have is left out."""
    facts = {
        OUTCOME: verdict.verdict or ERROR,
        "observed": verdict.observed,
        "interval": _ends(verdict.interval),
        "band": _ends(verdict.band),
        "unit": verdict.unit,
        "published": verdict.published,
        "model": " ".join(verdict.models),
        "seeds": " ".join(map(str, verdict.seeds)),
        "known_deviation": "yes" if verdict.known_deviation else None,
        "reason": verdict.reason,
    }
    return [(name, fact) for name, fact in facts.items() if fact not in (None, "")]


def _ends(ends: Ends | None) -> str | None:
    """Return the ends of an interval as `low high`; an open one as -inf or inf."""
    return f"{-inf if ends[0] is None else ends[0]} {inf if ends[1] is None else ends[1]}" if ends else None


def print_verdicts(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the verdict table, and what the verdicts say together."""
    from bertsecrets.report.tables import fold
    from bertsecrets.report.terminal import NARROWEST, Screen, verdict_table
    from bertsecrets.report.text import run_lines

    verdicts = config.stash[VERDICTS]
    terminalreporter.section("verdicts")
    width = config.get_terminal_writer().fullwidth if terminalreporter.isatty else NARROWEST
    screen = Screen(max(NARROWEST, width), terminalreporter.hasmarkup)
    terminalreporter.write_line(verdict_table(verdicts, screen, verbose=config.get_verbosity() > 0))
    for line in run_lines(verdicts, load_settings().judge.confidence):
        terminalreporter.write_line(fold(line, screen.width))
    known = [verdict for verdict in verdicts if verdict.known_deviation]
    if known:
        terminalreporter.write_line(f"known to deviate: {', '.join(str(v.case) for v in known)}")
    errors = [str(verdict.case) for verdict in verdicts if verdict.outcome is None]
    if errors:
        line = f"{len(errors)} of {len(verdicts)} claims could not be measured: {', '.join(errors)}"
        terminalreporter.write_line(line)
