"""Effects of fine-tuning on layers, vector geometry and class separation (claims I9), checked by hand."""

import numpy as np
import pytest
from measurements import estimand, gridded, measured, read, verdict

from bertsecrets.errors import NotApplicableError

PAIRS = 120


def vectors(centred, same=None, initialisation="pretrained"):
    """Return a measurement with these cosines [pair, layer] in every other row, after a column for the embeddings."""
    sample = np.full((2 * PAIRS, 1 + centred.shape[1]), np.nan)
    sample[::2, 0], sample[::2, 1:] = 0.9, centred
    marks = np.full(2 * PAIRS, np.nan)
    if same is not None:
        marks[::2] = same
    return measured("anisotropy", {}, {"centred": sample, "same_class": marks}, initialisation=initialisation)


@pytest.fixture
def cosines():
    return np.random.default_rng(5).normal(size=(PAIRS, 4))


def test_the_lower_half_of_the_layers_is_compared_with_the_upper_half():
    by_layer = np.array([0.9, 0.8, 0.5, 0.2])
    change = gridded("attention-change", cosine=np.tile(by_layer[:, None], (40, 1, 3)))
    assert read("upper-half-change", change) == pytest.approx(0.85 - 0.35)
    assert verdict("I9-rte", change).outcome == "reproduced"
    upside_down = gridded("attention-change", cosine=np.tile(by_layer[::-1, None], (40, 1, 3)))
    assert verdict("I9-rte", upside_down).outcome == "deviates"
    with pytest.raises(NotApplicableError, match="cannot be split into halves"):
        read("upper-half-change", gridded("attention-change", cosine=np.ones((40, 1, 3))))


def test_geometry_is_kept_if_pairs_keep_their_cosines_up_to_a_linear_change(cosines):
    before, noise = vectors(cosines, initialisation="untrained"), np.random.default_rng(6).normal(size=cosines.shape)
    assert read("geometry-correlation", vectors(0.1 + 0.3 * cosines), before) == pytest.approx(1)
    moved = cosines + [9, 9, 1, 0] * noise  # only the upper two of four layers count
    upper = [np.corrcoef(moved[:, layer], cosines[:, layer])[0, 1] for layer in (2, 3)]
    assert read("geometry-correlation", vectors(moved), before) == pytest.approx(np.mean(upper))
    assert verdict("I9-rte-geometry", vectors(moved), before).outcome == "reproduced"
    assert verdict("I9-rte-geometry", vectors(noise), before).outcome == "deviates"


def test_classes_separate_if_cosines_fall_more_between_than_within_classes(cosines):
    same = np.arange(PAIRS) % 2
    before = vectors(0.01 * cosines, same, "untrained")
    separated = 0.01 * cosines + [0, 0, 0, 1] * np.where(same, 0.3, -0.2)[:, None]
    growth = estimand("class-separation-growth", vectors(separated, same), before)
    assert growth.value == pytest.approx(0.5)
    assert growth.notes == ("cosines within classes change by +0.300, between classes by -0.200",)
    assert verdict("I9-rte-classes", vectors(separated, same), before).outcome == "reproduced"
    assert verdict("I9-rte-classes", vectors(0.01 * cosines, same), vectors(separated, same)).outcome == "deviates"


def test_scores_are_no_classes(cosines):
    with pytest.raises(NotApplicableError, match="scores instead of classes"):
        read("class-separation-growth", vectors(cosines), vectors(cosines))
