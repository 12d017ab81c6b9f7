"""What the measures make of the engine's logits: predictions kept, scores, finished parts reused."""

import numpy as np
import pytest
import torch
from ablation_models import DEEP, tiny, tokens
from ablation_reference import plain_logits

from bertsecrets.ablation.head_sets import BASELINE, single_heads, whole_layers
from bertsecrets.errors import UserError
from bertsecrets.measures.base.ablation import set_ablation
from bertsecrets.models.loading import OpenModel
from bertsecrets.texts.tasks import task


def test_the_measure_scores_every_set_and_keeps_every_prediction():
    classifier, encoded = tiny("Bert"), tokens((4, 6, 6, 8, 5))
    targets = [0, 1, 2, 1, 0]
    values, samples = set_ablation(classifier, encoded, task("mnli"), targets, single_heads(3, 4))
    expected = plain_logits(classifier.model, encoded, [BASELINE, *single_heads(3, 4)]).argmax(-1)
    np.testing.assert_array_equal(samples["predicted"], expected[1:])
    np.testing.assert_array_equal(samples["baseline_predicted"], expected[0])
    assert samples["predicted"].dtype == np.int8
    np.testing.assert_allclose(values["score"], (expected[1:] == targets).mean(1))
    assert values["score"].shape == (12,)
    assert values["baseline"] == (expected[0] == targets).mean()


def test_the_measure_correlates_scores_and_resumes_from_its_folder(tmp_path):
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(3)
    model = BertForSequenceClassification(BertConfig(**{**DEEP, "num_labels": 1})).eval()
    classifier, encoded, targets = OpenModel(model, None, ""), tokens((4, 6, 6, 8, 5)), [0.5, 5.0, 2.2, 3.1, 4.0]
    values, samples = set_ablation(
        classifier, encoded, task("stsb"), targets, whole_layers(3, 4), folder=tmp_path / "grid"
    )
    assert samples["predicted"].dtype == np.float32
    assert values["score"].shape == (3,)
    np.testing.assert_allclose(
        values["score"], [np.corrcoef(row, targets)[0, 1] for row in samples["predicted"]], rtol=1e-5
    )
    with torch.no_grad():
        model.classifier.weight.zero_()
    with pytest.raises(UserError, match="another grid"):
        set_ablation(classifier, encoded, task("stsb"), targets, whole_layers(3, 4), folder=tmp_path / "grid")
