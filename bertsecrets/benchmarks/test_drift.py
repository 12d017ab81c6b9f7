"""Benchmarks for drift from a pin, one per measure and task in the pin. They are collected only with `--against`."""

from bertsecrets.benchmarks import check_started
from bertsecrets.benchmarks.drift import check_drift

pytest_generate_tests = check_started


def test_drift(pinned, drifted):
    """The measure has not drifted from the pin. A failure lists the heads and their standardized differences."""
    check_drift(drifted(pinned))
