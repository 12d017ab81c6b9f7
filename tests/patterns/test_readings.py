"""The two readings of what K19 calls vertical, and the maps that were read for them."""

import pytest

from bertsecrets.errors import UserError
from bertsecrets.patterns.map_set import ATTRIBUTE_COLUMNS as COLUMNS
from bertsecrets.patterns.map_set import ATTRIBUTES, UNSEEN, MapSet, own_maps, read_attributes, under
from bertsecrets.patterns.readings import READINGS, Attributes, read_class


def seen(carried_by: str, **parts: int) -> Attributes:
    none = {"special": 0, "other": 0, "faint": 0, "diagonal": 0, "squares": 0, "haze": 0}
    return Attributes(**(none | parts), carried_by=carried_by)


@pytest.mark.parametrize(
    ("attributes", "special", "stripes"),
    [
        (seen("S", special=2), "vertical", "vertical"),
        (seen("HS", special=2, haze=2), "heterogeneous", "vertical"),
        (seen("OS", special=2, other=2), "heterogeneous", "vertical"),
        (seen("O", other=1), "heterogeneous", "vertical"),
        (seen("O", other=9), "heterogeneous", "heterogeneous"),
        (seen("D", diagonal=2), "diagonal", "diagonal"),
        (seen("DS", diagonal=2, special=2), "vertical-diagonal", "vertical-diagonal"),
        (seen("DO", diagonal=2, other=1), "diagonal", "vertical-diagonal"),
        (seen("SH", diagonal=2, special=2, haze=2), "vertical", "vertical-diagonal"),
        (seen("D", diagonal=1), "heterogeneous", "heterogeneous"),
        (seen("BS", squares=2, special=2), "block", "block"),
        (seen("SB", squares=2, special=2), "vertical", "vertical"),
        (seen("H", haze=2), "heterogeneous", "heterogeneous"),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_each_reading_is_a_rule_from_attributes_to_classes(attributes, special, stripes):
    assert (read_class(attributes, "special"), read_class(attributes, "stripes")) == (special, stripes)


def test_how_many_stripes_are_a_few_can_be_moved():
    four = seen("O", other=4)
    assert (read_class(four, "stripes"), read_class(four, "stripes", few=3)) == ("vertical", "heterogeneous")


@pytest.mark.parametrize("wrong", [{"special": 3}, {"other": -1}, {"haze": 4}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=f"{next(iter(wrong))} is .*: give 0 to"):
        seen("S", **wrong)


@pytest.mark.parametrize("letters", ["", "X", "SS", "SDH"])
def test_what_carries_a_map_is_one_part_or_two(letters):
    with pytest.raises(UserError, match="carried by"):
        seen(letters)


def test_every_map_was_read_twice_and_those_on_which_classes_differ_five_times():
    by_part = {part: read_attributes(own_maps(part)) for part in ("", UNSEEN)}
    assert {part: len(seen) for part, seen in by_part.items()} == {"": 1692, UNSEEN: 144}
    for seen in by_part.values():
        for found in seen.values():
            differ = any(len({read_class(one, reading) for one in found[:2]}) > 1 for reading in READINGS)
            assert len(found) == (5 if differ else 2)


def test_what_readers_saw_labels_a_set_under_each_reading():
    maps = MapSet.load(own_maps(UNSEEN))
    seen = read_attributes(own_maps(UNSEEN))
    for reading in READINGS:
        read = under(maps, seen, reading)
        assert len(read) == 144
        for one, votes in zip(read, read.votes, strict=True):
            assert list(votes) == [read_class(attributes, reading) for attributes in seen[one.name]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a\t1\t2\t0\t0\t0\t0\t0", "8 fields where 9 were expected"),
        ("a\t1\t2\t0\t0\t0\tx\t0\tS", "expected one digit"),
        ("a\t1\t3\t0\t0\t0\t0\t0\tS", "special is 3: give 0 to 2"),
        ("a\t2\t2\t0\t0\t0\t0\t0\tS", "reading '2' of 'a', where 1 was expected"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path, row, message):
    (tmp_path / ATTRIBUTES).write_text("\t".join(COLUMNS) + f"\n{row}\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"line 2: {message}"):
        read_attributes(tmp_path)


def test_other_columns_or_no_file_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no attributes\.tsv"):
        read_attributes(tmp_path)
    (tmp_path / ATTRIBUTES).write_text("name\tclass\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1: expected the tab-separated columns name, reading"):
        read_attributes(tmp_path)
