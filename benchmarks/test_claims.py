"""Every implemented claim of the paper on each of its tasks: `pytest benchmarks -k rte`."""

from bertsecrets.benchmarks.test_claims import test_claim

__all__ = ["test_claim"]
