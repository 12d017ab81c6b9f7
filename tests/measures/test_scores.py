"""Scores, compared with scikit-learn and scipy, and the scores of a constant answer."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertsecrets.measures.scores import class_entropy, majority_share, scores
from bertsecrets.texts.metrics import decide, is_constant
from bertsecrets.texts.metrics import scores as metrics
from bertsecrets.texts.tasks import task

two_classes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60).map(np.array)
numbers = st.lists(st.tuples(st.integers(-40, 90), st.integers(0, 50)), min_size=3, max_size=40).map(
    lambda rows: np.array(rows, dtype=float) / 10
)


@given(two_classes)
def test_accuracy_and_f1_equal_scikit_learns(pairs):
    from sklearn import metrics as reference

    predicted, truth = pairs.T
    values = metrics(task("mrpc"), predicted, truth)
    assert values["accuracy"] == pytest.approx(reference.accuracy_score(truth, predicted))
    assert values["f1"] == pytest.approx(reference.f1_score(truth, predicted, zero_division=0.0))


@given(numbers)
def test_correlations_equal_scipys(pairs):
    predicted, truth = pairs.T
    values = metrics(task("stsb"), predicted, truth)
    if np.ptp(predicted) == 0 or np.ptp(truth) == 0:
        assert values == {"pearson": 0.0, "spearman": 0.0}
    else:
        assert values["pearson"] == pytest.approx(np.corrcoef(predicted, truth)[0, 1], abs=1e-9)
        ranks = np.corrcoef(stats.rankdata(predicted), stats.rankdata(truth))[0, 1]
        assert values["spearman"] == pytest.approx(ranks, abs=1e-9)


def test_only_tasks_that_k19_scores_by_f1_have_one():
    answers = np.array([1, 0])
    names = ("rte", "mrpc", "qqp", "sst2", "qnli")
    assert [name for name in names if "f1" in metrics(task(name), answers, answers)] == ["mrpc", "qqp"]


def test_the_constant_answers_of_mrpc_score_as_in_table_1():
    truth = np.array([0] * 129 + [1] * 279)
    negative, positive = np.zeros(408, dtype=int), np.ones(408, dtype=int)
    assert metrics(task("mrpc"), negative, truth) == {"accuracy": 129 / 408, "f1": 0.0}
    values = metrics(task("mrpc"), positive, truth)
    assert round(100 * values["accuracy"], 1) == 68.4
    assert round(100 * values["f1"], 1) == 81.2
    assert majority_share(truth) == 279 / 408


@pytest.mark.parametrize(
    ("name", "answers", "bits"),
    [
        ("rte", [0, 0, 0, 0], 0.0),
        ("rte", [0, 1, 0, 1], 1.0),
        ("mnli", [0, 1, 2, 0, 1, 2], math.log2(3)),
        ("rte", [0, 0, 0, 1], 2 - 0.75 * math.log2(3)),
    ],
)
def test_entropy_is_in_bits(name, answers, bits):
    assert class_entropy(task(name), np.array(answers)) == pytest.approx(bits)


def test_logits_become_classes_or_scores():
    logits = np.array([[0.1, 0.3], [2.0, -1.0]], dtype=np.float32)
    assert decide(task("rte"), logits).tolist() == [1, 0]
    assert decide(task("stsb"), logits[:, :1]).tolist() == pytest.approx([0.1, 2.0])


def test_a_constant_predictor_is_marked():
    always = np.tile(np.array([[0.0, 1.0]], dtype=np.float32), (4, 1))
    values, samples = scores(task("rte"), always, [0, 1, 1, 0])
    assert values == {"accuracy": 0.5, "constant": True, "majority": 0.5, "entropy": 0.0}
    assert samples["predicted"].tolist() == [1, 1, 1, 1]
    assert samples["target"].tolist() == [0, 1, 1, 0]


def test_nearly_equal_scores_are_constant_but_have_a_correlation():
    logits = np.array([[2.000], [2.004], [2.001]], dtype=np.float32)
    values, _ = scores(task("stsb"), logits, [0.0, 5.0, 1.0])
    assert values["constant"]
    assert values["pearson"] == pytest.approx(np.corrcoef([0, 4, 1], [0, 5, 1])[0, 1], abs=1e-3)
    assert not is_constant(task("stsb"), np.array([2.0, 2.1]))
    same, _ = scores(task("stsb"), np.full((3, 1), 2.5, dtype=np.float32), [0.0, 5.0, 1.0])
    assert (same["pearson"], same["spearman"], same["constant"]) == (0.0, 0.0, True)


@pytest.mark.parametrize("examples", [1, 2])
def test_one_or_two_examples_are_scored_without_a_warning(examples):
    for name, outputs in (("rte", 2), ("mrpc", 2), ("stsb", 1), ("mnli", 3)):
        logits = np.random.default_rng(0).normal(size=(examples, outputs)).astype(np.float32)
        values, _ = scores(task(name), logits, [1, 0][:examples])
        assert all(math.isfinite(value) for value in values.values())
