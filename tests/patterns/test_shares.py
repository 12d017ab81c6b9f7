"""Shares of pattern classes: corrected for known errors, with intervals, and measured in a real attention pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from measurements import estimand, read
from patterned import simulated_shares
from tiny import HEADS, LAYERS, family, opened, plain_maps, some_inputs

from bertsecrets.claims.estimate import estimate
from bertsecrets.measures.patterns import PatternObserver
from bertsecrets.models.attention import Pass
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.classifier import SHIPPED_FOLDER, PatternClassifier
from bertsecrets.patterns.features.feature_table import features
from bertsecrets.patterns.map_stack import second_text
from bertsecrets.patterns.readings import READINGS
from bertsecrets.patterns.shares import corrected, on_simplex, raw_shares, reader_spread
from bertsecrets.settings import load_settings
from bertsecrets.types import Measurement, Subject
from instruments.annotation.agreement import reader_shares
from instruments.classifiers.map_features import stack_maps


def test_the_correction_adds_the_mean_error():
    expected, errors = np.array([0.5, 0.1, 0.1, 0.1, 0.2]), np.array([0.1, 0.0, 0.0, -0.05, -0.05])
    np.testing.assert_allclose(corrected(expected, errors), [0.6, 0.1, 0.1, 0.05, 0.15])
    np.testing.assert_allclose(corrected(expected, np.zeros(5)), expected)


def test_the_nearest_point_of_the_simplex_by_hand():
    np.testing.assert_allclose(on_simplex(np.array([0.9, 0.5, -0.3])), [0.7, 0.3, 0])
    np.testing.assert_allclose(on_simplex(np.array([[0.2, 0.8], [2.0, 0.0]])), [[0.2, 0.8], [1, 0]])


def test_the_correction_removes_errors_common_to_all_heads():
    rng = np.random.default_rng(5)
    true, expected = simulated_shares(2000, rng)
    shares = corrected(expected[:1000].mean(0), (true - expected)[1000:].mean(0))
    truth = true[:1000].mean(0)
    assert np.abs(shares - truth).sum() < np.abs(expected[:1000].mean(0) - truth).sum() / 2


def test_raw_shares_and_majorities_by_hand():
    predicted = np.array([[[0, 4]], [[0, 3]], [[1, 3]]])  # 3 examples, 1 layer, 2 heads
    np.testing.assert_allclose(raw_shares(predicted)[:, [0, 3, 4]], [[0.5, 0, 0.5], [0.5, 0.5, 0], [0, 0.5, 0]])
    classifiers = {"special": PatternClassifier.load(SHIPPED_FOLDER, "special")}
    observer = PatternObserver(3, 1, 2, classifiers=classifiers, errors={"special": np.zeros((1, 5))}, separator=None)
    observer.predicted["special"][:] = predicted
    values, _ = observer.compute()
    assert values["special_majority"].tolist() == [[0, 3]]
    np.testing.assert_allclose(values["special_agreement"], [[2 / 3, 2 / 3]])


def behind_separator(ids: list[int], separator: int) -> int:
    """Apply the rule of `second_text` to one row, token by token."""
    place = ids.index(separator) if separator in ids else len(ids)
    while place < len(ids) and ids[place] == separator:
        place += 1
    return place


def test_the_second_text_begins_after_the_first_separators_of_a_single_row():
    for ids, separator, expected in (
        ([2, 9, 3, 8, 3], 3, 3),
        ([2, 9, 8, 3], 3, 4),  # one text
        ([0, 9, 2, 2, 8, 2], 2, 4),  # RoBERTa doubles it
        ([7, 8, 9], None, 3),
    ):
        assert second_text(torch.tensor([ids]), torch.tensor([len(ids)]), separator).tolist() == [expected]


def test_a_pass_classifies_every_map_as_if_it_were_alone():
    """Maps are streamed in padded batches, and must get the same class as when classified separately."""
    model, encoded, classifier = family("bert"), some_inputs(9), PatternClassifier.load(SHIPPED_FOLDER, "special")
    classifiers, errors = {"special": classifier}, {"special": np.zeros((1, 5))}
    observer = PatternObserver(9, LAYERS, HEADS, classifiers=classifiers, errors=errors, separator=3)
    Pass(opened(model)).feed(encoded, [observer])
    values, samples = observer.compute()
    for i, ids in enumerate(encoded.input_ids):
        maps = plain_maps(model, encoded, i).flatten(0, 1).numpy()
        edge = behind_separator(ids, 3)
        alone = classifier.of_features(features(stack_maps(list(maps), [edge] * len(maps)))).numpy()
        np.testing.assert_array_equal(samples["special_predicted"][i], alone.argmax(1).reshape(LAYERS, HEADS))
        np.testing.assert_allclose(samples["special_expected"][i], alone.mean(0), atol=1e-5)
    shares = sum(values[f"special_share_{name.replace('-', '_')}"] for name in CLASSES)
    np.testing.assert_allclose(shares, np.ones((LAYERS, HEADS)))
    assert values["special_raw_vertical"] == pytest.approx(values["special_share_vertical"].mean())
    assert values["special_corrected_vertical"] == pytest.approx(samples["special_expected"].mean(0)[0], abs=1e-5)
    assert not [name for name in values if "_low_" in name or "_high_" in name]  # intervals are computed by claims


def measurement(predicted: np.ndarray, task: str = "rte", **own: np.ndarray) -> Measurement:
    """Return a measurement by a classifier that is, without other samples, always certain and never wrong."""
    own = {"predicted": predicted.astype(np.int8), "expected": raw_shares(predicted), "errors": np.zeros((3, 5)), **own}
    samples = {f"{reading}_{name}": sample for reading in READINGS for name, sample in own.items()}
    return Measurement("patterns", Subject("tiny", task), len(predicted), {}, samples)


def test_quantities_by_hand():
    predicted = np.array([[[0, 4]], [[0, 3]], [[2, 4]], [[0, 4]]])
    found = [measurement(predicted)]

    def value(name, found=found, **arguments):
        return read(name, *found, **arguments)

    assert value("class-share", classes=["vertical", "vertical-diagonal"]) == pytest.approx(50)
    assert value("class-share", classes=["heterogeneous"]) == pytest.approx(37.5)
    assert value("heads-of-rarest-class") == 0
    # majority classes are 0 and 4 in rows 1 and 3, and 0 and 3 in rows 2 and 4 (ties go to the lower class)
    assert value("class-steadiness") == pytest.approx(100 * np.mean([[1, 0], [1, 0], [0, 0], [1, 1]]))
    other = measurement(np.array([[[0, 1]], [[0, 1]]]), "mrpc")
    assert value("class-share-gap", [found[0], other]) == pytest.approx(37.5)
    assert value("same-class-across-tasks", [(found[0], other)]) == pytest.approx(50)
    perfect, muddle = np.stack([np.eye(5)] * 3), np.ones((3, 5, 5))
    judged = [replace(found[0], samples={"special_confusion": muddle, "special_agreed_confusion": perfect})]
    assert value("pattern-macro-f1", judged, agreed=True) == pytest.approx(1)
    assert value("pattern-macro-f1", judged) == pytest.approx(0.2)


def test_a_model_of_few_heads_leaves_more_doubt():
    """Of 400 annotated heads, 4 are drawn for a model with 4 heads, and 55 for a model with 64 heads."""
    rng = np.random.default_rng(6)
    errors = rng.normal(0, 0.1, (400, 5))
    spread = []
    for heads in (4, 64):
        patterns = measurement(rng.integers(0, 5, (100, 1, heads)), expected=np.full((100, 5), 0.2), errors=errors)
        share = estimand("class-share", patterns, classes=["block"])
        low, high = estimate([share], load_settings().judge).interval(0.95)
        spread.append(high - low)
    assert spread[0] / spread[1] == pytest.approx(np.sqrt(55 / 4), rel=0.1)


def test_the_band_does_not_widen_with_the_annotated_heads():
    """Only the sampling error of examples applies to a published figure that was measured on other examples."""
    rng = np.random.default_rng(8)
    predicted = rng.integers(0, 5, (100, 2, 4))
    estimates = [
        estimate([estimand("class-share", each, classes=["block"])], load_settings().judge)
        for each in (measurement(predicted), measurement(predicted, errors=rng.normal(0, 0.1, (99, 5))))
    ]
    assert estimates[1].sampling_error > 2 * estimates[0].sampling_error
    assert estimates[1].examples_error == pytest.approx(estimates[0].examples_error, rel=0.1)


def test_errors_of_two_tasks_do_not_cancel_out():
    rng = np.random.default_rng(7)
    errors = rng.normal(0, 0.1, (99, 5))
    errors -= errors.mean(1, keepdims=True)
    patterns = measurement(rng.integers(0, 5, (100, 2, 4)), expected=np.full((100, 5), 0.2), errors=errors)
    gap = estimand("class-share-gap", patterns, patterns)
    assert gap.value == pytest.approx(0)
    low, high = estimate([gap], load_settings().judge).interval(0.95)
    once = 100 * errors[:, CLASSES.index("heterogeneous")].std() / np.sqrt(8)
    assert high - low == pytest.approx(2 * 1.96 * once * np.sqrt(2), rel=0.1)


def test_readers_are_compared_on_the_maps_that_all_of_a_group_have_read():
    both = [{"1": "block", "2": "block"}, {"1": "block", "2": "diagonal"}]
    three = [{"3": "vertical", "4": "vertical"}, {"3": "vertical", "4": "block", "5": "block"}]
    first, second = reader_shares([*both, *three])
    assert [by_class["vertical"] for by_class in first] == [1.0, 0.0, 0.0]  # readers 3, 4 and 5 have one map in common
    assert [by_class["block"] for by_class in second] == [1.0, 0.5]


def test_the_spread_between_readers_pools_groups_by_their_degrees_of_freedom():
    groups = [
        [{"a": 0.1, "b": 0.2}, {"a": 0.3, "b": 0.2}],
        [{"a": 0.5, "b": 0.1}, {"a": 0.5, "b": 0.2}, {"a": 0.8, "b": 0.3}],
    ]
    std, degrees = reader_spread(groups, ["a", "b"])
    by_hand = np.sqrt((1 * np.var([0.3, 0.5], ddof=1) + 2 * np.var([0.6, 0.7, 1.1], ddof=1)) / 3)
    assert (std, degrees) == (pytest.approx(by_hand), 3)
