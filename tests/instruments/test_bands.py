"""The bands in `expected/` are those that the suite computes."""

import pytest

from bertsecrets.settings import project_path
from instruments.bands import with_bands

FILES = sorted(project_path("expected").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_bands_are_current(file):
    assert with_bands(file) == file.read_text(encoding="utf-8"), "run python -m instruments bands"


def test_a_changed_figure_or_limit_changes_its_band(tmp_path):
    text = """
- id: C50
  source: K19
  statement: s
  measure: scores
  quantity: score
  expect: {kind: around, sampling: score}
  tasks: {rte: {published: 64.6, rounding: 0.05, seed_std: 2.77, seed_source: P20}, sst2: {published: 90, band: [0, 1]}}

- id: C51
  source: K19
  statement: s
  measure: scores
  quantity: score-over-majority
  expect: {kind: above, value: 0}  # points
  tasks: {rte: {}}
"""
    file = tmp_path / "C.yaml"
    file.write_text(text)
    once = with_bands(file)
    assert "seed_source: P20, band: [56.86, 72.34]}, sst2: {published: 90, band: from the measured seeds}}" in once
    assert "  expect: {kind: above, value: 0}  # points\n  band: {above: 0, smallest_effect: 0.5}\n" in once
    file.write_text(once.replace("64.6", "60.0").replace("value: 0}", "value: 3}"))
    assert "band: [52.26, 67.74]" in with_bands(file)
    assert "band: {above: 3}\n" in with_bands(file)
