"""Shares of pattern classes by hand: their change in fine-tuning, and the tokens on which stripes stand."""

import numpy as np
import pytest
from measurements import gridded, measured, read, verdict

from bertsecrets.claims.schema import load_claims
from bertsecrets.patterns.classes import CLASSES


def shares(*by_class, errors=0.0):
    """Expected shares of the five classes, the same in each of 40 examples, with errors of annotated heads."""
    samples = {
        "special_predicted": np.zeros((40, 3, 4), dtype=int),
        "special_expected": np.tile(by_class, (40, 1)),
        "special_errors": np.full((50, 5), errors),
    }
    return measured("patterns", {}, samples)


def test_the_change_of_shares_is_that_after_fine_tuning_minus_before():
    after, before = shares(0.3, 0.2, 0.2, 0.1, 0.2), shares(0.2, 0.2, 0.25, 0.2, 0.15)
    for name, change in zip(CLASSES, (10, 0, -5, -10, 5), strict=True):
        assert read("class-share-change", after, before, classes=[name]) == pytest.approx(change)
    assert read("class-share-change", after, before, classes=CLASSES[:3]) == pytest.approx(5)
    assert read("largest-share-change", after, before) == pytest.approx(10)
    assert read("largest-share-change", before, before) == pytest.approx(0)


def test_p20s_changes_of_shares_are_published():
    figures = {claim.name: claim.tasks for claim in load_claims()}
    assert figures["C3-vertical"]["qnli"].published == pytest.approx(20.3 + 3.4 - 14.6 - 5.4)
    assert figures["C3-vertical"]["mrpc"].published == pytest.approx(35.8 + 14.4 - 35.9 - 16.7)
    assert figures["A5"]["qnli"].published == pytest.approx(57.0 - 49.7)


def test_stripes_are_counted_by_the_token_on_which_they_stand():
    predicted = np.full((40, 3, 4), CLASSES.index("diagonal"))
    predicted[:10], predicted[10:20] = CLASSES.index("vertical"), CLASSES.index("vertical-diagonal")
    patterns = measured("patterns", {}, {"stripes_predicted": predicted})
    bright = np.zeros((40, 3, 4))
    bright[:5] = bright[15:20] = 1  # half of the maps with a stripe
    bright[30:] = 1  # maps without one do not count
    special = gridded("special-tokens", brightest=bright)
    assert read("stripes-on-special-tokens", special, patterns) == pytest.approx(50)
    bright[10:15] = 1
    assert verdict("E6-rte", gridded("special-tokens", brightest=bright), patterns).outcome == "reproduced"
    assert verdict("E6-rte", gridded("special-tokens", brightest=0 * bright), patterns).outcome == "deviates"
