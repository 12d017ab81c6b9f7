"""Anisotropy, compared with a loop over all pairs of words."""

import numpy as np
import pytest
import torch
from measurements import measured, read, verdict
from tiny import CONFIGS, family, some_inputs
from transformers import AutoModelForSequenceClassification
from zoo import save_family

from bertsecrets.errors import UserError
from bertsecrets.measures.anisotropy import paired, random_pairs, row_directions, same_class
from bertsecrets.models.opening import OpenModel

ENCODED = some_inputs(9)


class Tokens:
    cls_token_id, sep_token_id = 2, 3


def vectors(model, i):
    """Return the vectors of ordinary tokens in a single example, without padding: [state, token, width]."""
    ids = torch.tensor([ENCODED.input_ids[i]])
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
    return torch.cat(states)[:, (ids[0] != 2) & (ids[0] != 3)].numpy()


@pytest.fixture
def opened(tmp_path):
    def open_classifier(name):
        if name in CONFIGS:
            return OpenModel(family(name), Tokens(), "")
        model = AutoModelForSequenceClassification.from_pretrained(save_family(name, tmp_path)).eval()
        return OpenModel(model, Tokens(), "")

    return open_classifier


@pytest.mark.parametrize("name", [*sorted(CONFIGS), "longformer"])  # Longformer's classifier adds global attention
def test_the_value_of_a_pair_is_the_mean_cosine_of_its_words(opened, name):
    model = opened(name)
    pairs = random_pairs(len(ENCODED))
    with torch.no_grad():
        directions, mean = row_directions(model, ENCODED)
        centred, _ = row_directions(model, ENCODED, mean)
    every = [vectors(model.model, i) for i in range(len(ENCODED))]
    np.testing.assert_allclose(mean, np.concatenate(every, axis=1).mean(1), atol=1e-4)
    for less, pair_cosines in ((0, paired(directions, pairs)), (mean.numpy()[:, None], paired(centred, pairs))):
        assert np.isnan(pair_cosines).all(1).sum() == 5  # the second row of each pair, and the unpaired row
        for one, other in pairs:
            if not all(every[i].shape[1] for i in (one, other)):
                continue
            a, b = ((every[i] - less) for i in (one, other))
            a, b = (part / np.linalg.norm(part, axis=-1, keepdims=True) for part in (a, b))
            cosines = np.einsum("siw,sjw->sij", a, b)
            np.testing.assert_allclose(pair_cosines[one], cosines.mean((1, 2)), atol=1e-4)


def test_each_row_is_in_one_pair_at_most():
    pairs = random_pairs(9)
    assert pairs.shape == (4, 2)
    assert len(set(pairs.ravel().tolist())) == 8
    with pytest.raises(UserError, match="at least two"):
        random_pairs(1)


def test_quantities_of_anisotropy_equal_hand_computed_values():
    cosine = np.full((200, 5), np.nan)
    cosine[::2] = np.array([0.9, 0.1, 0.2, 0.3, 0.6]) + np.random.default_rng(1).normal(0, 0.01, (100, 1))
    measurement = measured("anisotropy", {}, {"cosine": cosine, "centred": cosine * 0.01}, initialisation="untrained")
    assert read("anisotropy", measurement) == pytest.approx(0.3, abs=0.01)
    assert read("anisotropy-rise", measurement) == pytest.approx(0.3, abs=0.01)
    assert verdict("I2-rte", measurement).outcome == "reproduced"
    assert verdict("I2-rte-rises", measurement).outcome == "reproduced"


def test_a_checkpoint_is_measured(session):
    measurement = session.measure("anisotropy", task="rte", init="untrained")
    assert measurement.values["cosine"].shape == (4,)
    assert np.isfinite(measurement.values["centred"]).all()
    assert measurement.samples["same_class"].shape == (measurement.examples,)
    assert np.isfinite(measurement.samples["same_class"]).sum() == measurement.examples // 2


def test_pairs_of_one_label_are_marked_unless_labels_are_scores():
    pairs = np.array([[3, 0], [1, 2]])
    marks = same_class([0, 1, 1, 2, 0], pairs, regression=False)
    np.testing.assert_equal(marks, [np.nan, 1, np.nan, 0, np.nan])
    assert np.isnan(same_class([0.5, 0.5, 1.0, 1.0, 2.0], pairs, regression=True)).all()
