"""Cohen's kappa equals scikit-learn's; its interval contains it and narrows with more maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from bertsecrets.errors import UserError
from bertsecrets.patterns.classes import CLASSES
from instruments.annotation.agreement import label_agreement

PAIRS = st.lists(st.tuples(st.sampled_from(CLASSES), st.sampled_from(CLASSES)), min_size=2, max_size=40)


@given(PAIRS)
def test_kappa_equals_that_of_scikit_learn(pairs):
    first, second = zip(*pairs, strict=True)
    agreement = label_agreement(first, second)
    if len({*first, *second}) == 1:
        assert np.isnan(agreement.kappa)
    else:
        assert agreement.kappa == pytest.approx(cohen_kappa_score(first, second))
    assert agreement.share == pytest.approx(np.mean([one == other for one, other in pairs]))
    assert agreement.maps == len(pairs)


def test_the_interval_contains_kappa_and_narrows_with_more_maps():
    first = [*CLASSES] * 10
    second = [*first[:35], *first[36:], "vertical"]  # the last 15 are shifted by one
    few, repeated = label_agreement(first, second), label_agreement(first * 16, second * 16)
    assert few.low < few.kappa < few.high
    assert repeated.kappa == pytest.approx(few.kappa)
    assert (repeated.high - repeated.low) == pytest.approx((few.high - few.low) / 4, rel=0.2)
    assert str(few).startswith("Cohen's kappa 0.")


def test_labels_of_different_maps_are_refused():
    with pytest.raises(UserError, match="2 labels and 1 label:"):
        label_agreement(CLASSES[:2], CLASSES[:1])
    with pytest.raises(UserError, match="0 labels and 0 labels"):
        label_agreement([], [])
    with pytest.raises(UserError, match="unknown class 'x'"):
        label_agreement(["x"], ["block"])
