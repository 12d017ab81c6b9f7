"""Shares of pattern classes: corrected for known confusions, with intervals, and measured in a real attention pass."""

from dataclasses import replace

import numpy as np
import pytest
from patterned import pattern_set
from tiny import HEADS, LAYERS, family, plain_maps, some_inputs

from bertsecrets.attention import Pass
from bertsecrets.core import Measurement, Subject, UserError
from bertsecrets.encoding import Encoded, collate
from bertsecrets.measures.patterns import Patterns, boundaries
from bertsecrets.patterns.annotated import annotated
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import PatternClassifier
from bertsecrets.patterns.ratios import corrected, majority, on_simplex, raw_shares, with_intervals
from bertsecrets.patterns.sampling import boundary
from bertsecrets.patterns.softmax import regress
from bertsecrets.patterns.stack import stack
from bertsecrets.patterns.trees import boost
from bertsecrets.quantities import QUANTITIES

RATES = np.array(
    [
        [0.90, 0.02, 0.05, 0.01, 0.02],
        [0.03, 0.90, 0.05, 0.00, 0.02],
        [0.10, 0.10, 0.75, 0.00, 0.05],
        [0.05, 0.00, 0.05, 0.70, 0.20],
        [0.03, 0.02, 0.02, 0.03, 0.90],
    ]
)
TRUE = np.array([0.35, 0.10, 0.12, 0.08, 0.35])


@pytest.fixture(scope="module")
def classifier():
    """A small classifier of plain maps."""
    made = pattern_set(40)
    data = annotated(
        [m.values for m in made], [m.boundary for m in made], list(made.labels), [str(i) for i in range(40)]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsecrets.patterns.trees.ROUNDS", 8)
        return PatternClassifier(boost(data.table, data.labels, 0), regress(data.table, data.labels))


def test_the_correction_recovers_known_shares():
    np.testing.assert_allclose(corrected(TRUE @ RATES, 100 * RATES), TRUE, atol=5e-3)


def test_a_perfect_classifier_needs_no_correction():
    np.testing.assert_allclose(corrected(TRUE, 10 * np.eye(5)), TRUE, atol=1e-6)


def test_shares_never_leave_the_simplex():
    impossible = np.array([0.0, 0.0, 0.0, 0.0, 1.0])  # a classifier with these rates cannot say this
    found = corrected(impossible, 100 * RATES)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    assert found[4] > 0.9


def test_a_class_without_annotations_counts_as_recognised():
    counts = 100 * RATES
    counts[3] = 0
    found = corrected(np.array([0, 0, 0, 1.0, 0]), counts)
    assert found[3] == pytest.approx(1, abs=1e-3)


def test_correction_of_many_is_that_of_each():
    rng = np.random.default_rng(0)
    raw = rng.dirichlet(np.ones(5), size=7)
    together = corrected(raw, 100 * RATES)
    np.testing.assert_allclose(together, [corrected(one, 100 * RATES) for one in raw], atol=1e-9)


def test_the_nearest_point_of_the_simplex_by_hand():
    np.testing.assert_allclose(on_simplex(np.array([0.9, 0.5, -0.3])), [0.7, 0.3, 0])
    np.testing.assert_allclose(on_simplex(np.array([[0.2, 0.8], [2.0, 0.0]])), [[0.2, 0.8], [1, 0]])


def test_intervals_on_simulated_predictions_hold_the_truth():
    """Maps of known classes, seen through a classifier of known rates that was judged on 120 annotated heads."""
    rng = np.random.default_rng(4)
    predicted = rng.choice(5, p=TRUE @ RATES, size=(300, 4, 12)).astype(np.int8)
    confusions = np.zeros((120, 5, 5))
    for head, true in enumerate(rng.integers(0, 5, 120)):
        confusions[head, true] = rng.multinomial(6, RATES[true])
    found = with_intervals(predicted, confusions, 0, 500, confidence=0.99)
    assert ((found["low"] <= TRUE) & (found["high"] >= TRUE)).all()
    assert np.abs(found["corrected"] - TRUE).sum() < np.abs(found["raw"] - TRUE).sum()


def test_few_annotated_heads_make_wide_intervals():
    rng = np.random.default_rng(5)
    predicted = rng.choice(5, p=TRUE @ RATES, size=(300, 4, 12)).astype(np.int8)
    widths = []
    for heads in (20, 400):
        confusions = np.zeros((heads, 5, 5))
        for head in range(heads):
            confusions[head, head % 5] = rng.multinomial(3, RATES[head % 5])
        found = with_intervals(predicted, confusions, 0, 300)
        widths.append(float((found["high"] - found["low"]).mean()))
    assert widths[0] > 2 * widths[1]


def test_raw_shares_and_majorities_by_hand():
    predicted = np.array([[[0, 4]], [[0, 3]], [[1, 3]]])  # 3 examples, 1 layer, 2 heads
    np.testing.assert_allclose(raw_shares(predicted)[:, [0, 3, 4]], [[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0]])
    classes, agreement = majority(predicted)
    assert classes.tolist() == [[0, 3]]
    np.testing.assert_allclose(agreement, [[2 / 3, 2 / 3]])


def test_the_second_text_begins_after_the_first_separator():
    ids = [[2, 7, 7, 3, 8, 3], [2, 7, 7, 3], [2, 7, 3, 3, 8, 3]]  # a pair, one text, a pair with a doubled separator
    batch = collate(Encoded(ids, None, 0), np.arange(3))
    assert boundaries(batch, 3).tolist() == [4, 4, 4]
    assert boundaries(batch, None).tolist() == [6, 4, 6]


def test_a_pass_classifies_every_map_as_if_it_were_alone(classifier):
    """Streamed in padded batches, each map has the class that it has by itself."""
    model, encoded = family("bert"), some_inputs(9)
    observer = Patterns(9, LAYERS, HEADS, classifier, np.stack([np.eye(5)]), 3, 0, 100)
    Pass(model, LAYERS, HEADS).feed(encoded, [observer])
    values, samples = observer.result()
    for i, ids in enumerate(encoded.input_ids):
        maps = plain_maps(model, encoded, i).flatten(0, 1).numpy()
        edge = boundary(ids, 3)
        alone = classifier.of_maps(stack(list(maps), [edge] * len(maps))).argmax(1).reshape(LAYERS, HEADS)
        np.testing.assert_array_equal(samples["predicted"][i], alone.numpy())
    shares = sum(values[f"share_{name.replace('-', '_')}"] for name in CLASSES)
    np.testing.assert_allclose(shares, np.ones((LAYERS, HEADS)))
    assert values["raw_vertical"] == pytest.approx(values["share_vertical"].mean())


def measurement(predicted: np.ndarray, confusion: np.ndarray, task: str = "rte") -> Measurement:
    samples = {"predicted": predicted.astype(np.int8), "confusion": confusion.astype(float)}
    return Measurement("patterns", Subject("tiny", task), len(predicted), {}, samples)


def test_quantities_by_hand():
    perfect = np.stack([np.eye(5)] * 3)
    predicted = np.array([[[0, 4]], [[0, 3]], [[2, 4]], [[0, 4]]])
    found = [measurement(predicted, perfect)]

    def value(name, found=found, **arguments):
        return QUANTITIES[name].read(found, "rte", **arguments).value

    assert value("class-share", classes=["vertical", "vertical-diagonal"]) == pytest.approx(50, abs=0.01)
    assert value("class-share", classes=["heterogeneous"]) == pytest.approx(37.5, abs=0.01)
    assert value("rarest-class") == pytest.approx(0, abs=0.01)
    assert value("class-steadiness") == pytest.approx(75)
    other = measurement(np.array([[[0, 1]], [[0, 1]]]), perfect, "mrpc")
    assert value("class-share-gap", [found[0], other]) == pytest.approx(37.5, abs=0.01)
    assert value("same-class-across-tasks", [found[0], other]) == pytest.approx(50)
    assert value("pattern-macro-f1") == pytest.approx(1)
    muddled = replace(found[0], samples={"confusion": np.ones((3, 5, 5)), "agreed_confusion": perfect})
    assert value("pattern-macro-f1", [muddled], agreed=True) == pytest.approx(1)
    assert value("pattern-macro-f1", [muddled]) == pytest.approx(0.2)
    with pytest.raises(UserError, match="unknown class"):
        value("class-share", classes=["vertcal"])
