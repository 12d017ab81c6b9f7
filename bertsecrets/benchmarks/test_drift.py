"""One benchmark per measure of a pin; collected only with `--against`."""

from bertsecrets.benchmarks.drift import check_drift


def test_drift(pinned, drifted):
    """The measure has not drifted from the pin; a failure names the heads and their standardized differences."""
    check_drift(drifted(pinned))
