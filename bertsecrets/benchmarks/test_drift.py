"""Every measure of a pin, as one benchmark each; collected only where `--against` names the pin."""

from bertsecrets.benchmarks.drift import check_drift


def test_drift(pinned, drifted):
    """The measure has not drifted from the pin; a failure names its heads, and by how many standard deviations."""
    check_drift(drifted(pinned))
