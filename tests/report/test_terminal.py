"""The table of verdicts on a terminal: 80 columns, notes, sections and colours."""

import io
import re
from dataclasses import replace

import pytest
from measurements import of_id, scored
from verdicts import beats, run_of

from bertsecrets.claims.reasons import Grounds
from bertsecrets.claims.schema import load_claims
from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.outcomes import OUTCOMES, label
from bertsecrets.report.terminal import Screen, claim_table, task_grid, verdict_line, verdict_table
from bertsecrets.report.text import SECTIONS, annotations, describe
from bertsecrets.types import Provenance

LIMITED = {"limit": 48, "official_data": False}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def verdict(name, outcome, observed=None, interval=None, reason="why", *, provenance=LIMITED, **more):
    """Return a verdict on the case with this id, from a measurement with this provenance."""
    measurement = replace(scored([1], [1]), provenance=Provenance(**provenance), reused=True)
    return Verdict(of_id(name), outcome, reason, observed, interval, measurements=(measurement,), **more)


@pytest.fixture
def verdicts():
    """Return verdicts of every outcome, with the longest names and numbers."""
    half = verdict("A4-rte-half", "inconclusive", 59.9, (57.5, 62.4))
    other = verdict("A4-rte-half", "reproduced", 10.0, (9.16, 10.9))
    return [
        replace(half, readings={"special": half, "stripes": other}),
        replace(verdict("B1-all", "not applicable", reason="the model has no layer 7: it has 6"), measurements=()),
        verdict("D1-mrpc-untrained-f1", "deviates", 52.7, (-104.6, 104.6), band=(60.0, 70.0)),
        verdict("D1-rte-untrained", "reproduced", 52.7, (45.2, 60.2), interim="interim analysis 2 of at most 5"),
        verdict("D2-rte", "degenerate", 0.0, (0.0, 0.0), "one answer for all"),
        verdict("E1-rte", "deviates", 0.0001, (-0.001, 0.001), band=(0.0, float("inf"))),
        verdict("E1-sst2", None, reason="the weights are damaged"),
        verdict("A3-all-across-tasks", "reproduced", 0.000123, (-0.0000804, 0.000212)),
    ]


def test_the_table_fits_eighty_columns_and_uses_wider_terminals(verdicts):
    shown = verdict_table(verdicts)
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    wide = verdict_table(verdicts, Screen(140))
    assert "0.000123 [-8.04e-05, 0.000212] %  ✓ reproduced" in wide
    assert max(map(len, wide.splitlines())) <= 140


def test_both_readings_are_shown(verdicts):
    shown = [line.rstrip() for line in verdict_table(verdicts).splitlines()]
    place = next(i for i, line in enumerate(shown) if line.startswith("A4-half"))
    assert shown[place].split()[3:] == ["special", "59.9", "[57.5,", "62.4]", "%", "?", "inconclusive", "a"]
    assert shown[place + 1].split() == ["stripes", "10.0", "[9.16,", "10.9]", "%"]


def test_remarks_shared_by_measurements_of_the_model_are_printed_once_next_to_claims_on_published_figures(verdicts):
    published = verdict("D7-rte", "reproduced", 58.9, (58.9, 58.9), provenance={})
    figures = replace(published.measurements[0], measure="published-figures", reused=False)
    shown = verdict_table([*verdicts, replace(published, measurements=(figures,))])
    assert shown.count("limit 48") == 1
    assert "  on this model: limit 48; unofficial data; stored" in shown


def test_shared_remarks_are_printed_once_and_others_have_letters(verdicts):
    shown = verdict_table(verdicts)
    assert shown.count("stored") == shown.count("limit 48") == 1
    assert "  on this model: limit 48; unofficial data; stored" in shown
    row = next(line for line in shown.splitlines() if line.startswith("D1-untrained "))
    constant, interim = row.split()[-1].split(",")
    assert f"  {constant}: the published figure is that of a constant answer" in shown
    assert f"  {interim}: interim analysis 2 of at most 5" in shown


def test_a_remark_of_several_claims_is_printed_once(verdicts):
    some = [verdict("C1-rte", "reproduced", -0.1, (-0.2, -0.05), provenance={}), *verdicts]
    shown = verdict_table(some)
    assert shown.count("limit 48") == 1
    assert re.search(r"^ +[a-z]: limit 48$", shown, re.M)
    assert verdict_table(verdicts[-1:]).count("limit 48") == 1


def test_claims_are_grouped_by_section_of_the_paper(verdicts):
    lines = verdict_table(verdicts).splitlines()
    places = [lines.index(SECTIONS[family]) for family in "ABDE"]
    assert places == sorted(places)
    assert all(lines.count(SECTIONS[family]) == 1 for family in "ABDE")


def test_colours_add_no_information(verdicts):
    coloured = verdict_table(verdicts, Screen(colour=True))
    assert COLOUR.search(coloured)
    plain = COLOUR.sub("", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == verdict_table(verdicts).splitlines()
    for judgement in verdicts:
        assert label(judgement.status) in plain
    assert len({appearance.sign for appearance in OUTCOMES.values()}) == len(OUTCOMES)


def test_verbose_tables_begin_with_details(verdicts):
    shown = " ".join(verdict_table(verdicts, verbose=True).split())
    for judgement in verdicts:
        assert " ".join(describe(judgement).split()) in shown
        assert judgement.case.claim.statement not in verdict_table(verdicts)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_colours_need_a_terminal_and_respect_no_color(environment):
    assert Screen.of(Terminal()).colour
    assert not Screen.of(io.StringIO()).colour
    environment.setenv("NO_COLOR", "1")
    assert not Screen.of(Terminal()).colour
    environment.delenv("NO_COLOR")
    environment.setenv("TERM", "dumb")
    assert not Screen.of(Terminal()).colour


def test_the_width_of_a_terminal_is_used_from_eighty_columns(environment):
    environment.setenv("COLUMNS", "150")
    assert (Screen.of(Terminal()).width, Screen.of(io.StringIO()).width) == (150, 80)
    environment.setenv("COLUMNS", "40")
    assert Screen.of(Terminal()).width == 80


def test_the_table_of_all_claims_fits_eighty_columns():
    claims = load_claims()
    lines = claim_table(claims).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line in SECTIONS.values()] == list(SECTIONS.values())
    names = [line.split()[0] for line in lines if line[:1].isalpha() and line not in SECTIONS.values()]
    assert names == ["id", *(claim.name for claim in claims)]


def test_verbose_tables_of_claims_add_source_and_tasks():
    (claim,) = [candidate for candidate in load_claims() if candidate.name == "C1"]
    assert "attention-change" not in claim_table([claim])
    shown = claim_table([claim], Screen(200), verbose=True)
    assert "section 4.3, figure 5; attention-change, last-two-layers\n" in shown
    assert all(title in shown for title in ("MRPC", "STS-B", "QNLI"))


def test_a_verdict_in_one_line(verdicts):
    lines = [verdict_line(judgement) for judgement in verdicts]
    assert lines[1] == "B1-all: – not applicable"
    assert lines[2] == "D1-mrpc-untrained-f1: ✗ deviates, 52.7 [-104.6, 104.6] points, 1 seed"


def test_several_tasks_have_a_table_of_claims_by_tasks():
    verdicts = [beats("D2-rte", 100, 20), beats("D2-sst2", 20, 100)]
    grid = task_grid(verdicts).splitlines()
    assert grid[0].split() == ["id", "SST-2", "RTE"]
    assert grid[2].split() == ["D2", "✗", "-80.0", "✓", "50.0"]  # above the majority class
    assert grid[-1] == "✓ reproduced, ✗ deviates"
    assert "\n".join(grid) in verdict_table(verdicts)
    assert all(len(line) <= 80 for line in grid)
    assert task_grid(verdicts[:1]) == ""  # a single task has no grid


@pytest.mark.parametrize(
    ("cause", "note"),
    [
        (Grounds.INCLUDES_LIMIT(interval=(-0.344, 0.155)), "interval includes the limit"),
        (Grounds.ONE_SEED(seeds=1, needed=3), "one seed is not enough"),
        (Grounds.FEW_EXAMPLES(needed=30), "fewer than 30 examples are not enough"),
        (Grounds.CONSTANT_ON_SAMPLE(), "constant answers need the whole validation set"),
        (Grounds.OTHER_CONSTANT(chance=0.1), "every seed gives another constant answer"),
        (Grounds.SO_FAR(now="60.0 lies inside", seeds=5), "a figure is reproduced only after all seeds"),
    ],
)
def test_an_inconclusive_row_says_why_in_a_few_words(cause, note):
    case, row = of_id("C1-rte"), {"observed": 0.1, "interval": (-0.3, 0.5)}
    shown = verdict_table([Verdict.because(case, "inconclusive", cause, "seed 2: constant", **row)])
    letter = next(line for line in shown.splitlines() if line.startswith("C1 ")).split()[-1].split(",")[0]
    assert f"  {letter}: {note}" in shown


def test_a_known_deviation_is_marked_unless_the_run_is_limited():
    whole, limited = (
        verdict("G1-rte-luck", "deviates", 0.72, (0.0, 0.9), band=(0.95, float("inf")), provenance=provenance)
        for provenance in ({}, LIMITED)
    )
    assert "✗ deviates (known)" in verdict_table([whole])
    assert "1 deviates (1 known)" in verdict_table([whole])
    assert "known" not in verdict_table([limited])
    assert [run_of(judgement).exit_code() for judgement in (whole, limited)] == [0, 1]


def test_unexpected_deviations_are_annotations_on_github(monkeypatch):
    failing = verdict("E1-rte", "deviates", 0.0001, (-0.001, 0.001), "below 5 % of it", band=(0.0, 1.0), provenance={})
    known = verdict("G1-rte-luck", "deviates", 0.72, (0.0, 0.9), band=(0.95, float("inf")), provenance={})
    assert list(annotations([failing])) == []
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (line,) = annotations([failing, known, verdict("C1-rte", "reproduced", 1.0, (1.0, 1.0))])
    assert line.startswith("::error title=E1-rte::deviates: below 5 %25 of it")
