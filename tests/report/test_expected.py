"""One run in every form: details as text, tables on a terminal, the Markdown summary and the page.

The expected outputs are in `expected/`. `make expected` writes them again: read the difference before you commit it.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from measurements import SETTINGS, of_id
from reported import MODEL, verdicts
from verdicts import compatible, filed, measurement, verdict

from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.html import page
from bertsecrets.report.markdown import summary
from bertsecrets.report.terminal import Screen, verdict_line, verdict_table
from bertsecrets.report.text import annotations, count_line, describe, run_lines, verdict_row

EXPECTED = Path(__file__).parent / "expected"
FACTS = {"commit": "abc", "modified": False, "made": "2026-01-02T03:04:05Z", "incomplete": "it was <interrupted>"}
REPEATED = ("?", "✓", "✗", "⊘", "!", "Numbers", "Save SVG Save CSV", "#overview Back to the overview")
BLOCKS = "address|details|div class|dt|figcaption|h1|h2|h3|li|option|p|section|summary|tr"


def without_versions(judged: Verdict) -> Verdict:
    """Return the verdict with measurements that do not say which software made them: this differs between machines."""
    return replace(
        judged,
        measurements=tuple(replace(one, provenance=replace(one.provenance, made_by={})) for one in judged.measurements),
    )


def example() -> list[Verdict]:
    """Return verdicts of every outcome, with the longest names and numbers, remarks and known deviations."""
    half = verdict(
        "A4-rte-half", "inconclusive", 59.9, (57.5, 62.4), Grounds.INCLUDES_LIMIT(interval=(57.5, 62.4), limit=60.0)
    )
    negligible = Grounds.NEGLIGIBLE(interval=(-0.001, 0.001), side="below", limit=0.02, why="5 % of the depth")
    differs = Grounds.OUTSIDE(published=0.0, difference=52.7, low=47.7, high=57.7)
    below = Grounds.OTHER_SIDE(interval=(0.0, 0.9), side="below", limit=0.95)
    layer_7 = Grounds.NOT_APPLICABLE(message="the model has no layer 7: it has 6")
    over, tasks = (0.0, float("inf")), {"mrpc": ("deviates", 0.001, 1.0), "stsb": ("deviates", 0.04, 1.0)}
    return [
        *map(without_versions, verdicts()),
        half,
        replace(verdict("B1-all", "not applicable", reason=layer_7), measurements=()),
        verdict("D1-mrpc-untrained-f1", "deviates", 52.7, (-104.6, 104.6), differs, band=(60.0, 70.0)),
        verdict("D1-rte-untrained", "compatible", 52.7, (45.2, 60.2), interim="interim analysis 2 of at most 5"),
        compatible("D1-rte-pretrained", 64.6, -1.6, 11.0),
        verdict("E1-rte", "deviates", 0.0001, (-0.001, 0.001), negligible, provenance={}, band=over),
        verdict("E1-sst2", None, reason="the weights are damaged"),
        verdict("G1-rte-luck", "deviates", 0.72, (0.0, 0.9), below, band=(0.95, float("inf")), provenance={}),
        verdict("A3-all-across-tasks", "reproduced", 0.000123, (-0.0000804, 0.000212)),
        *(
            verdict(f"C1-{task}", outcome, -0.2, (-0.3, -0.1), p_against=p_against, p_for=p_for)
            for task in ("mrpc", "stsb", "sst2", "qnli")
            for outcome, p_against, p_for in [tasks.get(task, ("reproduced", 1.0, 0.001))]
        ),
    ]


def details(run: list[Verdict]) -> str:
    rows = [" | ".join(verdict_row(judged)) for judged in run]
    return "\n".join([*map(describe, run), *rows, *map(verdict_line, run), count_line(run), *run_lines(run, 0.95)])


def on_terminal(run: list[Verdict]) -> str:
    limited = [judged for judged in run if any(one.provenance.limit for one in judged.measurements)]
    figures = replace(measurement(), measure="published-figures", reused=False)
    published = Verdict(of_id("D7-rte"), "compatible", "why", 58.9, (58.9, 58.9), measurements=(figures,))
    narrow = verdict_table(run)
    assert max(map(len, narrow.splitlines())) <= 80
    return "\n\n".join(
        [narrow, verdict_table([*limited, published]), verdict_table(run, Screen(140, colour=True), verbose=True)]
    )


def as_summary(run: list[Verdict]) -> str:
    text = summary(run, filed(run).model_copy(update=FACTS))
    return re.sub(r"bertsecrets \d\S*,", "bertsecrets VERSION,", text)


def on_page(run: list[Verdict]) -> str:
    """Return the page's text, a line per block, without the parts that differ between machines and the charts' data."""
    html = page({MODEL: run}, SETTINGS, command=["bertsecrets", "report", "--html", "my report.html"], note="3 of 9")
    html = " ".join(html.partition('<section id="measurements"')[0].split())
    html = re.sub(r"<(script|style|svg)\b.*?</\1>|<dt>(Suite|Judged)</dt>.*?</dd>", "", html, flags=re.S)
    html = re.sub(r"(<figure.*?)<table.*?</table>", r"\1", html, flags=re.S)
    html = re.sub(r'<a [^>]*href="(.*?)"[^>]*>', r" \1 ", re.sub(rf"<(?=(?:{BLOCKS})\b)", "\n<", html))
    html = re.sub(r'<details [^>]*id="(.*?)"[^>]*>', r"# \1 ", html)
    lines = (
        " ".join(unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in html.replace("\n", " \n").split(" \n")
    )
    return "\n".join(line for line in lines if line and line not in REPEATED)


FORMS: dict[str, Callable[[list[Verdict]], str]] = {
    "details.txt": details,
    "terminal.txt": on_terminal,
    "summary.md": as_summary,
    "page.txt": on_page,
}


@pytest.mark.parametrize("name", FORMS)
def test_the_example_looks_as_expected(name):
    text = "".join(f"{line.rstrip()}\n" for line in FORMS[name](example()).splitlines())
    if os.environ.get("RENEW"):
        (EXPECTED / name).write_text(text, encoding="utf-8")
    assert text == (EXPECTED / name).read_text(encoding="utf-8")


def test_failing_verdicts_are_annotations_on_github_that_stand_alone(monkeypatch):
    failing = [judged for judged in example() if judged.outcome == "deviates"]
    assert list(annotations(failing)) == []
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = list(annotations(failing))
    assert len(lines) == len(failing)
    assert (
        "::error title=E1-rte deviates: too small::Earlier layers attend to [CLS], later layers to [SEP]. "
        "Observed 0.0001 [-0.0010, 0.0010] depth, the claim holds in > 0, published 0.412 depth: [-0.0010, 0.0010] "
        "lies below 0.02, the smallest effect of interest (5 %25 of the depth)"
    ) in lines


def test_github_gets_no_more_annotations_than_it_shows(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    many = [verdict("E1-rte", "deviates", 0.1)] * 12
    *first, last = annotations(many)
    assert len(first) == 8  # and one of the action
    assert last == "::error title=bertsecrets::4 more claims fail: see the job summary"
