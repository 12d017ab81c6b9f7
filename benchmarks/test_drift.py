"""Drift from a pin: `pytest benchmarks --model minilm --against expected/variants/minilm.yaml`."""

from bertsecrets.benchmarks.test_drift import test_drift

__all__ = ["test_drift"]
