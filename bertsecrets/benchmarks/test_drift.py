"""One benchmark per measure of a pin, collected only with `--against`."""

from bertsecrets.benchmarks.drift import check_drift


def test_drift(pinned, drifted):
    """The measure has not drifted from the pin. A failure lists the heads and their standardized differences."""
    check_drift(drifted(pinned))
