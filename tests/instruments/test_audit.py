"""The audit of corrected class shares on simulated heads whose true shares are known."""

import numpy as np
import pytest
from patterned import simulated_shares

from instruments.classifiers.audit import audit_shares, share_interval


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Coverage is about 95 % for simulated models of 24 heads, corrected with the errors of 200 other heads.

    Each head has its own errors.
    """
    rng = np.random.default_rng(4)
    held, narrow = [], []
    for _ in range(150):
        true, expected = simulated_shares(224, rng)
        errors = (true - expected)[24:]
        examples = np.tile(expected[:24].mean(0), (50, 1))  # identical examples: only heads vary
        for heads, into in ((24, held), (10_000, narrow)):
            low, high = share_interval(examples, errors, heads=heads, rng=np.random.default_rng(0), resamples=300)
            truth = true[:24].mean(0)
            into.append((low <= truth) & (truth <= high))
    assert 0.9 < np.mean(held) < 0.99
    assert np.mean(narrow) < 0.65  # far too narrow for a model of few heads


def test_the_audit_detects_known_errors():
    """Each head has one map of each of two classes. On half of the heads, the classifier gets one of them wrong."""
    groups = np.repeat(np.arange(40), 2).astype(str)
    labels = np.tile([0, 1], 40)
    said = np.where(np.arange(80) // 2 % 2, labels, 0)  # every other head: all class 0
    audit = audit_shares(labels, np.eye(5)[said], heads=groups, groups=groups, size=8, seed=0)
    assert (audit["heads"], audit["covers"]["block"]) == (8, 1)
    assert audit["raw_error"]["vertical"] == pytest.approx(25, abs=3)
    assert audit["corrected_error"]["vertical"] == pytest.approx(100 * 0.25 / np.sqrt(8), rel=0.3)
    assert audit["covers"]["vertical"] > 0.85
    right = audit_shares(labels, np.eye(5)[labels], heads=groups, groups=groups, size=8, seed=0)
    assert right["corrected_error"]["diagonal"] == 0


def test_the_audit_corrects_no_head_by_its_kin():
    """Two groups of related heads have different errors, so a correction with the other group makes errors larger."""
    heads = np.arange(8).astype(str)
    kin = np.where(np.arange(8) < 4, "a", "b")
    labels = np.zeros(8, dtype=int)
    said = np.where(np.arange(8)[:, None] < 4, [1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0])
    audit = audit_shares(labels, said, heads=heads, groups=kin, size=1, seed=0)
    assert audit["corrected_error"]["diagonal"] > audit["raw_error"]["diagonal"]
