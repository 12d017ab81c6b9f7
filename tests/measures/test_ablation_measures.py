"""Ablation measures: predictions, scores, bfloat16 and resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ablation_models import tiny, tokens
from ablation_reference import plain_logits
from tiny import fast_tier

from bertsecrets.ablation.head_sets import BASELINE, single_heads, whole_layers
from bertsecrets.ablation.skeleton import probe
from bertsecrets.errors import UserError
from bertsecrets.measures.base.ablation_measure import set_ablation
from bertsecrets.measures.registry import get_measure
from bertsecrets.texts.tasks import task
from bertsecrets.types import Measurement, Subject


def test_the_measure_scores_every_set_and_keeps_every_prediction():
    classifier, encoded = tiny("bert"), tokens((4, 6, 6, 8, 5))
    targets = [0, 1, 2, 1, 0]
    values, samples = set_ablation(classifier, encoded, task("mnli"), targets, single_heads(3, 4))
    expected = plain_logits(classifier.model, encoded, [BASELINE, *single_heads(3, 4)]).argmax(-1)
    np.testing.assert_array_equal(samples["predicted"], expected[1:])
    np.testing.assert_array_equal(samples["baseline_predicted"], expected[0])
    assert samples["predicted"].dtype == np.int8
    np.testing.assert_allclose(values["score"], (expected[1:] == targets).mean(1))
    assert values["score"].shape == (12,)
    assert values["baseline"] == (expected[0] == targets).mean()


def test_regression_scores_are_correlated_and_another_grid_is_refused(tmp_path):
    classifier, encoded, targets = tiny("bert", num_labels=1), tokens((4, 6, 6, 8, 5)), [0.5, 5.0, 2.2, 3.1, 4.0]
    values, samples = set_ablation(
        classifier, encoded, task("stsb"), targets, whole_layers(3, 4), folder=tmp_path / "grid"
    )
    assert samples["predicted"].dtype == np.float32
    assert values["score"].shape == (3,)
    np.testing.assert_allclose(
        values["score"], [np.corrcoef(row, targets)[0, 1] for row in samples["predicted"]], rtol=1e-5
    )
    with torch.no_grad():
        classifier.model.classifier.weight.zero_()
    with pytest.raises(UserError, match="a different grid"):
        set_ablation(classifier, encoded, task("stsb"), targets, whole_layers(3, 4), folder=tmp_path / "grid")


@pytest.mark.parametrize("name", fast_tier(["mnli", "stsb"], "mnli"))
def test_bfloat16_counts_predictions_of_a_sample_that_differ_from_float32(name, monkeypatch):
    """The first examples are compared for all sets; bfloat16 predictions equal those of the engine in bfloat16."""
    from bertsecrets.measures.base import ablation_measure

    monkeypatch.setattr(ablation_measure, "CHECKED_ROWS", 3)
    classifier = tiny("bert", num_labels=1 if name == "stsb" else 3)
    encoded, targets, sets = tokens((4, 6, 6, 8, 5)), [0, 1, 2, 1, 0], single_heads(3, 4)
    exact = set_ablation(classifier, encoded, task(name), targets, sets)[1]
    values, samples = set_ablation(classifier, encoded, task(name), targets, sets, precision="bfloat16")
    assert classifier.model.dtype == torch.bfloat16
    tolerance = ablation_measure.SCORE_TOLERANCE_POINTS if name == "stsb" else 0
    rows = [(exact[key], samples[key]) for key in ("predicted", "baseline_predicted")]
    differ = sum(int((np.abs(one[..., :3] - other[..., :3]) > tolerance).sum()) for one, other in rows)
    assert (values["sampled"], values["sample_differs"]) == (13 * 3, differ)
    rounded = set_ablation(classifier, encoded, task(name), targets, sets)[1]
    np.testing.assert_array_equal(samples["predicted"], rounded["predicted"])
    classifier.model.float()
    assert "sampled" not in set_ablation(classifier, encoded, task(name), targets, sets)[0]


def test_in_bfloat16_logits_near_zero_are_not_misread():
    """For the probe and the longest example, rounding errors of large terms that cancel are as large as the logits."""
    classifier, encoded = tiny("bert"), tokens((4, 6, 6, 8, 5))
    model, longest = classifier.model, torch.tensor([encoded.input_ids[3]])
    with torch.no_grad():
        pooled = [model.bert(ids.long()).pooler_output for ids in (probe(model), longest)]
        kept = torch.linalg.qr(torch.cat(pooled).T)[0]
        weight = model.classifier.weight
        weight.copy_(500 * (weight - weight @ kept @ kept.T))
        model.classifier.bias.copy_(torch.tensor([4.0, 0.0, -4.0]))
    values, _ = set_ablation(
        classifier, encoded, task("mnli"), [0, 1, 2, 1, 0], whole_layers(3, 4), precision="bfloat16"
    )
    assert values["sampled"] == 4 * 5


def test_bfloat16_is_a_remark_of_every_verdict():
    counted = {"sampled": 2336, "sample_differs": 3, "baseline": 0.6}
    measurement = Measurement("head-ablation", Subject("tiny", "rte"), 277, counted, {})
    assert get_measure("head-ablation").remarks(measurement) == [
        "heads were disabled in bfloat16: 3 of 2336 sampled predictions differ from those in float32"
    ]
    assert get_measure("head-ablation").remarks(replace(measurement, values={"baseline": 0.6})) == []
