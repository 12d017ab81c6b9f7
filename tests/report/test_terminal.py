"""Tables on a terminal: colours, width, claims and known deviations. `test_expected.py` has the table of verdicts."""

import io

import pytest
from verdicts import LIMITED, beats, run_of, verdict

from bertsecrets.claims.loading import load_claims
from bertsecrets.report.terminal import Screen, claim_table, task_grid, verdict_table
from bertsecrets.report.text import OWN_SECTION, SECTIONS, in_sections


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
    assert Screen.of_stream(Terminal()).colour
    assert not Screen.of_stream(io.StringIO()).colour
    environment.setenv("NO_COLOR", "1")
    assert not Screen.of_stream(Terminal()).colour
    environment.delenv("NO_COLOR")
    environment.setenv("TERM", "dumb")
    assert not Screen.of_stream(Terminal()).colour


def test_the_width_of_a_terminal_is_used_from_eighty_columns(environment):
    environment.setenv("COLUMNS", "150")
    assert (Screen.of_stream(Terminal()).width, Screen.of_stream(io.StringIO()).width) == (150, 80)
    environment.setenv("COLUMNS", "40")
    assert Screen.of_stream(Terminal()).width == 80


def test_the_table_of_all_claims_fits_eighty_columns():
    claims = load_claims()
    lines = claim_table(claims).splitlines()
    assert max(map(len, lines)) <= 80
    titles = [*SECTIONS.values()]
    titles.insert(titles.index(SECTIONS["H"]), OWN_SECTION)
    assert [line for line in lines if line in titles] == titles
    names = [line.split()[0] for line in lines if line[:1].isalpha() and line not in titles]
    assert names == ["id", *(claim.name for claim in sorted(claims, key=in_sections))]


def test_verbose_tables_of_claims_add_source_and_tasks():
    (claim,) = [candidate for candidate in load_claims() if candidate.name == "C1"]
    assert "attention-change" not in claim_table([claim])
    shown = claim_table([claim], Screen(200), verbose=True)
    assert "section 4.3, figure 5; attention-change, last-two-layers\n" in shown
    assert all(title in shown for title in ("MRPC", "STS-B", "QNLI"))


def test_a_known_deviation_is_not_marked_in_a_limited_run():
    limited = verdict("G1-rte-luck", "deviates", 0.72, (0.0, 0.9), band=(0.95, float("inf")), provenance=LIMITED)
    assert "known" not in verdict_table([limited])


def test_a_claim_beyond_k19_stands_apart_and_fails_only_a_strict_run():
    own, later, k19 = (verdict(name, "deviates", 0.1, (0, 0.2)) for name in ("D6-rte-loses", "I7-rte", "C1-rte"))
    shown = verdict_table([own, later, k19])
    assert shown.index("C1") < shown.index(OWN_SECTION) < shown.index("D6-loses") < shown.index("I7")
    assert "1 claim: 0 reproduced, 1 deviates; 2 claims beyond K19: 2 deviate" in shown
    assert [run_of(own, later).exit_code(strict=strict) for strict in (False, True)] == [0, 1]
    assert run_of(k19).exit_code() == 1


def test_a_grid_of_claims_by_tasks_needs_two_tasks():
    assert task_grid([beats("D2-rte", 100, 20)]) == ""
