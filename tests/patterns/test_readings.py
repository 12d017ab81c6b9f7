"""The two readings of what K19 calls vertical, and the maps that were read for them."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import READINGS, Attributes, read_class

DATA = Path(__file__).parents[2] / "data" / "readings"


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


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_map_was_read_twice_and_those_on_which_classes_differ_five_times():
    by_map: dict[str, list[dict[str, str]]] = {}
    for row in rows("attributes.tsv"):
        by_map.setdefault(row["name"], []).append(row)
    assert len(by_map) == 1836
    for read in by_map.values():
        found = [Attributes(*(int(row[name]) for name in list(row)[2:8]), carried_by=row["carried by"]) for row in read]
        differ = any(len({read_class(one, reading) for one in found[:2]}) > 1 for reading in READINGS)
        assert [row["reading"] for row in read] == [str(i + 1) for i in range(5 if differ else 2)]


def test_readers_of_the_plain_words_gave_every_map_a_class():
    given = rows("plain-words.tsv")
    assert {row["class"] for row in given} <= set(CLASSES)
    assert Counter((row["words"], row["reader"]) for row in given) == {
        (words, reader): 240 for words in ("paper", "blog") for reader in "12"
    }
