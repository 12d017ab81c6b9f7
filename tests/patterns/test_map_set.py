"""A set of maps comes back as it was saved, and says in which line it is wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from patterned import pattern_map, pattern_set

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES, GUIDELINES, KEYS, check_class
from bertsecrets.patterns.map_set import ANNOTATIONS, MAPS, MapSet


@pytest.fixture
def saved(tmp_path) -> Path:
    pattern_set().relabelled({"tiny_1": "block"}, second=True).save(tmp_path / "set")
    return tmp_path / "set"


def spoil(folder: Path, line: int, column: int, text: str) -> None:
    """Replace one field of the annotations; lines count from 1."""
    path = folder / ANNOTATIONS
    lines = path.read_text().splitlines()
    fields = lines[line - 1].split("\t")
    fields[column] = text
    lines[line - 1] = "\t".join(fields)
    path.write_text("\n".join(lines) + "\n")


def test_every_class_has_a_key_and_a_guideline():
    assert tuple(KEYS.values()) == CLASSES == tuple(GUIDELINES)
    assert list(KEYS) == ["1", "2", "3", "4", "5"]
    with pytest.raises(UserError, match="unknown class 'vertcal': did you mean vertical"):
        check_class("vertcal")


def test_a_set_comes_back_as_it_was_saved(saved):
    made, found = pattern_set(), MapSet.load(saved)
    assert found.labels == made.labels
    assert found.second_labels == (None, "block", *[None] * 8)
    for one, other in zip(found, made, strict=True):
        assert replace(one, values=other.values) == replace(other, values=other.values)
        np.testing.assert_array_equal(one.values, other.values)
        assert one.values.dtype == np.float16


def test_equal_sets_are_equal_bytes(saved, tmp_path):
    MapSet.load(saved).save(tmp_path / "again")
    for name in (MAPS, ANNOTATIONS):
        assert (saved / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_rows_may_be_sorted_by_hand(saved):
    path = saved / ANNOTATIONS
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(rows)]) + "\n")
    found = MapSet.load(saved)
    assert [each.name for each in found] == [each.name for each in reversed(list(pattern_set()))]
    for one, other in zip(found, reversed(list(pattern_set())), strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_heads_group_across_checkpoints_and_unknown_heads_stand_alone():
    one, other = pattern_map(5), replace(pattern_map(5), task="mrpc", state="pretrained")
    assert one.group == other.group == ("tiny", 2, 2)
    assert replace(one, layer=0, head=0).group != replace(one, name="x", layer=0, head=0).group


def test_kin_share_heads():
    """Both have every other layer of the twelve-layer model; the three-layer one has its fourth, eighth and twelfth."""
    small, judge = (
        replace(pattern_map(5), model="minilm", layer=4),
        replace(pattern_map(5), model="aegis-judge", layer=4),
    )
    large = replace(pattern_map(5), model="aegis-router", layer=7)
    assert small.group == judge.group == large.group == ("minilm-l12", 7, small.head)
    assert replace(large, model="paraphrase-minilm-l3", layer=2).group == replace(large, layer=8).group


def test_agreed_maps_have_four_labels_in_five_alike():
    votes = [(), ("block",), ("block", "vertical"), ("block",) * 3, ("block", "block", "vertical")]
    votes += [(*("block",) * 4, "vertical"), (*("block",) * 3, "vertical", "diagonal")]
    columns = [[given[k] if len(given) > k else None for given in votes] for k in range(3)]
    maps = MapSet(tuple(pattern_map(i) for i in range(7)), *map(tuple, columns), tuple(given[3:] for given in votes))
    assert maps.votes == votes
    assert maps.agreed == [False, True, False, True, False, True, False]


def test_separators_follow_from_the_boundary():
    assert pattern_map(0, tokens=12, boundary=7).separators == (6, 11)
    assert pattern_map(0, tokens=12, boundary=12).separators == (11,)


def test_labels_change_by_name_and_unknown_ones_are_refused():
    changed = pattern_set().relabelled({"tiny_0": "block", "tiny_1": None})
    assert changed.labels[:3] == ("block", None, "vertical-diagonal")
    assert sum(label is not None for label in changed.labels) == 9
    with pytest.raises(UserError, match="no map is called 'tiny_99'"):
        pattern_set().relabelled({"tiny_99": "block"})
    with pytest.raises(UserError, match="map tiny_0: unknown label 'blok'; expected one of vertical"):
        pattern_set().relabelled({"tiny_0": "blok"})


def test_most_annotators_settle_a_label_and_the_first_where_all_differ(tmp_path):
    votes = [
        ("block", None, None, ()), (None, None, None, ()), ("block", "diagonal", "diagonal", ()),
        ("block", "diagonal", None, ()), ("block", "diagonal", "vertical", ()), (None, "diagonal", "vertical", ()),
        ("block", "block", "vertical", ()), ("block", "block", "vertical", ("vertical", "vertical")),
        ("block", "diagonal", "vertical", ("vertical",)), ("block", "diagonal", "diagonal", ("block",)),
    ]  # fmt: skip
    maps = MapSet(tuple(pattern_map(i) for i in range(len(votes))), *zip(*votes, strict=True))
    maps.save(tmp_path / "set")
    settled = MapSet.load(tmp_path / "set").settled()
    assert settled.labels == (
        "block", None, "diagonal", "block", "block", "diagonal", "block", "vertical", "vertical", "block",
    )  # fmt: skip
    assert not any(settled.second_labels + settled.third_labels + settled.further_labels)


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        (9, "vertcal", "line 3: unknown label 'vertcal'; expected one of vertical"),
        (10, "x", "line 3: unknown second label 'x'"),
        (3, "trained", "line 3: unknown state 'trained'"),
        (4, "-1", "line 3: layer '-1' is not a whole number"),
        (7, "9", "line 3: 9 tokens, but its map has 11"),
        (8, "0", "line 3: boundary 0 is outside 1 to 11"),
        (8, "12", "line 3: boundary 12 is outside 1 to 11"),
        (0, "tiny_0", "line 3: there is no map 'tiny_0', or it has a row already"),
        (11, "y", "line 3: unknown third label 'y'"),
        (12, "block blok", "line 3: unknown further labels 'blok'"),
        (12, "\tx", "line 3: 14 fields where 13 were expected"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(saved, column, text, message):
    spoil(saved, 3, column, text)
    with pytest.raises(UserError, match=message):
        MapSet.load(saved)


def test_a_missing_row_header_or_file_is_named(saved):
    path = saved / ANNOTATIONS
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(UserError, match="no row for 'tiny_9'"):
        MapSet.load(saved)
    path.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(UserError, match="line 1: expected the tab-separated columns name, model"):
        MapSet.load(saved)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        MapSet.load(saved)
    path.unlink()
    with pytest.raises(UserError, match="cannot read"):
        MapSet.load(saved)
    (saved / MAPS).unlink()
    with pytest.raises(UserError, match="no maps in"):
        MapSet.load(saved)


@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.99])
def test_damaged_maps_are_refused(saved, share):
    data = (saved / MAPS).read_bytes()
    (saved / MAPS).write_bytes(data[: int(share * len(data))])
    with pytest.raises(UserError, match="maps-0001.npz is damaged"):
        MapSet.load(saved)


def test_saving_replaces_a_set_but_no_other_files(saved):
    pattern_set(3).save(saved)
    assert len(MapSet.load(saved)) == 3
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files \\(notes.txt\\)"):
        pattern_set(4).save(saved)
    assert len(MapSet.load(saved)) == 3


def test_names_must_be_unique(tmp_path):
    with pytest.raises(UserError, match="two maps are called 'tiny_1'"):
        MapSet((pattern_map(1), pattern_map(1))).save(tmp_path / "set")
    assert not (tmp_path / "set").exists()
