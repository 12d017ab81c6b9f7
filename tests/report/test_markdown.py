"""The summary of a run: its size and its file. `test_expected.py` has its content."""

from dataclasses import replace

import pytest
from calls import run
from verdicts import beats, filed, of_every_outcome

from bertsecrets.report.markdown import SUMMARY_BYTES, summary
from bertsecrets.store.measurements import save_to_folder


def test_a_huge_summary_stays_below_githubs_limit():
    each = [replace(verdict, reason="é" * 5000) for verdict in of_every_outcome()]
    verdicts = each * 100 + [each[-1]] * 700
    text = summary(verdicts, filed(verdicts))
    assert len(text.encode()) <= SUMMARY_BYTES < 2**20
    assert text.count("more\n") == 2
    assert text.endswith("</details>\n")


@pytest.mark.usefixtures("quick")
def test_a_report_replaces_the_summary(capsys, tmp_path):
    for seed in (1, 2, 3):
        for init, right in {"pretrained": 90 + seed, "untrained": 45}.items():
            measurement = beats("D2-rte", right, 45).measurements[0]
            save_to_folder(
                replace(measurement, subject=replace(measurement.subject, initialisation=init, seed=seed)),
                tmp_path / "kept",
            )
    (tmp_path / "s.md").write_text("an earlier one")
    run(
        capsys, "report", "--model", "m", "--claim", "D2", "--measurements", tmp_path / "kept",
        "--markdown", tmp_path / "s.md",
    )  # fmt: skip
    assert (tmp_path / "s.md").read_text().startswith("## K19 claims: 1 reproduced, 0 deviate\n")
