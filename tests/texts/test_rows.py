"""Rows of a task: drawing, quoting, shuffling, and clusters of rows that share a text."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.texts.glue import Source, Split, load_folder
from bertsecrets.texts.rows import TaskRows, draw_rows, read_quoted, shuffled, text_clusters
from bertsecrets.texts.tasks import task

texts = st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12)


def numbered(rows: int, name: str = "stsb") -> Split:
    places = [str(i) for i in range(rows)]
    return Split(task(name), "dev", places, [f"{i}'" for i in places], [i % 6 for i in range(rows)], "here", True)


def places(split: Split) -> list[int]:
    return [int(text) for text in split.sentence1]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_fewer_rows_are_some_of_more_rows_in_file_order(rows, one, other):
    split = numbered(rows)
    fewer, more = (draw_rows(split, wanted) for wanted in sorted((one, other)))
    assert len(more) == min(rows, max(one, other))
    assert set(places(fewer)) <= set(places(more))
    assert places(more) == sorted(places(more))
    assert [f"{text}'" for text in more.sentence1] == more.sentence2
    assert more.labels == [i % 6 for i in places(more)]


def test_every_part_of_a_sorted_file_is_drawn_from():
    """STS-B's validation set consists of 625 captions, 375 forum posts and 500 news pairs, in this order."""
    drawn = np.array(places(draw_rows(numbered(1500), 1000)))
    parts = np.histogram(drawn, [0, 625, 1000, 1500])[0]
    np.testing.assert_allclose(parts, [625 * 2 / 3, 375 * 2 / 3, 500 * 2 / 3], atol=30)


def test_the_same_rows_are_drawn_everywhere():
    """The draw is the same for all numpy versions, so results on a subset of the rows are comparable."""
    assert places(draw_rows(numbered(20), 5)) == [1, 6, 9, 11, 14]


def test_all_rows_are_the_split_itself_and_none_are_refused():
    split = numbered(4)
    assert draw_rows(split, None) is draw_rows(split, 4) is draw_rows(split, 9) is split
    with pytest.raises(UserError, match="a limit of rows must be at least 1, not 0"):
        draw_rows(split, 0)


def test_the_lowest_limit_holds(tiny_glue):
    def rows(**limits):
        return TaskRows(Source(tiny_glue, allow_unofficial=True), **limits)

    assert len(rows().split("rte", "dev")) == 24
    assert len(rows(limit=10).split("rte", "dev", 7)) == len(rows(limit=7).split("rte", "dev", 10)) == 7
    assert rows(limit=10).split("rte", "dev", 7) == rows().split("rte", "dev", 7)
    every, first = rows().whole("rte", "dev"), rows(limit=7).split("rte", "dev", first=True)
    assert first == every.head(7) != rows(limit=7).split("rte", "dev")
    assert len(rows(train_limit=9).split("rte", "train")) == 9
    assert len(rows(limit=5).split("rte", "dev", quoted=True)) == 5


# ---------------------------------------------------------------------- clusters


def test_rows_that_share_a_text_through_others_are_one_cluster():
    """The text may be in either column, with any surrounding white space. Empty texts do not connect rows."""
    first = ["a", "b", "c", "d", "e", "", ""]
    second = ["x", "y", " a ", "y\t", "z", "u", ""]
    split = Split(task("rte"), "dev", first, second, ["entailment"] * 7, "here", True)
    assert text_clusters(split).tolist() == [0, 1, 0, 1, 2, 3, 4]
    single = replace(split, task=task("sst2"), sentence2=None)
    assert text_clusters(single).tolist() == [0, 1, 2, 3, 4, 5, 6]


@given(texts, texts)
def test_clusters_are_the_connected_parts(first, second):
    """Compared with merging sets for each pair of rows that share a text."""
    rows = min(len(first), len(second))
    pairs = [{first[i], second[i]} for i in range(rows)]
    parts = [{i} for i in range(rows)]
    for i in range(rows):
        for j in range(i):
            if pairs[i] & pairs[j]:
                one, other = (next(part for part in parts if k in part) for k in (i, j))
                if one is not other:
                    parts.remove(other)
                    one |= other
    groups = text_clusters(Split(task("rte"), "dev", first[:rows], second[:rows], [""] * rows, "here", True))
    assert {frozenset(np.flatnonzero(groups == number).tolist()) for number in set(groups)} == set(
        map(frozenset, parts)
    )
    assert sorted(set(groups.tolist())) == list(range(len(parts)))


# ---------------------------------------------------------------------- quoting


def split_of(folder, *lines) -> Split:
    (folder / "RTE").mkdir()
    header = "index\tsentence1\tsentence2\tlabel"
    (folder / "RTE" / "dev.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return load_folder(folder, task("rte"), "dev")


def test_a_leading_quotation_mark_swallows_the_rows_up_to_the_next_one(tmp_path):
    split = split_of(
        tmp_path,
        "0\tA cat.\tA dog.\tentailment",
        '1\t"Well, he said.\tShe said.\tnot_entailment',
        "2\tA bird.\tA fish.\tentailment",
        '3\tHe said "no" twice.\tOdd" end.\tentailment',
        "4\tAn ant.\tA bee.\tnot_entailment",
    )
    quoted = read_quoted(split)
    assert quoted.sentence1[0] == "A cat."
    assert quoted.sentence1[1].startswith("Well, he said.\tShe said.")
    assert "2\tA bird." in quoted.sentence1[1]
    assert len(quoted.sentence2) == len(quoted.labels) == len(quoted) < len(split)
    with pytest.raises(NotApplicableError, match="give the folder of GLUE's original files"):
        read_quoted(replace(split, origin="nyu-mll/glue@abc rte"))


def test_quoting_changes_only_fields_that_begin_with_a_mark(tmp_path):
    split = split_of(tmp_path, '0\tHe said "no".\tA 3" nail.\tentailment', '1\t"An ant."\tA bee.\tnot_entailment')
    quoted = read_quoted(split)
    assert list(quoted.sentence1) == ['He said "no".', "An ant."]
    assert (list(quoted.sentence2), list(quoted.labels)) == (list(split.sentence2), list(split.labels))


# ---------------------------------------------------------------------- shuffling


@given(st.lists(st.text("ab .", max_size=30), min_size=1, max_size=6), st.integers(1, 9))
def test_shuffled_texts_keep_their_words_and_labels(texts, draw):
    split = Split(task("rte"), "dev", texts, texts[::-1], ["entailment"] * len(texts), "own", True)
    permuted = shuffled(split, draw)
    for before, after in ((split.sentence1, permuted.sentence1), (split.sentence2, permuted.sentence2)):
        assert [sorted(text.split()) for text in after] == [sorted(text.split()) for text in before]
    assert permuted.labels == split.labels
    assert shuffled(replace(split, sentence2=None), draw).sentence2 is None


def test_the_order_depends_on_draw_row_and_column_alone():
    long = "one two three four five six seven eight nine ten eleven twelve."
    split = Split(task("rte"), "dev", [long] * 2, [long] * 2, ["entailment"] * 2, "own", True)
    one, again, other = shuffled(split, 1), shuffled(split, 1), shuffled(split, 2)
    assert len({*one.sentence1, *one.sentence2, *other.sentence1, *other.sentence2, long}) == 9
    assert (one.sentence1, one.sentence2) == (again.sentence1, again.sentence2)
    assert shuffled(split.head(1), 1).sentence1 == one.sentence1[:1]
