"""The summary of a run: failures first, markup escaped, below GitHub's limit."""

from dataclasses import replace
from itertools import pairwise

import pytest
from calls import run
from markdown_it import MarkdownIt
from verdicts import beats, filed, of_every_outcome

from bertsecrets.claims.verdict import Verdict
from bertsecrets.report.markdown import SUMMARY_BYTES, summary
from bertsecrets.report.text import verdict_row
from bertsecrets.store.measurements import keep
from bertsecrets.types import Provenance


def summarised(verdicts, **facts) -> str:
    return summary(verdicts, filed(verdicts).model_copy(update=facts))


def tables(text: str) -> list[list[str]]:
    """Return the rendered cells of each table."""
    cells: list[list[str]] = []
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    for token, after in pairwise(tokens):
        if token.type == "table_open":
            cells.append([])
        if token.type in ("td_open", "th_open"):
            cells[-1].append("".join(inner.content for inner in after.children or ()))
    return cells


def test_a_summary_begins_with_counts_and_the_run():
    heading, _, about, *_ = summarised(
        of_every_outcome(), commit="abc", modified=False, made="2026-01-02T03:04:05Z"
    ).splitlines()
    assert heading == (
        "## K19 claims: 1 reproduced, 2 deviate, 1 inconclusive, 1 degenerate, 1 not applicable, 1 error"
    )
    assert about.startswith(
        "`m` on RTE, SST-2, QNLI, MNLI-m, seed 1, GLUE's own data, all rows; commit `abc`, bertsecrets "
    )
    assert about.endswith(", 2026-01-02 03:04:05 UTC.")


def test_failures_come_first_with_their_numbers():
    failing, _, rest = tables(summarised(of_every_outcome()))
    assert failing[:2] == ["claim", "statement"]
    _, _, statement, published, band, observed, _ = verdict_row(beats("D2-sst2", 20, 80))
    assert failing[5:9] == ["D2-sst2 deviates", statement, observed, f"{published}; band {band}"]
    assert observed.startswith("-60.0 [")
    assert [failing[i].split()[-1] for i in (5, 10, 15)] == ["deviates", "deviates", "degenerate"]
    assert len(rest) == 7 * 8
    text = summarised(of_every_outcome())
    assert text.index("Claims that do not hold") < text.index("Claims by tasks") < text.index("<details>")
    assert "false alarms among" in text


def test_markup_in_texts_is_escaped():
    *_, rest = tables(summarised(of_every_outcome()))
    assert "error: <b>no</b> rows | in a*file*" in rest
    assert "<b>" not in summarised(of_every_outcome()).replace("\\<b\\>", "")


def test_known_deviations_come_after_the_others(monkeypatch):
    monkeypatch.setattr(Verdict, "known_deviation", property(lambda self: str(self.case) == "D2-sst2"))
    failing = tables(summarised([beats("D2-sst2", 20, 80), beats("D2-rte", 20, 80)]))[0]
    assert [failing[i] for i in (5, 10)] == ["D2-rte deviates", "D2-sst2 deviates (known)"]


def test_limits_unofficial_data_and_missing_claims_stand_out():
    verdict = beats("D2-rte", 80, 20)
    marked = [replace(m, provenance=Provenance(limit=48, official_data=False)) for m in verdict.measurements]
    text = summarised([replace(verdict, measurements=tuple(marked))], incomplete="it was <interrupted>")
    assert "**unofficial data**, **limit 48**;" in text
    assert "> incomplete: it was \\<interrupted\\>" in text
    assert "Claims that do not hold" not in text


def test_a_huge_summary_stays_below_githubs_limit():
    each = [replace(verdict, reason="é" * 5000) for verdict in of_every_outcome()]
    verdicts = each * 100 + [each[-1]] * 700
    text = summarised(verdicts)
    assert len(text.encode()) <= SUMMARY_BYTES < 2**20
    assert text.count("more\n") == 2
    assert text.endswith("</details>\n")


@pytest.mark.usefixtures("quick")
def test_a_report_replaces_the_summary(capsys, tmp_path):
    for seed in (1, 2, 3):
        for init, right in {"pretrained": 90 + seed, "untrained": 45}.items():
            measurement = beats("D2-rte", right, 45).measurements[0]
            keep(
                replace(measurement, subject=replace(measurement.subject, initialisation=init, seed=seed)),
                tmp_path / "kept",
            )
    (tmp_path / "s.md").write_text("an earlier one")
    run(
        capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path / "kept",
        "--markdown", tmp_path / "s.md",
    )  # fmt: skip
    assert (tmp_path / "s.md").read_text().startswith("## K19 claims: 1 reproduced, 0 deviate\n")
