"""Contact sheets show every map once, identified only by its number."""

from dataclasses import replace

import numpy as np
import pytest
from patterned import pattern_map, pattern_set
from PIL import Image, ImageColor

from bertsecrets.errors import UserError
from instruments.annotation.pictures import (
    BARS,
    LINE,
    STRONG,
    column_shares,
    panel,
    shades,
    sheet,
    write_sheets,
)


def test_a_faint_diagonal_is_visible_next_to_a_strong_column():
    tokens = 20
    weights = np.full((tokens, tokens), 0.001)
    weights[:, 0] = 0.95
    weights += 0.03 * np.eye(tokens)
    levels = shades(weights.astype(np.float16))
    assert levels[:, 0].min() > 240
    assert 30 < levels[5, 5] < 60
    assert levels[5, 9] < 12


def test_bars_that_reach_the_line_are_red():
    """The line, at half height, marks a fifth of all attention. A bar is one column or the stacked special columns."""
    for place, share, red in ((0, 0.25, True), (3, 0.25, True), (3, 0.15, False), (0, 0.16, True), (0, 0.07, False)):
        each = replace(pattern_map(0, tokens=30, boundary=7), values=np.full((30, 30), (1 - share) / 29, np.float16))
        each.values[:, place] = share
        foot = np.array(panel(each).convert("RGB"))[-BARS:].astype(int)
        strong = (foot == ImageColor.getrgb(STRONG)).all(-1)
        line = (foot == ImageColor.getrgb(LINE)).all(-1)
        assert strong.any() == red
        assert line.any(axis=1).sum() == 1
        assert line.any(axis=1).argmax() == BARS // 2


def test_special_columns_are_stacked_to_the_right_of_the_others():
    """Each special column takes a third of the full height: a text pair has three, a single text two."""
    for boundary, high in ((7, BARS), (12, round(BARS * 2 / 3))):
        values = np.full((12, 12), (1 - 0.4) / 9, np.float16)
        values[:, [0, 6, 11]] = 0.4 / 3
        each = replace(pattern_map(0, tokens=12, boundary=boundary), values=values)
        assert column_shares(each)[1] == pytest.approx(0.4 if boundary == 7 else 0.8 / 3, abs=1e-3)
        foot = np.array(panel(each).convert("RGB"))[-BARS:, -6].astype(int)
        assert (foot == ImageColor.getrgb(STRONG)).all(-1).sum() == high - 1  # the line crosses the bar
        assert (foot == ImageColor.getrgb(LINE)).all(-1).sum() == 1


def test_sheets_contain_every_map_once_in_shuffled_order(tmp_path):
    maps = pattern_set(47)
    written = write_sheets(maps, tmp_path / "sheets", seed=5)
    header, *rows = (tmp_path / "sheets" / "index.tsv").read_text().splitlines()
    assert header == "sheet\tpanel\tname"
    assert len(written) == 4
    names = [row.split("\t")[2] for row in rows]
    assert sorted(names) == sorted(each.name for each in maps)
    assert names != [each.name for each in maps]
    assert rows[12].startswith("2\t1\t")
    by_name = {each.name: each for each in maps}
    expected = sheet([by_name[name] for name in names[36:]])
    with Image.open(written[3]) as image:
        assert image.size == expected.size
        difference = np.abs(np.array(image.convert("RGB")).astype(int) - np.array(expected).astype(int))
    assert difference.mean() < 3  # files have only 256 colours, which lose little
    with pytest.raises(UserError, match="--count 4 is out of range: give 1 to 3"):
        write_sheets(pattern_set(3), tmp_path / "new", 1, count=4)
