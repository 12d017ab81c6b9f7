"""Baselines of counts of words: what each of them sees, on rows where the answer is in one text or in none."""

import numpy as np
import pytest
from measurements import estimand, measured, read, scored

from bertsecrets.measures.word_baselines import _texts, learned
from bertsecrets.texts.glue import Split
from bertsecrets.texts.tasks import task

FIRST = ["the cat sat", "a dog ran", "the bird flew", "one fish swam"] * 10
SECOND = ["yes it did", "no it never did"] * 20
ANSWERS = [0, 1] * 20


def split(first, second, name="rte") -> Split:
    labels = ["entailment" if answer == 0 else "not_entailment" for answer in ANSWERS]
    return Split(task(name), "train", first, second, labels, "own", False)


def test_the_second_text_alone_gives_an_answer_that_is_written_there():
    rows = split(FIRST, SECOND)
    np.testing.assert_array_equal(
        learned(task("rte"), _texts(rows, "second"), ANSWERS, _texts(rows, "second")), ANSWERS
    )


def test_the_second_text_alone_knows_nothing_of_the_first():
    """The answer is in the first text, and the second is the same in all rows: one answer is given to all."""
    rows = split(SECOND, ["so it is said"] * 40)
    assert np.ptp(learned(task("rte"), _texts(rows, "second"), ANSWERS, _texts(rows, "second"))) == 0
    np.testing.assert_array_equal(learned(task("rte"), _texts(rows, "words"), ANSWERS, _texts(rows, "words")), ANSWERS)


def test_words_of_the_two_texts_have_columns_of_their_own():
    """`yes` means one answer in the first text and the other in the second."""
    first, second = ["yes", "well", "yes", "well"] * 10, ["well", "yes", "well", "yes"] * 10
    rows = split(first, second)
    np.testing.assert_array_equal(learned(task("rte"), _texts(rows, "words"), ANSWERS, _texts(rows, "words")), ANSWERS)


def test_order_is_nothing_to_a_bag_of_words():
    rows, turned = split(FIRST, SECOND), split(FIRST, [" ".join(text.split()[::-1]) for text in SECOND])
    one, other = (learned(task("rte"), _texts(rows, "words"), ANSWERS, _texts(dev, "words")) for dev in (rows, turned))
    np.testing.assert_array_equal(one, other)


def test_scores_are_learned_as_numbers():
    found = learned(task("stsb"), [FIRST], [float(i % 4) for i in range(40)], [FIRST])
    assert np.corrcoef(found, [i % 4 for i in range(40)])[0, 1] > 0.9


def baselines(**samples):
    return measured("word-baselines", {}, samples)


def test_the_lead_and_what_is_over_the_majority_by_hand():
    """Of four rows the model has all right, words three, the second text alone one; the majority class has two."""
    target = [1, 1, 0, 0]
    words = baselines(words_predicted=[1, 1, 1, 0], second_predicted=[0, 0, 1, 0], target=target)
    assert read("lead-over-words", scored(target, target), words) == 25
    assert read("lead-over-words", scored(target, target), words, texts="second") == 75
    assert estimand("lead-over-words", scored(target, target), words).notes == ("counts of words 75.0",)
    assert read("words-over-majority", words) == 25
    assert read("words-over-majority", words, texts="second") == pytest.approx(-25)
