"""The largest number of seeds that power statements consider."""

import numpy as np
import pytest

from bertsecrets.claims.error_rates import power
from bertsecrets.claims.estimate import Estimate, Spread


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            0.26605,
            "1000 seeds would decide this",
        ),  # (t(999) + .842) * 3 / sqrt(1000) = .26600, and .26614 for 999 seeds
        (0.2655, "more than 1000 seeds would be needed"),  # 1004 seeds
        (0.217, "more than 1000 seeds would be needed"),  # 1501 seeds
    ],
)
def test_up_to_a_thousand_seeds_are_considered(value, said):
    spread = Spread(3.0, 4, "five seeds")
    observed = Estimate(value, np.array([value]), np.array([[value]]), None, 1, 100, spread, 0.0)
    assert power(observed, (0.0, float("inf")), 0.95).startswith(said)
