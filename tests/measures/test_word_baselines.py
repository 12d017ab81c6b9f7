"""Bag-of-words baselines, on rows whose words do or do not reveal the answer."""

import numpy as np
import pytest
from measurements import estimand, measured, read, scored

from bertsecrets.measures.word_baselines import learned
from bertsecrets.texts.glue import load_folder
from bertsecrets.texts.tasks import task

FIRST = ["the cat sat", "a dog ran", "the bird flew", "one fish swam"] * 10
SECOND = ["yes it did", "no it never did"] * 20
ANSWERS = [0, 1] * 20


def answers(texts, others=None):
    """Train a baseline on the texts of 40 rows and return its predictions for these or other rows."""
    return learned(task("rte"), texts, ANSWERS, others or texts)


def test_baselines_learn_from_the_training_rows(session, tiny_glue):
    measurement = session.measure("word-baselines", task="rte")
    train, dev = (load_folder(tiny_glue, task("rte"), part) for part in ("train", "dev"))
    for kind, columns in (("words", ("sentence1", "sentence2")), ("second", ("sentence2",))):
        of_train, of_dev = ([list(getattr(rows, column)) for column in columns] for rows in (train, dev))
        expected = learned(task("rte"), of_train, train.targets(), of_dev)
        np.testing.assert_array_equal(measurement.sample(f"{kind}_predicted"), expected)
        assert measurement.value(f"{kind}_accuracy") == (expected == dev.targets()).mean()


def test_the_second_text_alone_reveals_answers_that_it_contains():
    np.testing.assert_array_equal(answers([SECOND]), ANSWERS)
    assert np.ptp(answers([["so it is said"] * 40])) == 0


def test_words_of_the_two_texts_have_separate_columns():
    """`yes` indicates one answer in the first text and the opposite one in the second."""
    first, second = ["yes", "well", "yes", "well"] * 10, ["well", "yes", "well", "yes"] * 10
    np.testing.assert_array_equal(answers([first, second]), ANSWERS)


def test_word_order_does_not_matter():
    turned = [" ".join(text.split()[::-1]) for text in SECOND]
    np.testing.assert_array_equal(answers([FIRST, SECOND]), answers([FIRST, SECOND], [FIRST, turned]))


def test_scores_are_learned_by_regression():
    predictions = learned(task("stsb"), [FIRST], [float(i % 4) for i in range(40)], [FIRST])
    assert np.corrcoef(predictions, [i % 4 for i in range(40)])[0, 1] > 0.9


def baselines(**samples):
    return measured("word-baselines", {}, samples)


def test_leads_equal_hand_computed_values():
    """Of four rows, the model gets four right, the words three, the second text alone one, the majority class two."""
    target = [1, 1, 0, 0]
    words = baselines(words_predicted=[1, 1, 1, 0], second_predicted=[0, 0, 1, 0], target=target)
    assert read("lead-over-words", scored(target, target), words) == 25
    assert read("lead-over-words", scored(target, target), words, texts="second") == 75
    assert estimand("lead-over-words", scored(target, target), words).notes == ("bag-of-words baseline 75.0",)
    assert read("words-over-majority", words) == 25
    assert read("words-over-majority", words, texts="second") == pytest.approx(-25)
