"""Labels of the suite's maps from readers who were given the text of the paper or of the blog."""

from itertools import chain

import pytest

from bertsecrets.errors import UserError
from bertsecrets.patterns.readings import READINGS
from instruments.annotation.map_set import (
    HELD_OUT_READERS,
    PLAIN_WORDS,
    PLAIN_WORDS_COLUMNS,
    UNSEEN,
    MapSet,
    own_maps,
    read_plain_words,
    under,
)


@pytest.mark.parametrize("part", ["", UNSEEN])
def test_two_readers_of_each_text_whose_labels_train_classified_every_map(part):
    for by_reading in read_plain_words(own_maps(part)).values():
        assert {
            reading: len(labels.keys() - set(HELD_OUT_READERS)) for reading, labels in by_reading.items()
        } == dict.fromkeys(READINGS, 2)


def test_labels_of_held_out_readers_train_no_classifier():
    maps, by_map = MapSet.load(own_maps()), read_plain_words(own_maps())
    for reading in READINGS:
        read = [under(maps, by_map, reading, unsure=unsure) for unsure in (False, True)]
        assert sorted(each.name for part in read for each in part) == sorted(by_map)
        for shown, votes in zip(chain(*read), chain(*(part.votes for part in read)), strict=True):
            labels = by_map[shown.name][reading]
            assert list(votes) == [label for reader, label in labels.items() if reader not in HELD_OUT_READERS]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a\tpaper\t1", "expected 4 fields, found 3"),
        ("a\tbook\t1\tblock", "unknown text 'book'"),
        ("a\tpaper\t1\tsquare", "unknown class 'square'"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path, row, message):
    (tmp_path / PLAIN_WORDS).write_text("\t".join(PLAIN_WORDS_COLUMNS) + f"\n{row}\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"line 2: {message}"):
        read_plain_words(tmp_path)


def test_a_reader_classifies_a_map_once(tmp_path):
    rows = "\n".join(["\t".join(PLAIN_WORDS_COLUMNS), *["a\tpaper\t1\tblock"] * 2])
    (tmp_path / PLAIN_WORDS).write_text(rows, encoding="utf-8")
    with pytest.raises(UserError, match="line 3: reader '1' has already classified 'a'"):
        read_plain_words(tmp_path)


def test_other_columns_or_no_file_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no plain-words\.tsv"):
        read_plain_words(tmp_path)
    (tmp_path / PLAIN_WORDS).write_text("name\tclass\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1: expected the tab-separated columns name, words"):
        read_plain_words(tmp_path)
