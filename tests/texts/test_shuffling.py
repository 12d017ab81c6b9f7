"""Texts in a random order: the same words, each text on its own, and the same order whenever it is drawn again."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bertsecrets.texts.glue import Split
from bertsecrets.texts.shuffling import shuffled
from bertsecrets.texts.tasks import task

LONG = "one two three four five six seven eight nine ten eleven twelve."
TEXTS = st.lists(st.text("ab .", max_size=30), min_size=1, max_size=6)


def split(first, second) -> Split:
    return Split(task("rte"), "dev", first, second, ["entailment"] * len(first), "own", True)


@given(TEXTS, st.integers(1, 9))
def test_every_text_keeps_its_words(texts, draw):
    found = shuffled(split(texts, texts[::-1]), draw)
    assert [sorted(text.split()) for text in found.sentence1] == [sorted(text.split()) for text in texts]
    assert [sorted(text.split()) for text in found.sentence2] == [sorted(text.split()) for text in texts[::-1]]


def test_the_order_is_drawn_anew_for_every_text_and_seed_and_for_nothing_else():
    rows = split([LONG, LONG], [LONG, LONG])
    one, again, other = shuffled(rows, 1), shuffled(rows, 1), shuffled(rows, 2)
    orders = {*one.sentence1, *one.sentence2, *other.sentence1, *other.sentence2, LONG}
    assert len(orders) == 9
    assert (one.sentence1, one.sentence2) == (again.sentence1, again.sentence2)
    assert shuffled(rows.head(1), 1).sentence1 == one.sentence1[:1]


def test_single_texts_have_no_second_and_labels_stay():
    rows = replace(split([LONG], None), task=task("sst2"), labels=["positive"])
    found = shuffled(rows, 1)
    assert (found.sentence2, found.labels) == (None, ["positive"])
    assert found.fingerprint != rows.fingerprint
